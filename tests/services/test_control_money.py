"""What becomes of messages, money and capacity when a batch is cancelled or expires."""

from typing import Any
from uuid import UUID

import pytest

from carteiro.domain.outcomes import Ambiguous
from carteiro.services import control
from carteiro.services.audit import violations
from carteiro.services.control import (
    cancel_batch,
    pause_batch,
    release_idle_holds,
)
from carteiro.services.dispatch.model import Nothing
from carteiro.services.dispatch.reconcile import reconcile_unknown
from carteiro.services.finalise import finalise_due
from carteiro.services.withdraw import withdraw_ended
from carteiro.storage import sweep
from carteiro.storage.pool import Pool
from tests.support.dispatching import counts, meter
from tests.support.factories import add_account, add_batch, bm_id, in_an_hour, value
from tests.support.steering import (
    FAST,
    SETTINGS,
    TAKEN,
    add_owner,
    bench,
    change,
    column,
    events,
    money,
    post,
    settle,
    status,
    told,
)

# Cancelled


async def test_cancelled_before_it_began_all_comes_back_at_once(pool: Pool) -> None:
    owner = await add_owner(pool)
    batch_id = await post(pool, owner, 10)
    assert await meter(pool, "bm", bm_id(1)) == (0, 10)
    halted = await cancel_batch(pool, SETTINGS, owner, batch_id, reason="ordered twice")
    assert (halted.already_on_their_way, halted.seen.counts["unsent"]) == (0, 10)
    assert halted.seen.report.reason == "ordered twice"
    assert await meter(pool, "bm", bm_id(1)) == (0, 0)
    assert await money(pool, batch_id) == "10 0 0 9990"
    assert await settle(pool, SETTINGS) == [batch_id]
    assert await money(pool, batch_id) == "10 0 10 10000"
    assert await value(pool, "SELECT array_agg(DISTINCT code) FROM message") == ["BATCH_CANCELLED"]
    assert await violations(pool) == {}


@pytest.mark.parametrize("rule", ["sent_only", "full"])
@pytest.mark.parametrize("paused", [False, True])
async def test_cancelled_under_way_each_outcome_has_its_money(pool: Pool, rule: str, paused: bool) -> None:
    """Of ten: two sent, two unknown, one in flight and given back, five never claimed. Unsent is refunded in any case,
    an unknown one once it is settled as not sent."""
    owner = await add_owner(pool, charge_rule=rule, max_inflight=5, **FAST)
    batch_id = await post(pool, owner, 10)
    station = bench(pool)
    piece = await station.claimed()
    assert len(piece.due) == 5
    await told(station, piece, TAKEN, TAKEN, Ambiguous("TIMEOUT"), Ambiguous("TIMEOUT"))
    if paused:
        await pause_batch(pool, SETTINGS, owner, batch_id)
    halted = await cancel_batch(pool, SETTINGS, owner, batch_id)
    assert halted.already_on_their_way == 3
    assert halted.seen.counts == {
        "pending": 0, "pending_send": 1, "unknown": 2, "sent": 2, "delivered": 0, "seen": 0, "failed": 0, "unsent": 5
    }  # fmt: skip
    assert await money(pool, batch_id) == "10 0 0 9990"
    assert await meter(pool, "bm", bm_id(1)) == (5, 0)

    await told(station, piece, None)
    assert await counts(pool) == {"sent": 2, "unknown": 2, "unsent": 6}
    assert await finalise_due(pool, SETTINGS) == []

    for _ in range(2):
        await change(pool, "UPDATE message_unknown SET look_at = clock_timestamp()")
        await reconcile_unknown(pool, SETTINGS, station.provider_for)
    assert await counts(pool) == {"sent": 2, "unsent": 8}
    assert await meter(pool, "bm", bm_id(1)) == (2, 0)
    assert await settle(pool, SETTINGS) == [batch_id]
    assert await money(pool, batch_id) == "10 2 8 9998"
    assert await status(pool, batch_id) == "cancelled"
    assert await violations(pool) == {}


async def test_cancelling_wakes_the_batches_that_wait_for_its_capacity(pool: Pool) -> None:
    owner = await add_owner(pool, bm_limit=10, **FAST)
    holder = await post(pool, owner, 10)
    await change(pool, "UPDATE batch SET next_attempt_at = clock_timestamp() + interval '1 hour'")
    waiting = await post(pool, owner, 5, start=50, on_capacity="spill")
    assert isinstance(await bench(pool).claim(), Nothing)
    assert await column(pool, waiting, "blocked_by") == "capacity"
    await cancel_batch(pool, SETTINGS, owner, holder)
    assert await column(pool, waiting, "next_attempt_at") is None
    assert (await bench(pool).claimed()).batch_id == waiting


async def test_a_hold_that_moves_meanwhile_is_released_all_the_same(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim starts the batch, and so reserves for it, between the look at its holds and the lock."""
    owner = await add_owner(pool)
    batch_id = await post(pool, owner, 5, scheduled_at=in_an_hour())
    await change(pool, "UPDATE batch SET scheduled_at = NULL")
    look, begun = control._lock_holds, []

    async def look_too_early(*arguments: Any) -> set[str]:
        held_on = await look(*arguments)
        if not begun:
            begun.append(await bench(pool).claimed())
        return held_on

    monkeypatch.setattr(control, "_lock_holds", look_too_early)
    await change(pool, "UPDATE service SET max_inflight = 2")
    halted = await cancel_batch(pool, SETTINGS, owner, batch_id)
    assert (halted.already_on_their_way, halted.seen.counts["unsent"]) == (2, 3)
    assert await meter(pool, "bm", bm_id(1)) == (2, 0)


async def test_a_large_batch_is_withdrawn_by_the_sweep(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("carteiro.services.withdraw.ROWS_A_TRANSACTION", 4)
    monkeypatch.setattr("carteiro.services.withdraw.ROWS_A_SWEEP", 8)
    owner = await add_owner(pool)
    batch_id = await post(pool, owner, 18)
    halted = await cancel_batch(pool, SETTINGS, owner, batch_id)
    assert (halted.seen.counts["pending"], halted.seen.counts["unsent"]) == (14, 4)
    assert [await withdraw_ended(pool) for _ in range(3)] == [8, 6, 0]
    assert await settle(pool, SETTINGS) == [batch_id]
    assert await violations(pool) == {}


# Expired


async def expire(pool: Pool, batch_id: UUID) -> None:
    await change(pool, "UPDATE batch SET expires_at = clock_timestamp() WHERE id = %s", batch_id)


@pytest.mark.parametrize("moderated", [False, True])
async def test_a_batch_that_expires_before_it_began_is_cancelled_and_refunded(pool: Pool, moderated: bool) -> None:
    owner = await add_owner(pool, test_mode=moderated)
    batch_id = await post(pool, owner, 4, expires_at=in_an_hour())
    assert await withdraw_ended(pool) == 0
    await expire(pool, batch_id)
    assert isinstance(await bench(pool).claim(), Nothing)
    assert await withdraw_ended(pool) == 4
    assert await release_idle_holds(pool, SETTINGS) == (0 if moderated else 1)
    assert await meter(pool, "bm", bm_id(1)) == (0, 0)
    assert await settle(pool, SETTINGS) == [batch_id]
    assert await status(pool, batch_id) == "cancelled"
    assert (await events(pool, batch_id))[-1] == "expired"
    assert await money(pool, batch_id) == "4 0 4 10000"
    assert await value(pool, "SELECT array_agg(DISTINCT code) FROM message") == ["BATCH_EXPIRED"]
    assert await violations(pool) == {}


@pytest.mark.parametrize("paused", [False, True])
async def test_a_batch_that_expires_under_way_is_completed_with_what_left(pool: Pool, paused: bool) -> None:
    owner = await add_owner(pool, max_inflight=3, **FAST)
    batch_id = await post(pool, owner, 10)
    station = bench(pool)
    piece = await station.claimed()
    await told(station, piece, TAKEN, TAKEN)
    if paused:
        await pause_batch(pool, SETTINGS, owner, batch_id)
    await expire(pool, batch_id)
    async with pool.connection() as conn:
        assert await sweep.services_to_pump(conn) == set()
    assert isinstance(await station.claim(), Nothing)
    assert await withdraw_ended(pool) == 7
    assert await release_idle_holds(pool, SETTINGS) == 1
    assert await meter(pool, "bm", bm_id(1)) == (3, 0)
    assert await finalise_due(pool, SETTINGS) == []

    await told(station, piece, None)
    assert await counts(pool) == {"sent": 2, "unsent": 7, "pending": 1}
    assert await withdraw_ended(pool) == 1
    assert await release_idle_holds(pool, SETTINGS) == 1
    assert await meter(pool, "bm", bm_id(1)) == (2, 0)
    assert await settle(pool, SETTINGS) == [batch_id]
    assert await status(pool, batch_id) == "completed"
    assert await money(pool, batch_id) == "10 2 8 9998"
    assert await violations(pool) == {}


async def test_a_live_batch_is_never_withdrawn(pool: Pool) -> None:
    await add_account(pool, credits=10)
    batch_id = await add_batch(pool, 2, state="processing")
    async with pool.connection() as conn:
        assert await sweep.withdraw_rows(conn, batch_id, after_seq=None, n=10) == (0, None)
    assert await counts(pool) == {"pending": 2}
