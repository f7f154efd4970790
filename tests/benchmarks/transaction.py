"""What somebody's forgotten transaction costs: the pace before it, and after ten minutes of it."""

import asyncio
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import median
from uuid import UUID

import psycopg

from carteiro.domain.outcomes import Accepted
from carteiro.services.dispatch.model import Slice
from carteiro.storage.pool import Pool, open_pool
from tests.benchmarks.bed import LATENCY_MS, Bed, contacts, wait_until
from tests.support.dispatching import LIFTED, Bench, FakeProvider

SLICES = 5_000
"""What two workers claim in ten minutes, in slices of a quarter of a second."""
ROWS = 6
FLUSHES = 3
"""In which the outcomes of a slice are recorded: as many as in its quarter of a second."""
TOLD = 200
"""Slices at the beginning and at the end of them that are compared."""
WORKERS = 2
SECONDS = 8.0
CONTACTS = 100_000
"""Of each batch: more than are sent while a pace is measured, or claimed in between."""
CLIMB = 10_000

TAKEN = Accepted("theirs")


@dataclass(frozen=True)
class Cost:
    """Medians of one slice."""

    claim_ms: float
    record_ms: float
    """In FLUSHES."""


@dataclass(frozen=True)
class OldTransaction:
    slices: int
    before: Cost
    after: Cost
    rate_before: float
    """Messages a second that the workers send, one a request, as fast as they can: beside no transaction."""
    rate_after: float
    """Beside one since which SLICES were claimed."""
    rate_over: float
    """Once it is over, and what it kept was removed."""


def measure_old_transaction(bed: Bed) -> OldTransaction:
    bed.simulator("POST", "reset")
    bed.simulator("POST", "settings", {"latency_ms": LATENCY_MS})
    bed.execute("UPDATE service SET messages_per_request = 1")
    ids: list[UUID] = []
    rate_before = _rate(bed, ids)
    with psycopg.connect(bed.dsn) as reader:
        reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        reader.execute("SELECT count(*) FROM batch")
        ids.append(_post(bed))
        before, after = asyncio.run(_claim_on(bed))
        rate_after = _rate(bed, ids)
    bed.execute("VACUUM (ANALYZE)")
    rate_over = _rate(bed, ids)
    for batch_id in ids:
        bed.cancel(batch_id)
    return OldTransaction(SLICES, before, after, rate_before, rate_after, rate_over)


def _rate(bed: Bed, ids: list[UUID]) -> float:
    """Of the workers, once they have climbed to their speed, on the batches that are there and another one."""
    ids.append(_post(bed))
    already = bed.sent(ids)
    bed.start_workers(WORKERS)
    wait_until(lambda: bed.sent(ids) > already + CLIMB, "the workers are at their speed", 60)
    rate = bed.sent_per_second(ids, SECONDS)
    bed.stop_workers()
    if bed.sent(ids) >= CONTACTS * len(ids):
        raise RuntimeError("the batches were over before their pace was measured")
    return rate


def _post(bed: Bed) -> UUID:
    return bed.post_batch(contacts(CONTACTS, first=bed.take(CONTACTS)))[0]


async def _claim_on(bed: Bed) -> tuple[Cost, Cost]:
    """Ten minutes of claims by this process, as fast as they can be made: no call is made, and slices are short. What
    each leaves behind is what matters, and that does not depend on how many rows it has.
    """
    claims_s: list[float] = []
    records_s: list[float] = []
    async with open_pool(bed.dsn, min_size=1, max_size=4, application_name="bench-transaction") as pool:
        bench = Bench(pool, LIFTED, FakeProvider())
        bench.spacing.rate_per_s = ROWS / LIFTED.slice_s
        for _ in range(SLICES):
            claim_s, record_s = await _step(pool, bench)
            claims_s.append(claim_s)
            records_s.append(record_s)
    first, last = (
        Cost(median(claims_s[part]) * 1000, median(records_s[part]) * 1000)
        for part in (slice(0, TOLD), slice(-TOLD, None))
    )
    return first, last


async def _step(pool: Pool, bench: Bench) -> tuple[float, float]:
    while True:
        began_s = time.perf_counter()
        piece = await bench.claim("bench")
        claimed_s = time.perf_counter()
        if isinstance(piece, Slice):
            break
        if piece.wait_s is None:
            raise RuntimeError("there is nothing left to claim")
        await asyncio.sleep(0.01)  # all slots of this moment are granted
    each = -(-len(piece.due) // FLUSHES)
    due = piece.due
    for start in range(0, len(due), each):
        piece.due = due[start : start + each]
        await bench.record(piece, *[TAKEN] * len(piece.due), at=datetime.now(UTC))
    return claimed_s - began_s, time.perf_counter() - claimed_s
