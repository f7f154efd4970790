"""Several messages in one request: paced, paused, judged and recorded row by row all the same."""

import asyncio
from collections.abc import Sequence
from uuid import UUID

import pytest

from carteiro.domain.outcomes import (
    Ambiguous,
    FactKind,
    Kind,
    NotSent,
    Outcome,
    Outgoing,
    RefusedTogether,
    Rejected,
    Throttled,
)
from carteiro.services.audit import violations
from carteiro.services.dispatch.model import Due
from carteiro.services.dispatch.reconcile import reconcile_unknown
from carteiro.services.dispatch.send import in_requests
from carteiro.settings import Settings
from carteiro.storage.capacity import Unit
from carteiro.storage.pool import Pool
from tests.support.dispatching import TAKEN_AT, FakeProvider, counts, meter, running_bench, tallied
from tests.support.factories import add_account, add_batch, bm_id, value
from tests.support.waiting import until

FAST = {"messages_per_second": 10_000, "messages_per_request": 100}


def row(slot_ms: float, together: int | None = None) -> Due:
    outgoing = Outgoing(UUID(int=1), 1, "s", "5511", "t", "pt_BR")
    return Due(outgoing, round(slot_ms * 1000), Unit("bm", "s", TAKEN_AT), 0, "s", together)


@pytest.mark.parametrize(
    ("rows", "sizes"),
    [
        ([], []),
        ([row(0), row(1), row(2)], [3]),
        ([row(0)] * 12, [5, 5, 2]),
        ([row(0), row(19), row(20), row(21), row(40)], [3, 2]),
        ([row(0, 2)] * 5, [2, 2, 1]),
        ([row(0), row(0), row(0, 2), row(0, 2), row(0)], [2, 2, 1]),
        ([row(0, 1), row(0), row(0)], [1, 2]),
        ([row(0, 50)] * 6, [5, 1]),
    ],
)
def test_what_leaves_together(rows: list[Due], sizes: list[int]) -> None:
    groups = list(in_requests(rows, 5, 20_000))
    assert [len(group) for group in groups] == sizes
    assert [due for group in groups for due in group] == rows


async def test_a_batch_leaves_in_few_requests(pool: Pool) -> None:
    await add_account(pool, credits=600, bms=3, **FAST)
    batch_id = await add_batch(pool, 600)
    async with running_bench(pool) as station:
        await station.pump()
        provider = station.provider
    assert provider.most_calls_for_one_message == 1
    assert sorted(seq for request in provider.requests for seq in request) == list(range(1, 601))
    assert len(provider.requests) < 60
    assert await counts(pool, batch_id) == await tallied(pool, batch_id) == {"sent": 600}
    assert await violations(pool) == {}


async def test_a_provider_that_takes_one_message_gets_one(pool: Pool) -> None:
    await add_account(pool, credits=30, **FAST)
    await add_batch(pool, 30)
    async with running_bench(pool, FakeProvider(messages_per_request_max=1)) as station:
        await station.pump()
    assert {len(request) for request in station.provider.requests} == {1}


async def test_a_message_that_spoils_its_request_is_found_by_halving(pool: Pool) -> None:
    """Each half goes in slots of its own; no attempt is counted, and only the one to blame fails."""
    await add_account(pool, credits=100, **FAST)
    batch_id = await add_batch(pool, 100)
    bad = {17, 64}

    def refuse(messages: Sequence[Outgoing]) -> Outcome | None:
        if not bad & {outgoing.seq for outgoing in messages}:
            return None
        return RefusedTogether("HTTP_400", len(messages)) if len(messages) > 1 else Rejected("HTTP_400", Kind.REQUEST)

    async with running_bench(pool, FakeProvider(answer_whole=refuse)) as station:
        await station.pump()
        provider = station.provider
    assert await counts(pool, batch_id) == await tallied(pool, batch_id) == {"sent": 98, "failed": 2}
    assert await value(pool, "SELECT array_agg(seq ORDER BY seq) FROM message WHERE status = 'failed'") == sorted(bad)
    assert await value(pool, "SELECT max(attempt) FROM message") == 0
    assert await value(pool, "SELECT failures_in_a_row FROM service_health") == 0
    assert provider.most_calls_for_one_message == 1
    assert len(provider.requests) < 50
    assert await meter(pool, "bm", bm_id(1)) == (98, 0)
    assert await value(pool, "SELECT count(*) FROM message_return") == 0
    assert await violations(pool) == {}


async def test_a_row_keeps_its_half_when_it_misses_its_slot(pool: Pool) -> None:
    await add_account(pool, credits=8, **FAST)
    await add_batch(pool, 8)
    async with running_bench(pool) as station:
        piece = await station.claimed()
        await station.record_all(piece, RefusedTogether("HTTP_400", 8))
        again = await station.claimed()
        assert {due.together for due in again.due} == {4}
        await station.record_all(again, None)
        await station.record(await station.claimed(), NotSent("X"), Throttled(0.0), RefusedTogether("HTTP_400", 4))
    assert await value(pool, "SELECT array_agg(together ORDER BY seq) FROM message_return") == [4, 4, 2]


@pytest.mark.parametrize(
    ("outcome", "failures", "status"),
    [
        (NotSent("CONNECT_FAILED"), 1, "pending"),
        (Ambiguous("TIMEOUT"), 1, "unknown"),
        (Throttled(60.0), 0, "pending"),
    ],
)
async def test_a_request_that_fails_counts_once(pool: Pool, outcome: Outcome, failures: int, status: str) -> None:
    await add_account(pool, credits=40, **FAST)
    await add_batch(pool, 40)
    going = asyncio.Event()
    provider = FakeProvider(answer_whole=lambda messages: outcome)
    async with running_bench(pool, provider) as station:
        pumping = asyncio.create_task(station.pump())
        await until(lambda: provider.requests, 5, "a request left")
        station.dispatcher.stopping.set()
        going.set()
        await pumping
        await station.dispatcher.drained()
    [first, *others] = provider.requests
    assert len(first) > 1
    assert await value(pool, "SELECT failures_in_a_row FROM service_health") == failures * (1 + len(others))
    assert (await counts(pool))[status] == 40 if status == "pending" else sum(map(len, provider.requests))


async def test_an_ambiguous_request_makes_only_its_own_rows_unknown(pool: Pool) -> None:
    await add_account(pool, credits=200, **FAST)
    batch_id = await add_batch(pool, 200)
    lost: list[int] = []

    def lose(messages: Sequence[Outgoing]) -> Outcome | None:
        if lost:
            return None
        lost.extend(outgoing.seq for outgoing in messages)
        for outgoing in messages[::2]:
            take_in(outgoing)
        return Ambiguous("CONNECTION_LOST")

    provider = FakeProvider(answer_whole=lose)

    def take_in(outgoing: Outgoing) -> None:
        """What the provider took although nobody heard of it."""
        provider.taken[outgoing.batch_id, outgoing.seq] = FactKind.SENT

    async with running_bench(pool, provider) as station:
        await station.pump()
        assert await counts(pool, batch_id) == {"sent": 200 - len(lost), "unknown": len(lost)}
        settings = Settings(reconcile_after_s=0.001, call_timeout_s=0.001)
        for _ in range(2):
            async with pool.connection() as conn:
                await conn.execute("UPDATE message_unknown SET look_at = clock_timestamp()")
            await reconcile_unknown(pool, settings, station.provider_for)
        await station.pump()
    assert await counts(pool, batch_id) == {"sent": 200}
    assert provider.most_calls_for_one_message == 1
    assert await violations(pool) == {}
