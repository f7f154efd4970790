"""Steering a batch: which moves are legal, resuming, moderation, schedules."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from carteiro.domain.errors import IllegalTransition, InvalidRequest, NotFound
from carteiro.domain.lifecycle import BatchState, Machine, target_of
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
from carteiro.services.dispatch.model import Nothing
from carteiro.storage.pool import Pool
from tests.support.dispatching import meter
from tests.support.factories import add_account, add_batch, bm_id, caller, in_an_hour, value
from tests.support.processes import Processes
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
from tests.support.waiting import until

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


# Resuming


async def age_pauses(pool: Pool, by: str) -> None:
    await change(pool, "ALTER TABLE batch_event DISABLE TRIGGER append_only")
    await change(pool, "UPDATE batch_event SET at = at - %s::interval WHERE event = 'paused'", by)


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
    for start, ahead_s in enumerate((0.7, 1.1, 3.6)):
        due_at = datetime.now(UTC) + timedelta(seconds=ahead_s)
        batch_id = await post(pool, owner, 1, start=start, scheduled_at=due_at)
        assert await status(pool, batch_id) == "pending"
        begun = lambda batch_id=batch_id: column(pool, batch_id, "started_at")  # noqa: E731
        late_s.append((await until(begun, 20, "it begins") - due_at).total_seconds())
    assert all(0 <= late < 2 for late in late_s), late_s
