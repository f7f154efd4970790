"""Batches under way in the test's own process: dispatchers that hear, pump without end, and what is left of it all."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from carteiro.services.api_keys import Caller, authenticate
from carteiro.services.create import create_batch
from carteiro.services.finalise import assume_delivered, finalise_due
from carteiro.settings import Settings
from carteiro.storage.pool import Pool
from carteiro.worker.signals import hear_halts
from carteiro.worker.supervisor import keep_running
from tests.support.dispatching import Bench, FakeProvider, running_bench
from tests.support.factories import SERVICE, add_account, add_key, batch_request, value
from tests.support.waiting import until

PUMP_EVERY_S = 0.01


async def add_owner(pool: Pool, **options: Any) -> Caller:
    """An account with credits and a key: the audit knows its actor."""
    await add_account(pool, **{"credits": 10_000, "bm_limit": 100_000, "messages_per_second": 300, **options})
    return await authenticate(pool, await add_key(pool))


async def post(pool: Pool, owner: Caller, n: int = 10, **fields: Any) -> UUID:
    return (await create_batch(pool, Settings(), owner, batch_request(n, **fields))).batch_id


@dataclass
class Fleet:
    """Dispatchers of one provider that pump its service again and again, as the sweep would have them do."""

    pool: Pool
    benches: list[Bench]
    provider: FakeProvider
    parts: list[asyncio.Task[None]] = field(default_factory=list)
    """Ended with the fleet."""
    pumped: int = 0

    async def listens(self, size: int | None = None) -> bool:
        """Whether so many connections hear of halted batches: one a dispatcher."""
        listening: int = await value(
            self.pool,
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND starts_with(application_name, 'carteiro-signals') AND starts_with(query, 'LISTEN')",
        )
        return listening == (len(self.benches) if size is None else size)

    async def went_round(self) -> None:
        """Wait until every dispatcher has looked for work anew, and all that it had was answered and recorded."""
        before = self.pumped
        rounds = 2 * len(self.benches)
        await until(lambda: self.pumped >= before + rounds, 30, "the dispatchers looked for work again")
        await until(lambda: self.provider.in_flight == 0, 30, "all calls answered")
        for bench in self.benches:
            await bench.dispatcher.recorder.drained()


@contextlib.asynccontextmanager
async def running_fleet(
    pool: Pool, dsn: str, provider: FakeProvider, settings: Settings, *, size: int = 2, hears: bool = True
) -> AsyncIterator[Fleet]:
    """`hears`: they listen for pauses and cancellations, and do so before the block begins."""
    async with contextlib.AsyncExitStack() as stack:
        names = [f"w{number}" for number in range(1, size + 1)]
        benches = [
            await stack.enter_async_context(running_bench(pool, provider, settings, worker_id=name)) for name in names
        ]
        fleet = Fleet(pool, benches, provider)
        fleet.parts += [asyncio.create_task(_pump(fleet, bench)) for bench in benches]
        if hears:
            for bench, name in zip(benches, names, strict=True):
                fleet.parts.append(asyncio.create_task(_hear(dsn, bench, name)))
            await until(fleet.listens, 10, "the dispatchers listen")
        try:
            yield fleet
        finally:
            for bench in benches:
                bench.dispatcher.stopping.set()
            for bench in benches:
                await bench.dispatcher.drained()
            for part in fleet.parts:
                part.cancel()
            await asyncio.gather(*fleet.parts, return_exceptions=True)


async def settle(pool: Pool, settings: Settings) -> list[UUID]:
    """Take what was sent for delivered, and settle what can be settled."""
    await assume_delivered(pool, replace(settings, assume_delivered_after_s=1e-6))
    return await finalise_due(pool, settings)


async def _pump(fleet: Fleet, bench: Bench) -> None:
    while not bench.dispatcher.stopping.is_set():
        await bench.dispatcher.pump(SERVICE)
        fleet.pumped += 1
        await asyncio.sleep(PUMP_EVERY_S)


async def _hear(dsn: str, bench: Bench, name: str) -> None:
    async def run() -> None:
        await hear_halts(dsn, name, bench.dispatcher.halt)

    await keep_running("signals", run)
