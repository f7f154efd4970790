"""Batches under way in the test's own process: dispatchers that hear, pump without end, and what is left of it all."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from carteiro.domain.outcomes import Accepted, Outcome
from carteiro.services.api_keys import Caller, authenticate
from carteiro.services.create import create_batch
from carteiro.services.dispatch.model import Slice
from carteiro.services.finalise import assume_delivered, finalise_due
from carteiro.settings import Settings
from carteiro.storage.pool import Pool
from carteiro.worker.signals import hear_halts
from carteiro.worker.supervisor import keep_running
from tests.support.dispatching import Bench, FakeProvider, running_bench
from tests.support.factories import SERVICE, add_account, add_key, batch_request, value
from tests.support.waiting import until

SETTINGS = replace(Settings(), lateness_s=0.05)
PATIENT = replace(SETTINGS, lateness_s=2.0)
"""No slot is missed on a busy machine, and an answer that comes sooner came by the signal."""
FAST = {"messages_per_second": 10_000}
TAKEN = Accepted("theirs")

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


def bench(pool: Pool, provider: FakeProvider | None = None, settings: Settings = SETTINGS) -> Bench:
    return Bench(pool, settings, provider or FakeProvider())


async def column(pool: Pool, batch_id: UUID, name: str) -> Any:
    return await value(pool, f"SELECT {name} FROM batch WHERE id = %s", batch_id)


async def status(pool: Pool, batch_id: UUID) -> str:
    return str(await column(pool, batch_id, "status"))


async def events(pool: Pool, batch_id: UUID) -> list[str]:
    found: list[str] = await value(
        pool, "SELECT array_agg(event ORDER BY id) FROM batch_event WHERE batch_id = %s", batch_id
    )
    return found


async def money(pool: Pool, batch_id: UUID) -> str:
    """debited, charged, refunded, and what the payer has."""
    return str(
        await value(
            pool,
            "SELECT concat_ws(' ', debited, charged, refunded, (SELECT balance FROM account WHERE id = 'acme'))"
            " FROM batch WHERE id = %s",
            batch_id,
        )
    )


async def told(station: Bench, piece: Slice, *outcomes: Outcome | None) -> None:
    """What the first rows of a slice came to, just now; `None`: the call was not started."""
    await station.record(piece, *outcomes, at=datetime.now(UTC))
    piece.due = piece.due[len(outcomes) :]


async def change(pool: Pool, statement: str, *params: object) -> None:
    async with pool.connection() as conn:
        await conn.execute(statement.encode(), params)


async def _pump(fleet: Fleet, bench: Bench) -> None:
    while not bench.dispatcher.stopping.is_set():
        await bench.dispatcher.pump(SERVICE)
        fleet.pumped += 1
        await asyncio.sleep(PUMP_EVERY_S)


async def _hear(dsn: str, bench: Bench, name: str) -> None:
    async def run() -> None:
        await hear_halts(dsn, name, bench.dispatcher.halt)

    await keep_running("signals", run)
