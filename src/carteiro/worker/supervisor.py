"""The worker process: Procrastinate's worker, the sweep, leases and the recorder, all restarted when Postgres went
away.
"""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import structlog
from procrastinate import PsycopgConnector
from psycopg import AsyncConnection

from carteiro.storage.jobs import CHORE_QUEUE, PUMP_QUEUE, app, queue_of
from carteiro.storage.pool import session_dsn

log = structlog.get_logger(__name__)

FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 5.0
FETCH_EVERY_S = 1.0
LEFT = 1
"""Exit code of a worker that could not finish."""
CONCURRENCY = 32
"""Jobs at once in one process: a pump each for so many services, and the chores."""


async def keep_running(name: str, run: Callable[[], Awaitable[None]]) -> None:
    """Run again whenever it returns or raises, with back-off: when Postgres goes away Procrastinate's worker may do
    either.
    """
    pause_s = FIRST_PAUSE_S
    loop = asyncio.get_running_loop()
    while True:
        began_s = loop.time()
        try:
            await run()
            reason = "it returned"
        except Exception as error:
            reason = type(error).__name__
        task = asyncio.current_task()
        if task is not None and task.cancelling():  # heard by `run`, and swallowed: Procrastinate's worker does that
            raise asyncio.CancelledError
        log.warning("restarting", part=name, reason=reason)
        if loop.time() - began_s > LONGEST_PAUSE_S * 2:
            pause_s = FIRST_PAUSE_S
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * 2, LONGEST_PAUSE_S)


async def run_jobs(dsn: str, worker_id: str) -> None:
    """Fetch and run jobs until Postgres goes away or this task is cancelled. On a small pool of its own."""
    connector = PsycopgConnector(
        conninfo=session_dsn(dsn, f"carteiro-jobs {worker_id}"), min_size=1, max_size=4, configure=_autocommit
    )
    with app.replace_connector(connector) as running:
        async with running.open_async():
            await running.run_worker_async(
                queues=[PUMP_QUEUE, queue_of(worker_id), CHORE_QUEUE],
                name=worker_id,
                concurrency=CONCURRENCY,
                fetch_job_polling_interval=FETCH_EVERY_S,
                delete_jobs="always",
                install_signal_handlers=False,
                update_heartbeat_interval=10,
                stalled_worker_timeout=30,
            )


async def _autocommit(conn: AsyncConnection[Any]) -> None:
    """Without it each of Procrastinate's calls costs four round trips."""
    await conn.set_autocommit(True)


def end_within(seconds: float) -> None:
    """However this process comes to its end, it is gone by then.

    While Postgres is away, or the network swallows every byte, the queue's worker, the pools and a cancelled statement
    all wait for it, some without a limit. What is not recorded by then is left to its lease and the provider's log, as
    after a kill.
    """

    def leave() -> None:
        log.warning("worker_left_at_deadline", seconds=seconds)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(LEFT)

    timer = threading.Timer(seconds, leave)
    timer.daemon = True
    timer.start()


def stop_on_signal(stopping: asyncio.Event) -> None:
    """SIGTERM and SIGINT ask the worker to stop: no new call starts, calls in flight are finished and recorded."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
