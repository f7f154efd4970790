"""Pause, resume, cancel, moderation and schedules: what the answers promise holds, whatever happens meanwhile."""

import asyncio
import json
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest

from carteiro.domain.errors import IllegalTransition, InvalidRequest, NotFound
from carteiro.domain.lifecycle import BatchState, Machine, target_of
from carteiro.domain.outcomes import Accepted, Ambiguous, Outcome
from carteiro.services import control
from carteiro.services.api_keys import Caller
from carteiro.services.audit import violations
from carteiro.services.control import (
    approve_batch,
    cancel_batch,
    pause_batch,
    reject_batch,
    release_idle_holds,
    reschedule_batch,
    resume_batch,
)
from carteiro.services.dispatch.model import Nothing, Slice
from carteiro.services.dispatch.reconcile import reconcile_unknown
from carteiro.services.finalise import finalise_due
from carteiro.services.withdraw import withdraw_ended
from carteiro.settings import Settings
from carteiro.storage import sweep
from carteiro.storage.pool import Pool
from carteiro.worker.signals import hear_halts
from tests.support.dispatching import Bench, FakeProvider, counts, meter
from tests.support.factories import add_account, add_batch, add_key, batch_body, bm_id, caller, in_an_hour, value
from tests.support.processes import Processes, free_port
from tests.support.steering import add_owner, post, running_fleet, settle
from tests.support.waiting import until

SETTINGS = replace(Settings(), lateness_s=0.05)
PATIENT = replace(SETTINGS, lateness_s=2.0)
"""No slot is missed on a busy machine, and an answer that comes sooner came by the signal."""
FAST = {"messages_per_second": 10_000}
TAKEN = Accepted("theirs")


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


# No call starts after the answer


@pytest.mark.parametrize("seed", [1])
async def test_no_call_starts_after_the_answer_to_a_pause(pool: Pool, postgres_dsn: str, seed: int) -> None:
    """Two dispatchers, pauses at random moments. The answer comes by the signal, long before the last slot is past."""
    dice = random.Random(seed)
    owner = await add_owner(pool, messages_per_second=1_000)
    batch_id = await post(pool, owner, 4_000)
    provider = FakeProvider(latency_s=0.03)
    async with running_fleet(pool, postgres_dsn, provider, PATIENT) as fleet:
        for _ in range(25):
            wanted = len(provider.calls) + dice.randint(1, 40)
            await until(lambda wanted=wanted: len(provider.calls) >= wanted, 30, "some calls")
            asked_s = time.monotonic()
            halted = await pause_batch(pool, PATIENT, owner, batch_id)
            answered_s = time.monotonic()
            on_its_way = provider.in_flight
            assert answered_s - asked_s < PATIENT.lateness_s
            assert halted.seen.report.status == "paused"
            assert halted.already_on_their_way >= on_its_way
            assert sum(halted.seen.counts.values()) == 4_000
            await fleet.went_round()
            assert [call for call in provider.calls if call.at_s > answered_s] == []
            assert await counts(pool) == {"sent": len(provider.calls), "pending": 4_000 - len(provider.calls)}
            await resume_batch(pool, owner, batch_id)
    assert provider.most_calls_for_one_message == 1
    assert await events(pool, batch_id) == ["created", "opened", "started", *["paused", "resumed"] * 25]
    assert await violations(pool) == {}


async def test_the_answer_comes_when_the_last_slot_is_past_where_no_worker_hears(pool: Pool, postgres_dsn: str) -> None:
    """Calls that take longer than the slots: their claims stay open, and say nothing about what may still start."""
    owner = await add_owner(pool, messages_per_second=100)
    batch_id = await post(pool, owner, 1_000)
    provider = FakeProvider(latency_s=1.5)
    async with running_fleet(pool, postgres_dsn, provider, SETTINGS, hears=False) as fleet:
        for halt in (pause_batch, pause_batch, cancel_batch):
            wanted = len(provider.calls) + 10
            await until(lambda wanted=wanted: len(provider.calls) >= wanted, 30, "some calls")
            halted = await halt(pool, SETTINGS, owner, batch_id)
            answered_s = time.monotonic()
            assert halted.already_on_their_way >= provider.in_flight > 0
            await fleet.went_round()
            assert [call for call in provider.calls if call.at_s > answered_s] == []
            if halt is pause_batch:
                await resume_batch(pool, owner, batch_id)
    assert await violations(pool) == {}


async def test_a_dead_workers_claim_delays_the_answer_only_until_its_last_slot(pool: Pool) -> None:
    owner = await add_owner(pool)
    batch_id = await post(pool, owner, 3)
    await bench(pool).claimed()
    asked_s = time.monotonic()
    halted = await pause_batch(pool, SETTINGS, owner, batch_id)
    assert time.monotonic() - asked_s < SETTINGS.slice_s + SETTINGS.lateness_s + control.FIRST_BYTE_S + 1
    assert halted.already_on_their_way == 3
    assert await value(
        pool, "SELECT clock_timestamp() > max(last_slot_at) + make_interval(secs => %s) FROM claim", SETTINGS.lateness_s
    )


@pytest.mark.parametrize("seed", [2])
async def test_no_call_starts_after_the_answer_to_a_cancellation(pool: Pool, postgres_dsn: str, seed: int) -> None:
    dice = random.Random(seed)
    owner = await add_owner(pool, messages_per_second=1_000)
    provider = FakeProvider(latency_s=0.03)
    cancelled = []
    async with running_fleet(pool, postgres_dsn, provider, PATIENT) as fleet:
        for start in range(0, 2_400, 200):
            batch_id = await post(pool, owner, 200, start=start)
            wanted = len(provider.calls) + dice.randint(1, 40)
            await until(lambda wanted=wanted: len(provider.calls) >= wanted, 30, "some calls")
            asked_s = time.monotonic()
            halted = await cancel_batch(pool, PATIENT, owner, batch_id)
            answered_s = time.monotonic()
            assert answered_s - asked_s < PATIENT.lateness_s
            assert halted.seen.report.status == "cancelled"
            assert halted.already_on_their_way >= provider.in_flight
            assert halted.seen.counts["pending"] == 0
            await fleet.went_round()
            assert [call for call in provider.calls if call.at_s > answered_s] == []
            found = await counts(pool, batch_id)
            assert set(found) <= {"sent", "unsent"}
            assert sum(found.values()) == 200
            assert await meter(pool, "bm", bm_id(1)) == (len(provider.calls), 0)
            cancelled.append(batch_id)
    assert sorted(await settle(pool, PATIENT)) == sorted(cancelled)
    assert await value(pool, "SELECT sum(charged)::int FROM batch") == len(provider.calls)
    assert await value(pool, "SELECT balance FROM account WHERE id = 'acme'") == 10_000 - len(provider.calls)
    assert provider.most_calls_for_one_message == 1
    assert await violations(pool) == {}


async def test_a_halt_does_not_outlive_a_resumption(pool: Pool, postgres_dsn: str) -> None:
    """Many quick pauses and resumptions: everything is sent in the end, once."""
    owner = await add_owner(pool, messages_per_second=1_000)
    batch_id = await post(pool, owner, 150)
    provider = FakeProvider(latency_s=0.02)
    async with running_fleet(pool, postgres_dsn, provider, PATIENT):
        await until(lambda: provider.calls, 30, "a call")
        for _ in range(15):
            if (await status(pool, batch_id)) == "processing":
                await asyncio.gather(
                    pause_batch(pool, PATIENT, owner, batch_id), pause_batch(pool, PATIENT, owner, batch_id)
                )
                await resume_batch(pool, owner, batch_id)
        await until(lambda: len(provider.calls) == 150, 30, "everything is sent")
    assert await counts(pool) == {"sent": 150}
    assert provider.most_calls_for_one_message == 1
    assert await violations(pool) == {}


async def test_a_pause_while_a_claim_commits_is_seen_by_one_of_them(pool: Pool) -> None:
    """Whichever comes first: either the claim was made before, or it finds the batch paused."""
    owner = await add_owner(pool, **FAST)
    batch_id = await post(pool, owner, 100)
    await bench(pool).claimed()
    for _ in range(10):
        claimed, halted = await asyncio.gather(bench(pool).claim(), pause_batch(pool, SETTINGS, owner, batch_id))
        if not isinstance(claimed, Nothing):
            assert claimed.claim_id in await value(pool, "SELECT array_agg(id) FROM claim")
            assert halted.already_on_their_way >= len(claimed.due)
        assert isinstance(await bench(pool).claim(), Nothing)
        await resume_batch(pool, owner, batch_id)
    assert (await violations(pool)).get("violation_control") is None


async def test_workers_hear_again_after_their_connection_was_cut(pool: Pool, postgres_dsn: str) -> None:
    owner = await add_owner(pool)
    batch_id = await post(pool, owner, 3_000)
    provider = FakeProvider(latency_s=0.03)
    async with running_fleet(pool, postgres_dsn, provider, PATIENT, size=1) as fleet:
        cut = await value(
            pool,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND starts_with(application_name, 'carteiro-signals')",
        )
        assert cut
        await until(fleet.listens, 10, "the dispatcher listens again")
        await until(lambda: provider.calls, 30, "a call")
        asked_s = time.monotonic()
        await pause_batch(pool, PATIENT, owner, batch_id)
        assert time.monotonic() - asked_s < PATIENT.lateness_s


async def test_every_worker_is_told_once(pool: Pool, postgres_dsn: str) -> None:
    """Of each pause and cancellation that was made, and of no attempt."""
    owner = await add_owner(pool)
    first, second = await post(pool, owner, 1), await post(pool, owner, 1, start=1)
    told: list[UUID] = []
    async with running_fleet(pool, postgres_dsn, FakeProvider(), SETTINGS, size=0) as fleet:
        for name in ("w1", "w2"):
            fleet.parts.append(asyncio.create_task(hear_halts(postgres_dsn, name, told.append)))
        await until(lambda: fleet.listens(2), 10, "both listen")
        with pytest.raises(IllegalTransition):
            await pause_batch(pool, SETTINGS, owner, first)
        await change(pool, "UPDATE batch SET status = 'processing', event = 'started'")
        for _ in range(2):
            await pause_batch(pool, SETTINGS, owner, first)
        await cancel_batch(pool, SETTINGS, owner, second)
        await until(lambda: len(told) >= 4, 10, "both were told")
    assert sorted(told) == sorted([first, first, second, second])


# Money


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

    at_once = replace(SETTINGS, reconcile_after_s=1e-6)
    await change(pool, "UPDATE message_unknown SET look_at = clock_timestamp()")
    for _ in range(2):
        await reconcile_unknown(pool, at_once, station.provider_for)
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


# Which moves are legal

Action = Callable[[Pool, Caller, UUID], Awaitable[object]]
ACTIONS: dict[str, Action] = {
    "approve": approve_batch,
    "cancel": lambda pool, owner, id: cancel_batch(pool, SETTINGS, owner, id),
    "pause": lambda pool, owner, id: pause_batch(pool, SETTINGS, owner, id),
    "reject": lambda pool, owner, id: reject_batch(pool, SETTINGS, owner, id, reason="no"),
    "reschedule": lambda pool, owner, id: reschedule_batch(pool, SETTINGS, owner, id, scheduled_at=in_an_hour()),
    "resume": resume_batch,
}
STATES = [state for state in BatchState if state is not BatchState.DRAFT]


async def in_state(pool: Pool, state: BatchState) -> UUID:
    await add_account(pool, credits=10, test_mode=state is BatchState.PENDING_MODERATION)
    return await add_batch(pool, 2, state="pending" if state is BatchState.PENDING_MODERATION else state)


@pytest.mark.parametrize("state", STATES)
async def test_every_action_in_every_state(pool: Pool, state: BatchState) -> None:
    """Moves where the lifecycle has an edge, is harmless where it leads to the present state, and else is refused."""
    batch_id = await in_state(pool, state)
    refused = []
    for action, run in ACTIONS.items():
        event = control.EVENTS.get(action, "rescheduled")
        target = target_of(Machine.BATCH, event, state)
        repeat = state in {target_of(Machine.BATCH, event, source) for source in STATES}
        if (
            target is None
            and not repeat
            and not (action == "reschedule" and state in ("pending", "pending_moderation"))
        ):
            with pytest.raises(IllegalTransition) as refusal:
                await run(pool, caller(), batch_id)
            assert refusal.value.extra["state"] == state
            assert action not in refusal.value.extra["allowed"]
            assert set(refusal.value.extra["allowed"]) == set(control.allowed_actions(state))
            refused.append(action)
        elif target is None:
            await run(pool, caller(), batch_id)
        assert await status(pool, batch_id) == state
    assert set(control.allowed_actions(state)).isdisjoint(refused)
    for action in control.allowed_actions(state):
        fresh = await add_batch(pool, 1, state=_made_by(state), start=100 + len(action))
        await ACTIONS[action](pool, caller(), fresh)
        expected = target_of(Machine.BATCH, control.EVENTS[action], state) if action in control.EVENTS else state
        assert await status(pool, fresh) == expected


def _made_by(state: BatchState) -> str:
    return "pending" if state is BatchState.PENDING_MODERATION else state


@pytest.mark.parametrize(
    ("action", "state", "event"),
    [
        ("pause", BatchState.PROCESSING, "paused"),
        ("resume", BatchState.PAUSED, "resumed"),
        ("cancel", BatchState.PROCESSING, "cancelled"),
        ("approve", BatchState.PENDING_MODERATION, "approved"),
        ("reject", BatchState.PENDING_MODERATION, "rejected"),
    ],
)
async def test_many_clicks_at_once_are_one(pool: Pool, action: str, state: BatchState, event: str) -> None:
    batch_id = await in_state(pool, state)
    await asyncio.gather(*(ACTIONS[action](pool, caller(), batch_id) for _ in range(6)))
    assert (await events(pool, batch_id)).count(event) == 1
    assert await status(pool, batch_id) == target_of(Machine.BATCH, event, state)


async def test_who_did_it_and_why_is_kept(pool: Pool) -> None:
    owner = await add_owner(pool)
    batch_id = await post(pool, owner, 1)
    await cancel_batch(pool, SETTINGS, owner, batch_id, reason="wrong list")
    last = "SELECT (event, actor, reason)::text FROM batch_event WHERE batch_id = %s ORDER BY id DESC LIMIT 1"
    assert await value(pool, last, batch_id) == f'(cancelled,{owner.actor},"wrong list")'


@pytest.mark.parametrize("action", ACTIONS)
async def test_another_accounts_batch_is_not_there(pool: Pool, action: str) -> None:
    await add_account(pool, credits=10)
    batch_id = await add_batch(pool, 1)
    for stranger, id in ((caller("rival"), batch_id), (caller(), uuid4())):
        with pytest.raises(NotFound):
            await ACTIONS[action](pool, stranger, id)
    assert await status(pool, batch_id) == "pending"


async def age_pauses(pool: Pool, by: str) -> None:
    await change(pool, "ALTER TABLE batch_event DISABLE TRIGGER append_only")
    await change(pool, "UPDATE batch_event SET at = at - %s::interval WHERE event = 'paused'", by)


# Resuming


async def test_resuming_sends_on_at_once_whatever_stood_in_the_way(pool: Pool) -> None:
    owner = await add_owner(pool, max_inflight=2, **FAST)
    batch_id = await post(pool, owner, 4)
    station = bench(pool)
    await station.record_all(await station.claimed(), TAKEN)
    await change(
        pool, "UPDATE batch SET blocked_by = 'capacity', next_attempt_at = clock_timestamp() + interval '1 hour'"
    )
    halted = await pause_batch(pool, SETTINGS, owner, batch_id)
    assert (halted.seen.blocked_by, halted.already_on_their_way) == (None, 0)
    assert isinstance(await station.claim(), Nothing)
    await change(pool, "DELETE FROM procrastinate_jobs")
    seen = await resume_batch(pool, owner, batch_id, reason="checked")
    assert (seen.report.status, seen.blocked_by, seen.next_attempt_at) == ("processing", None, None)
    assert await value(pool, "SELECT count(*) FROM procrastinate_jobs WHERE task_name = 'pump'") == 1
    assert len((await station.claimed()).due) == 2


async def test_a_paused_batch_keeps_its_capacity_for_a_window_and_no_longer(pool: Pool) -> None:
    owner = await add_owner(pool, bm_limit=10, max_inflight=2, **FAST)
    batch_id = await post(pool, owner, 10)
    station = bench(pool)
    await station.record_all(await station.claimed(), TAKEN)
    waiting = await post(pool, owner, 5, start=50, on_capacity="spill")
    await pause_batch(pool, SETTINGS, owner, batch_id)
    assert await release_idle_holds(pool, SETTINGS) == 0
    assert isinstance(await station.claim(), Nothing)
    assert await meter(pool, "bm", bm_id(1)) == (2, 8)

    await age_pauses(pool, "23 hours 59 minutes")
    assert await release_idle_holds(pool, SETTINGS) == 0
    await age_pauses(pool, "1 minute")
    assert await release_idle_holds(pool, SETTINGS) == 1
    assert await meter(pool, "bm", bm_id(1)) == (2, 0)
    assert (await station.claimed()).batch_id == waiting


async def test_a_resumed_batch_may_be_paused_again_for_a_whole_window(pool: Pool) -> None:
    owner = await add_owner(pool)
    batch_id = await post(pool, owner, 10)
    await change(pool, "UPDATE batch SET status = 'processing', event = 'started'")
    await pause_batch(pool, SETTINGS, owner, batch_id)
    await age_pauses(pool, "25 hours")
    await resume_batch(pool, owner, batch_id)
    assert await release_idle_holds(pool, SETTINGS) == 0
    await pause_batch(pool, SETTINGS, owner, batch_id)
    assert await release_idle_holds(pool, SETTINGS) == 0
    assert await meter(pool, "bm", bm_id(1)) == (0, 10)


# Moderation


async def test_an_approved_batch_is_sent(pool: Pool) -> None:
    owner = await add_owner(pool, test_mode=True)
    batch_id = await post(pool, owner, 3)
    assert await status(pool, batch_id) == "pending_moderation"
    assert isinstance(await bench(pool).claim(), Nothing)
    assert await meter(pool, "bm", bm_id(1)) == (0, 0)
    await approve_batch(pool, owner, batch_id, reason="read it")
    assert await value(pool, "SELECT count(*) FROM procrastinate_jobs WHERE task_name = 'pump'") == 1
    station = bench(pool)
    await told(station, await station.claimed(), TAKEN, TAKEN, TAKEN)
    assert (await approve_batch(pool, owner, batch_id)).report.status == "processing", "a late second click"
    assert await settle(pool, SETTINGS) == [batch_id]
    assert await events(pool, batch_id) == ["created", "moderated", "approved", "started", "completed"]
    assert await violations(pool) == {}


async def test_a_batch_that_was_never_moderated_is_not_approved_by_running(pool: Pool) -> None:
    await add_account(pool, credits=1)
    batch_id = await add_batch(pool, 1, state="processing")
    with pytest.raises(IllegalTransition):
        await approve_batch(pool, caller(), batch_id)


async def test_a_rejected_batch_is_refunded(pool: Pool) -> None:
    owner = await add_owner(pool, test_mode=True)
    batch_id = await post(pool, owner, 3)
    seen = await reject_batch(pool, SETTINGS, owner, batch_id, reason="promises a discount")
    assert (seen.report.status, seen.report.reason, seen.counts["unsent"]) == ("cancelled", "promises a discount", 3)
    assert await settle(pool, SETTINGS) == [batch_id]
    assert await money(pool, batch_id) == "3 0 3 10000"
    assert await violations(pool) == {}


async def test_an_approved_batch_waits_for_its_time(pool: Pool) -> None:
    owner = await add_owner(pool, test_mode=True)
    batch_id = await post(pool, owner, 3, scheduled_at=in_an_hour())
    seen = await approve_batch(pool, owner, batch_id)
    assert (seen.report.status, seen.blocked_by) == ("pending", "schedule")
    assert isinstance(await bench(pool).claim(), Nothing)


# Schedules


async def test_a_batch_put_off_gives_up_its_capacity_and_takes_it_again_when_it_begins(pool: Pool) -> None:
    owner = await add_owner(pool, bm_limit=10)
    batch_id = await post(pool, owner, 10)
    waiting = await post(pool, owner, 5, start=50, on_capacity="spill", scheduled_at=None)
    await change(pool, "UPDATE batch SET turn_at = clock_timestamp() WHERE id = %s", batch_id)
    assert isinstance(await bench(pool).claim(), Nothing)

    at = in_an_hour()
    seen = await reschedule_batch(pool, SETTINGS, owner, batch_id, scheduled_at=at)
    assert (seen.report.status, seen.report.scheduled_at, seen.blocked_by) == ("pending", at, "schedule")
    assert await meter(pool, "bm", bm_id(1)) == (0, 0)
    assert await column(pool, waiting, "next_attempt_at") is None
    assert (await bench(pool).claimed()).batch_id == waiting

    seen = await reschedule_batch(pool, SETTINGS, owner, batch_id, scheduled_at=None)
    assert (seen.report.scheduled_at, seen.blocked_by) == (None, None)
    claimed = await bench(pool).claimed()
    assert (claimed.batch_id, len(claimed.due)) == (batch_id, 5)
    reasons = await value(
        pool,
        "SELECT array_agg(reason ORDER BY id) FROM batch_event WHERE event = 'rescheduled' AND batch_id = %s",
        batch_id,
    )
    assert [line.split()[:2] for line in reasons] == [["from", "at"], ["from", at.strftime("%Y-%m-%d")]]
    assert await violations(pool) == {}


async def test_the_same_time_again_changes_nothing(pool: Pool) -> None:
    owner = await add_owner(pool)
    at = in_an_hour()
    batch_id = await post(pool, owner, 1, scheduled_at=at)
    elsewhere = at.astimezone(UTC)
    await reschedule_batch(pool, SETTINGS, owner, batch_id, scheduled_at=elsewhere)
    assert "rescheduled" not in await events(pool, batch_id)


async def test_a_time_after_the_expiry_or_too_far_off_is_refused(pool: Pool) -> None:
    owner = await add_owner(pool)
    at = in_an_hour()
    batch_id = await post(pool, owner, 1, expires_at=at)
    for wrong, code in ((at, "too-late"), (at + timedelta(days=400), "too-far")):
        with pytest.raises(InvalidRequest) as refusal:
            await reschedule_batch(pool, SETTINGS, owner, batch_id, scheduled_at=wrong)
        assert [(error.pointer, error.code) for error in refusal.value.errors] == [("/scheduled_at", code)]
    assert await column(pool, batch_id, "scheduled_at") is None


async def test_a_batch_put_off_under_a_claims_nose_is_not_begun(pool: Pool) -> None:
    """The claim has chosen the batch, and waits for its lock."""
    owner = await add_owner(pool)
    batch_id = await post(pool, owner, 1)
    async with pool.connection() as conn, conn.transaction():
        await conn.execute("SELECT FROM batch WHERE id = %s FOR UPDATE", (batch_id,))
        claiming = asyncio.create_task(bench(pool).claim())
        await until(
            lambda: value(pool, "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"), 10, "it waits"
        )
        await conn.execute("UPDATE batch SET scheduled_at = %s WHERE id = %s", (in_an_hour(), batch_id))
    assert isinstance(await claiming, Nothing)
    assert await status(pool, batch_id) == "pending"


@pytest.mark.process
async def test_a_scheduled_batch_begins_within_two_seconds_of_its_time(pool: Pool, processes: Processes) -> None:
    owner = await add_owner(pool)
    worker = processes.start("worker", environment={"INFOBIP_KEY": "any"})
    await worker.ready(lambda: value(pool, "SELECT count(*) FROM worker"))
    late_s = []
    for start in range(3):
        due_at = datetime.now(UTC) + timedelta(seconds=0.7 + start * 0.37)
        batch_id = await post(pool, owner, 1, start=start, scheduled_at=due_at)
        assert await status(pool, batch_id) == "pending"
        begun = lambda batch_id=batch_id: column(pool, batch_id, "started_at")  # noqa: E731
        late_s.append((await until(begun, 20, "it begins") - due_at).total_seconds())
    assert all(0 <= late < 2 for late in late_s), late_s


# In processes of their own


@pytest.mark.process
async def test_nothing_arrives_at_the_provider_after_the_answer(
    pool: Pool, processes: Processes, postgres_dsn: str
) -> None:
    """Two workers and an API; arrivals are read from the provider's record, on the clock that all processes share."""
    dice = random.Random(3)
    simulated, served = f"http://127.0.0.1:{(port := free_port())}", f"http://127.0.0.1:{(api_port := free_port())}"
    processes.environment |= {"INFOBIP_KEY": "any", "CARTEIRO_PORT": str(api_port), "CARTEIRO_PUBLIC_URL": served}
    await add_account(pool, credits=5_000, bm_limit=100_000, base_url=simulated, messages_per_second=150)
    key = await add_key(pool)
    simulator = processes.start("simulator", "--port", str(port), "--latency-ms", "40", "--no-receipts")
    api = processes.start("serve")
    for _ in range(2):
        processes.start("worker")
    await simulator.ready_at(f"{simulated}/_sim/health")
    await api.ready_at(f"{served}/readyz")
    headers = {"authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(base_url=served, headers=headers, timeout=30) as client:
        posted = await client.post("/api/v1/batches", json=batch_body(5_000))
        batch = posted.headers["location"]

        async def arrivals() -> list[int]:
            told = await client.get(f"{simulated}/_sim/calls", params={"limit": 10_000})
            return [json.loads(line)["arrived_ns"] for line in told.text.splitlines()]

        for _ in range(6):
            wanted = len(await arrivals()) + dice.randint(5, 60)
            await until(lambda wanted=wanted: _more_than(arrivals, wanted), 30, "some calls")
            paused = await client.post(f"{batch}/pause")
            answered_ns = time.monotonic_ns()
            assert (paused.status_code, paused.json()["status"]) == (200, "paused")
            await until(lambda: _quiet(pool), 30, "what was on its way is recorded")
            arrived = await arrivals()
            assert [at_ns for at_ns in arrived if at_ns > answered_ns] == []
            assert (await counts(pool))["sent"] == len(arrived)
            assert (await client.post(f"{batch}/resume")).json()["status"] == "processing"
        cancelled = (await client.post(f"{batch}/cancel")).json()
        assert cancelled["status"] == "cancelled"
        await until(lambda: _quiet(pool), 30, "what was on its way is recorded")
        assert await counts(pool) == {"sent": len(await arrivals()), "unsent": 5_000 - len(await arrivals())}
    assert "violation_control" not in await violations(pool)


async def _more_than(arrivals: Callable[[], Awaitable[list[int]]], wanted: int) -> bool:
    return len(await arrivals()) >= wanted


async def _quiet(pool: Pool) -> bool:
    return bool(await value(pool, "SELECT NOT EXISTS (SELECT FROM claim WHERE closed_at IS NULL)"))


@pytest.mark.process
async def test_a_paused_batch_stays_paused_when_workers_are_killed_and_started(
    pool: Pool, processes: Processes
) -> None:
    owner = await add_owner(pool, messages_per_second=20)
    batch_id = await post(pool, owner, 500)
    worker = processes.start("worker", environment={"INFOBIP_KEY": "any"})
    await worker.ready(lambda: value(pool, "SELECT count(*) FROM claim"))
    await pause_batch(pool, SETTINGS, owner, batch_id)
    worker.kill()
    claims = await value(pool, "SELECT max(id) FROM claim")
    worker.start()
    swept = "SELECT count(*) FROM worker WHERE seen_at > started_at + interval '1.5 s'"
    await worker.ready(lambda: value(pool, f"{swept} AND started_at > (SELECT min(started_at) FROM worker)"))
    assert (await status(pool, batch_id), await value(pool, "SELECT max(id) FROM claim")) == ("paused", claims)
    await resume_batch(pool, owner, batch_id)
    await worker.ready(lambda: value(pool, f"SELECT max(id) > {claims} FROM claim"))


# Expiry


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
        assert await sweep.withdraw_rows(conn, batch_id, n=10) == 0
    assert await counts(pool) == {"pending": 2}
