"""Procrastinate jobs, deferred on the caller's connection: they commit with the rows that need them.

A job is a wake-up call for a slice of work and carries no truth: losing, doubling or emptying jobs costs a sweep's
second. They are deferred once per request or sweep, never per message, because each one NOTIFYs and NOTIFY serialises
commits.
"""

from typing import Any

from procrastinate import App, PsycopgConnector
from procrastinate.exceptions import AlreadyEnqueued
from psycopg import AsyncConnection

app = App(connector=PsycopgConnector())
"""Tasks register here (carteiro.worker.tasks); the worker opens it on its own small pool."""

PUMP_QUEUE = "pump"
CHORE_QUEUE = "chore"


def queue_of(worker_id: str) -> str:
    """The queue that only this worker reads: how each worker gets a pump of its own for a busy service."""
    return f"{PUMP_QUEUE}.{worker_id}"


async def defer_pump(conn: AsyncConnection[Any], service_id: str, *, worker_id: str | None = None) -> bool:
    """Ask for a pump of the service, by any worker or by this one. False: one is asked for already."""
    queue = queue_of(worker_id) if worker_id else PUMP_QUEUE
    return await _defer(conn, "pump", queue, f"{queue}:{service_id}", {"service_id": service_id})


async def defer_chore(conn: AsyncConnection[Any], name: str) -> bool:
    """Ask for one run of a chore (`apply_receipts`, `send_callbacks`, ...). False: it is asked for already."""
    return await _defer(conn, name, CHORE_QUEUE, f"{CHORE_QUEUE}:{name}", {})


async def _defer(
    conn: AsyncConnection[Any], task: str, queue: str, queueing_lock: str, arguments: dict[str, Any]
) -> bool:
    deferrer = app.configure_task(task, queue=queue, queueing_lock=queueing_lock, connection=conn)
    try:
        async with conn.transaction():
            await deferrer.defer_async(**arguments)
    except AlreadyEnqueued:
        return False
    return True
