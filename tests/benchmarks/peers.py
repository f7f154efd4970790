"""What people use instead, doing less: a job a message, one POST, one UPDATE; no limits, pace, money or audit.

`python -m tests.benchmarks.peers DSN URL KEY` is one worker of Procrastinate.
"""

import asyncio
import importlib.util
import shutil
import subprocess
import sys
from dataclasses import dataclass
from uuid import UUID

import psycopg
import uvloop
from procrastinate import App, PsycopgConnector
from psycopg.conninfo import make_conninfo
from psycopg_pool import AsyncConnectionPool

from carteiro.domain.outcomes import Accepted, Outgoing
from carteiro.providers.registry import open_provider
from tests.benchmarks.bed import API_KEY, Bed, wait_until

MESSAGES = 3_000
WORKERS = 2
CONCURRENCY = 50
NEEDS = {"pgqueuer": "pgqueuer", "arq + Redis": "arq", "Celery + Redis": "celery"}


@dataclass(frozen=True)
class Peer:
    name: str
    per_second: float | None
    note: str = ""


def measure_peers(bed: Bed) -> list[Peer]:
    return [_procrastinate(bed), *(Peer(name, None, _why_not(package)) for name, package in NEEDS.items())]


def _why_not(package: str) -> str:
    if importlib.util.find_spec(package) is None:
        return f"skipped: {package} is not installed"
    if package != "pgqueuer" and shutil.which("redis-server") is None:
        return "skipped: there is no redis-server"
    return "skipped: not written"


def _procrastinate(bed: Bed) -> Peer:
    bed.simulator("POST", "reset")
    bed.simulator("POST", "settings", {"latency_ms": 20.0})
    with psycopg.connect(bed.dsn, autocommit=True) as conn:
        conn.execute("CREATE DATABASE peer")
    dsn = make_conninfo(bed.dsn, dbname="peer")
    asyncio.run(_fill(dsn))
    command = [sys.executable, "-m", "tests.benchmarks.peers", dsn, bed.simulator_url, API_KEY]
    workers = [subprocess.Popen(command) for _ in range(WORKERS)]
    try:
        with psycopg.connect(dsn, autocommit=True) as conn:
            wait_until(lambda: _first(conn, "SELECT count(*) FROM sent WHERE at IS NULL") == 0, "all sent", 120)
            took_s = _first(conn, "SELECT extract(epoch FROM max(at) - min(at))::float FROM sent")
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    return Peer(f"Procrastinate, a job a message, {WORKERS} workers", MESSAGES / took_s)


def _first(conn: psycopg.Connection, statement: str) -> float:
    row = conn.execute(statement.encode()).fetchone()
    assert row is not None
    return float(row[0])


def _app(dsn: str) -> App:
    async def autocommit(conn: psycopg.AsyncConnection) -> None:
        await conn.set_autocommit(True)

    return App(connector=PsycopgConnector(conninfo=dsn, min_size=2, max_size=10, configure=autocommit))


async def _fill(dsn: str) -> None:
    async with _app(dsn).open_async() as app:
        await app.schema_manager.apply_schema_async()
        task = app.configure_task("send")
        await task.batch_defer_async(*({"seq": seq} for seq in range(1, MESSAGES + 1)))
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("CREATE TABLE sent (seq int PRIMARY KEY, at timestamptz) WITH (fillfactor = 60)")
        conn.execute("INSERT INTO sent (seq) SELECT generate_series(1, %s)", (MESSAGES,))


async def work(dsn: str, url: str, key: str) -> None:
    provider = open_provider("infobip", base_url=url, api_key=key, max_connections=CONCURRENCY)
    app = _app(dsn)
    async with AsyncConnectionPool(dsn, kwargs={"autocommit": True}, min_size=2, max_size=10, open=False) as pool:

        @app.task(name="send")
        async def send(seq: int) -> None:
            message = Outgoing(
                UUID(int=99),
                seq,
                "5511400010000",
                f"55119{80_000_000 + seq}",
                "bench_v1",
                "pt_BR",
                ("Cliente", str(seq)),
            )
            [outcome] = await provider.submit([message])
            if not isinstance(outcome, Accepted):
                raise RuntimeError(f"not accepted: {outcome}")
            async with pool.connection() as conn:
                await conn.execute("UPDATE sent SET at = clock_timestamp() WHERE seq = %s", (seq,))

        async with app.open_async():
            await app.run_worker_async(concurrency=CONCURRENCY, delete_jobs="always", install_signal_handlers=False)


if __name__ == "__main__":
    uvloop.run(work(*sys.argv[1:4]))
