"""Capacity during dispatch: holds first, then free room, never another batch's; full means waiting, with a reason."""

import asyncio
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from carteiro.domain.errors import CapacityExhausted
from carteiro.domain.outcomes import Accepted, Kind, Rejected
from carteiro.services.catalog import apply_catalog
from carteiro.services.dispatch.model import Nothing, Slice
from carteiro.storage import capacity
from carteiro.storage.pool import Pool, transact
from tests.support import factories
from tests.support.dispatching import LIFTED, Bench, FakeProvider, counts, meter
from tests.support.factories import add_account, add_batch, bm_id, catalog_text, sender_id, value
from tests.support.waiting import until

FAST = {"messages_per_second": 10_000}
TAKEN = Accepted("theirs")


def bench(pool: Pool) -> Bench:
    built = Bench(pool, LIFTED, FakeProvider())
    built.spacing.rate_per_s = 20_000.0
    return built


async def waits_for(pool: Pool) -> str | None:
    blocked_by: str | None = await value(pool, "SELECT max(blocked_by) FROM batch")
    return blocked_by


async def test_a_batch_uses_its_own_holds(pool: Pool) -> None:
    await add_account(pool, credits=100, bms=2, bm_limit=10, **FAST)
    await add_batch(pool, 20)
    assert await meter(pool, "bm", bm_id(1)) == (0, 10)
    await bench(pool).claim_all()
    assert await meter(pool, "bm", bm_id(1)) == await meter(pool, "bm", bm_id(2)) == (10, 0)
    assert await counts(pool) == {"pending_send": 20}


async def test_a_spilled_batch_never_takes_what_another_holds(pool: Pool) -> None:
    await add_account(pool, credits=100, bm_limit=20, max_inflight=5, **FAST)
    holder = await add_batch(pool, 15)
    spilled = await add_batch(pool, 15, start=50, on_capacity="spill")
    await bench(pool).work_off(TAKEN)
    assert await counts(pool, holder) == {"sent": 15}
    assert await counts(pool, spilled) == {"sent": 5, "pending": 10}
    assert await meter(pool, "bm", bm_id(1)) == (20, 0)


async def test_exactly_the_limit_goes_and_the_next_waits_with_a_reason(pool: Pool) -> None:
    await add_account(pool, credits=100, bms=2, sender_limit=5, **FAST)
    batch_id = await add_batch(pool, 11, on_capacity="spill")
    station = bench(pool)
    await station.claim_all()
    assert await counts(pool) == {"pending_send": 10, "pending": 1}
    assert await value(
        pool,
        "SELECT (blocked_by, next_attempt_at > clock_timestamp(), next_attempt_at <= clock_timestamp()"
        " + interval '60 s')::text FROM batch WHERE id = %s",
        batch_id,
    ) == ("(capacity,t,t)")


async def test_it_waits_until_the_oldest_bucket_leaves_the_window(pool: Pool) -> None:
    await add_account(pool, credits=100, bm_limit=5, **FAST)
    await add_batch(pool, 6, on_capacity="spill")
    station = Bench(pool, replace(LIFTED, window_s=20.0, bucket_s=0.2, call_timeout_s=0.3), FakeProvider())
    station.spacing.rate_per_s = 20_000.0
    await station.claim_all()
    oldest_at: datetime = await value(pool, "SELECT min(bucket_at) FROM capacity_bucket")
    assert await value(pool, "SELECT next_attempt_at FROM batch") == oldest_at + timedelta(seconds=20.2)


async def test_a_bucket_older_than_the_window_is_released_at_the_claim(pool: Pool) -> None:
    await add_account(pool, credits=100, bm_limit=5, **FAST)
    batch_id = await add_batch(pool, 8, on_capacity="spill")
    station = bench(pool)
    await station.claim_all()
    assert await waits_for(pool) == "capacity"
    await _age(pool, timedelta(hours=24, minutes=1, seconds=36))
    await _due_now(pool)
    await station.claim_all()
    assert await counts(pool, batch_id) == {"pending_send": 8}
    assert await meter(pool, "bm", bm_id(1)) == (3, 0)


async def test_a_bucket_inside_the_window_still_counts(pool: Pool) -> None:
    await add_account(pool, credits=100, bm_limit=5, **FAST)
    await add_batch(pool, 8, on_capacity="spill")
    station = bench(pool)
    await station.claim_all()
    await _age(pool, timedelta(hours=23, minutes=59))
    await _due_now(pool)
    assert await station.claim_all() == []
    assert await meter(pool, "bm", bm_id(1)) == (5, 0)


async def test_a_scheduled_batch_holds_when_it_begins(pool: Pool) -> None:
    await add_account(pool, credits=100, bm_limit=30, max_inflight=5, **FAST)
    await add_batch(pool, 20, scheduled_at=datetime.now(UTC) + timedelta(milliseconds=1))
    async with pool.connection() as conn:
        await conn.execute("UPDATE batch SET scheduled_at = clock_timestamp() - interval '1 s'")
    station = bench(pool)
    await station.claimed()
    assert await meter(pool, "bm", bm_id(1)) == (5, 15)


async def test_a_scheduled_batch_holds_what_there_is(pool: Pool) -> None:
    await add_account(pool, credits=100, bm_limit=12, max_inflight=5, **FAST)
    await add_batch(pool, 20, scheduled_at=factories.in_an_hour())
    async with pool.connection() as conn:
        await conn.execute("UPDATE batch SET scheduled_at = clock_timestamp() - interval '1 s'")
    await bench(pool).claimed()
    assert await meter(pool, "bm", bm_id(1)) == (5, 7)


async def test_holds_on_a_manager_without_senders_are_released_and_the_rows_go_elsewhere(pool: Pool) -> None:
    await add_account(pool, credits=100, bms=2, bm_limit=20, **FAST)
    await add_batch(pool, 20)
    assert await meter(pool, "bm", bm_id(1)) == (0, 10)
    async with pool.connection() as conn:
        await conn.execute("UPDATE sender SET active = false WHERE id = %s", (sender_id(1),))
    slices = await bench(pool).claim_all()
    assert Counter(due.outgoing.sender for piece in slices for due in piece.due) == {sender_id(2): 20}
    assert await meter(pool, "bm", bm_id(1)) == (0, 0)
    assert await meter(pool, "bm", bm_id(2)) == (20, 0)


async def test_holds_move_to_another_manager_while_the_batch_goes_on(pool: Pool) -> None:
    """Otherwise a batch that comes later could take the room that an accepted one was promised."""
    await add_account(pool, credits=100, bms=2, bm_limit=20, max_inflight=2, **FAST)
    first = await add_batch(pool, 20)
    async with pool.connection() as conn:
        await conn.execute("UPDATE sender SET active = false WHERE id = %s", (sender_id(1),))
    await bench(pool).claimed()
    assert await meter(pool, "bm", bm_id(1)) == (0, 0)
    assert await meter(pool, "bm", bm_id(2)) == (2, 18)
    assert await value(pool, "SELECT sum(held) FROM capacity_hold WHERE batch_id = %s", first) == 18


async def test_a_lowered_limit_binds_from_the_next_claim_on(pool: Pool) -> None:
    await add_account(pool, credits=100, bm_limit=20, max_inflight=5, **FAST)
    await add_batch(pool, 20)
    station = bench(pool)
    await station.record_all(await station.claimed(), TAKEN)
    async with pool.connection() as conn:
        await conn.execute("UPDATE business_manager SET daily_limit_override = 8")
    assert len((await station.claimed()).due) == 3
    assert isinstance(await station.claim(), Nothing)
    assert (await meter(pool, "bm", bm_id(1)))[0] == 8


async def test_a_refused_message_returns_its_capacity_to_the_batch_that_waits(pool: Pool) -> None:
    """It waits for a bucket to leave the window, and need not once room comes back before."""
    await add_account(pool, credits=100, bm_limit=5, **FAST)
    await add_batch(pool, 8, on_capacity="spill")
    station = bench(pool)
    (piece,) = await station.claim_all()
    assert await waits_for(pool) == "capacity"
    await station.record(piece, *[Rejected("EC_7002", Kind.CONTACT)] * 3, *[TAKEN] * 2)
    assert await meter(pool, "bm", bm_id(1)) == (2, 0)
    assert len((await station.claimed()).due) == 3


async def test_room_that_a_claim_releases_wakes_the_batch_that_waits_for_it(pool: Pool) -> None:
    """A batch lost rows without sending them; what it held for them is another's to use at once."""
    await add_account(pool, credits=100, bm_limit=20, max_inflight=5, **FAST)
    holder = await add_batch(pool, 20)
    spilled = await add_batch(pool, 5, start=50, on_capacity="spill")
    station = bench(pool)
    await station.record_all(await station.claimed(), TAKEN)
    assert isinstance(await station.claim(), Nothing)
    assert await value(pool, "SELECT blocked_by FROM batch WHERE id = %s", spilled) == "capacity"
    async with transact(pool) as conn:
        await conn.execute(
            "UPDATE message SET status = 'unsent', event = 'withdrawn' WHERE batch_id = %s AND seq > 10", (holder,)
        )
    await station.record_all(await station.claimed(), TAKEN)
    assert await meter(pool, "bm", bm_id(1)) == (10, 0)
    assert await value(pool, "SELECT next_attempt_at FROM batch WHERE id = %s", spilled) is None


async def test_a_charge_beyond_the_limit_is_an_error_and_not_an_overshoot(pool: Pool) -> None:
    await add_account(pool, credits=100, bm_limit=5, **FAST)
    batch_id = await add_batch(pool, 5)
    station = bench(pool)
    await station.claim_all()
    unit = capacity.Unit(bm_id(1), sender_id(1), datetime(2026, 11, 2, tzinfo=UTC))
    try:
        async with transact(pool) as conn:
            await capacity.charge(conn, batch_id, [unit], {}, {("bm", bm_id(1)): 5})
    except capacity.CapacityRaced:
        pass
    else:
        raise AssertionError("one above the limit was charged")
    assert await meter(pool, "bm", bm_id(1)) == (5, 0)


async def _age(pool: Pool, by: timedelta) -> None:
    """Move all that was charged into the past."""
    async with transact(pool) as conn:
        await conn.execute("UPDATE capacity_bucket SET bucket_at = bucket_at - %s", (by,))


async def _due_now(pool: Pool) -> None:
    async with pool.connection() as conn:
        await conn.execute("UPDATE batch SET next_attempt_at = clock_timestamp()")


@pytest.mark.parametrize("of", ["bm", "sender"])
async def test_a_limit_that_is_lowered_while_its_meter_is_waited_for_holds(pool: Pool, of: str) -> None:
    """Both a claim and a creation have read who may send by then."""
    await add_account(pool, credits=100, bm_limit=50, sender_limit=50, **FAST)
    await add_batch(pool, 10, on_capacity="spill")
    lowered = {
        "bm": "UPDATE business_manager SET daily_limit_override = 3",
        "sender": "UPDATE sender SET daily_limit = 3",
    }
    meter_id: capacity.MeterId = ("bm", bm_id(1)) if of == "bm" else ("sender", sender_id(1))
    async with transact(pool) as conn:
        await capacity.lock_meters(conn, {meter_id}, keep_s=86_460.0)
        claim = asyncio.create_task(bench(pool).claim())
        await until(lambda: waiting_for_a_lock(pool, 1), 10, "the claim waits for the meter")
        await conn.execute(lowered[of].encode())
    claimed = await claim
    assert isinstance(claimed, Slice)
    assert len(claimed.due) == 3

    async with transact(pool) as conn:
        await conn.execute("UPDATE business_manager SET daily_limit_override = 50")
        await conn.execute("UPDATE sender SET daily_limit = 50")
    async with transact(pool) as conn:
        await capacity.lock_meters(conn, {meter_id}, keep_s=86_460.0)
        creation = asyncio.create_task(add_batch(pool, 20, start=50))
        await until(lambda: waiting_for_a_lock(pool, 1), 10, "the creation waits for the meter")
        await conn.execute(lowered[of].encode())
    with pytest.raises(CapacityExhausted) as short:
        await creation
    assert short.value.extra == {"available": 0, "required": 20}


async def test_applying_a_catalog_waits_for_a_claim_under_way_on_what_it_limits(pool: Pool) -> None:
    await add_account(pool, credits=100, sender_limit=50, **FAST)
    text = catalog_text(sender_limit=3, **FAST)
    async with transact(pool) as conn:
        await capacity.lock_meters(conn, {("sender", sender_id(1))}, keep_s=86_460.0)
        applying = asyncio.create_task(apply_catalog(pool, text))
        await until(lambda: waiting_for_a_lock(pool, 1), 10, "the catalog waits for the meter")
        assert await value(pool, "SELECT daily_limit FROM sender") == 50
    await applying
    assert await value(pool, "SELECT daily_limit FROM sender") == 3


async def waiting_for_a_lock(pool: Pool, n: int) -> bool:
    waiting: int = await value(
        pool,
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()",
    )
    return waiting == n
