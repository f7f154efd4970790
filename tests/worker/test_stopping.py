"""A worker that is told to stop while Postgres is away is gone in time all the same."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from carteiro.embedded import throwaway_cluster
from carteiro.storage.migrations import migrate
from carteiro.storage.pool import open_pool
from tests.chaos.proxy import Proxy
from tests.support.databases import chosen_binaries
from tests.support.factories import add_account, add_batch, value
from tests.support.processes import free_port, running_processes

CALL_TIMEOUT_S = 2.0
BUSY_MACHINE_S = 2.0
CALLED = "SELECT count(*) FROM message WHERE status = 'pending_send'"

pytestmark = pytest.mark.process


@pytest.fixture
async def silent_provider() -> AsyncIterator[str]:
    """The address of one that takes calls and never answers."""
    lines: list[asyncio.StreamWriter] = []

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines.append(writer)
        await reader.read()

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()
    for line in lines:
        line.transport.abort()


@pytest.mark.parametrize("how", ["cut without a word", "refused"])
async def test_it_ends_within_the_call_timeout_and_five_seconds(tmp_path: Path, silent_provider: str, how: str) -> None:
    with throwaway_cluster(binaries=chosen_binaries(), tcp_port=free_port()) as cluster:
        migrate(cluster.dsn())
        async with open_pool(cluster.dsn(), min_size=1, max_size=2, application_name="tests") as pool:
            await add_account(pool, credits=100, messages_per_second=10_000, base_url=silent_provider)
            await add_batch(pool, 20)
            async with Proxy(cluster.port) as proxy:
                environment = {
                    "CARTEIRO_DATABASE_URL": cluster.tcp_dsn().replace(f":{cluster.port}/", f":{proxy.port}/"),
                    "CARTEIRO_CALL_TIMEOUT_S": str(CALL_TIMEOUT_S),
                    "INFOBIP_KEY": "any",
                }
                with running_processes(tmp_path, environment) as processes:
                    worker = processes.start("worker")
                    await worker.ready(lambda: value(pool, CALLED))
                    proxy.cut()
                    if how == "refused":
                        await proxy.refuse()
                    told_at_s = time.monotonic()
                    await asyncio.to_thread(worker.stop, 150)
                    took_s = time.monotonic() - told_at_s
            assert took_s <= CALL_TIMEOUT_S + 5 + BUSY_MACHINE_S, worker.log_tail()
            assert await value(pool, CALLED) > 0, "their lease lapses, and the provider's log is asked"
