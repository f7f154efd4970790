"""What a slice costs, beside what else is in the tables: claimed and recorded in this process, without any call."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import median

import psycopg
from psycopg.conninfo import make_conninfo

from carteiro.domain.outcomes import Accepted
from carteiro.services.api_keys import Caller, authenticate
from carteiro.services.create import create_batch
from carteiro.services.dispatch.model import Slice
from carteiro.settings import Settings
from carteiro.storage.migrations import migrate
from carteiro.storage.pool import Pool, open_pool
from tests.benchmarks.bed import Bed
from tests.support.dispatching import LIFTED, Bench, FakeProvider
from tests.support.factories import add_account, add_key, batch_request
from tests.support.history import History, load_history

ROWS = 100
"""Of a slice."""
SLICES = 120
WARM_UP = 20
BATCHES = 200
OLD = History(messages=5_000_000, batch_rows=1_000, suppressed=500_000)

TAKEN = Accepted("theirs")


@dataclass(frozen=True)
class Cost:
    """Medians of one slice."""

    name: str
    claim_ms: float
    record_ms: float


@dataclass
class Track:
    """One database with work in it, and what its slices took."""

    name: str
    bench: Bench
    claim_s: list[float]
    record_s: list[float]

    async def step(self) -> None:
        began_s = time.perf_counter()
        piece = await self.bench.claim()
        claimed_s = time.perf_counter()
        if not isinstance(piece, Slice):  # all slots of this moment are granted
            await asyncio.sleep(0.01)
            return await self.step()
        await self.bench.record(piece, *[TAKEN] * len(piece.due), at=datetime.now(UTC))
        self.claim_s.append(claimed_s - began_s)
        self.record_s.append(time.perf_counter() - claimed_s)

    def cost(self) -> Cost:
        return Cost(self.name, median(self.claim_s[WARM_UP:]) * 1000, median(self.record_s[WARM_UP:]) * 1000)


def measure_claims(bed: Bed) -> list[Cost]:
    """Nothing else in the tables, 200 active batches, and five million old messages, in turns."""
    return asyncio.run(_claims(bed))


async def _claims(bed: Bed) -> list[Cost]:
    async with contextlib.AsyncExitStack() as stack:
        alone = await stack.enter_async_context(_track(bed, "one batch", ROWS, [ROWS * (SLICES + 1)]))
        many = await stack.enter_async_context(_track(bed, f"{BATCHES} active batches", ROWS, [ROWS * 2] * BATCHES))
        old = await stack.enter_async_context(
            _track(bed, f"{OLD.messages:,} old messages", ROWS, [ROWS * (SLICES + 1)], history=OLD)
        )
        for _ in range(SLICES):
            for track in (alone, many, old):
                await track.step()
        return [track.cost() for track in (alone, many, old)]


@contextlib.asynccontextmanager
async def _track(
    bed: Bed, name: str, rows: int, batches: list[int], *, history: History | None = None
) -> AsyncIterator[Track]:
    """A database of its own on the bed's server, with these batches to send in slices of `rows`."""
    database = _name(name)
    with psycopg.connect(bed.dsn, autocommit=True) as conn:
        conn.execute(f'CREATE DATABASE "{database}"'.encode())
    dsn = make_conninfo(bed.dsn, dbname=database)
    migrate(dsn)
    async with open_pool(dsn, min_size=1, max_size=4, application_name="bench-claims") as pool:
        await add_account(pool, credits=10_000_000, bms=10, bm_limit=1_000_000, messages_per_second=20_000)
        if history is not None:
            load_history(dsn, history)
        owner = await authenticate(pool, await add_key(pool))
        start = 0
        for n in batches:
            await _post(pool, owner, n, start)
            start += n
        async with pool.connection() as conn:
            await conn.execute("ANALYZE")
        bench = Bench(pool, LIFTED, FakeProvider())
        bench.spacing.rate_per_s = rows / LIFTED.slice_s
        yield Track(name, bench, [], [])
    with psycopg.connect(bed.dsn, autocommit=True) as conn:
        conn.execute(f'DROP DATABASE "{database}" WITH (FORCE)'.encode())


async def _post(pool: Pool, owner: Caller, n: int, start: int) -> None:
    await create_batch(pool, Settings(), owner, batch_request(n, start=start))


def _name(name: str) -> str:
    return "claims " + name
