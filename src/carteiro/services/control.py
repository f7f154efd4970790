"""What clients do to a batch that is there: pause, resume, cancel, approve, reject, reschedule.

Every change is one guarded UPDATE under the batch's lock. Claims lock the same row and refuse any state but those that
send, so none is made once a pause or a cancellation is committed; claims made before it are waited for.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar
from uuid import UUID

from carteiro.domain.errors import FieldError, IllegalTransition, InvalidRequest, NotFound, Unavailable
from carteiro.domain.lifecycle import BatchState, Machine, MessageState, target_of
from carteiro.services import reading
from carteiro.services.api_keys import Caller
from carteiro.services.create.order import SCHEDULE_MAX
from carteiro.services.dispatch.waking import wake_waiting
from carteiro.services.reading import BatchView
from carteiro.services.withdraw import withdraw_some
from carteiro.settings import Settings
from carteiro.storage import batches, capacity, control, jobs, outcomes, settlement
from carteiro.storage.control import UNSTARTED, Steered
from carteiro.storage.pool import Connection, Pool, retry_serialization, transact

Result = TypeVar("Result")

EVENTS = {
    "approve": "approved",
    "cancel": "cancelled",
    "pause": "paused",
    "reject": "rejected",
    "resume": "resumed",
}
"""What a client may do -> the event of the lifecycle."""
RESCHEDULE = "reschedule"

POLL_S = 0.03
FIRST_BYTE_S = 0.1
"""From the last check of a call to its first byte, on a busy machine; and for what was given back to be recorded."""
TRIES = 5


@dataclass(frozen=True, slots=True)
class Halted:
    """A batch of which no call starts any more."""

    seen: BatchView
    already_on_their_way: int
    """Messages whose call had started, and whose outcome was not known yet, when that was certain."""


class _HoldsMoved(Exception):
    """The batch came to hold capacity whose meter is not locked: nothing was done, try again."""


async def pause_batch(
    pool: Pool, settings: Settings, caller: Caller, batch_id: UUID, *, reason: str | None = None
) -> Halted:
    """Stop sending; after the answer no call starts. The batch keeps the capacity that it holds for a window.

    Raises NotFound or IllegalTransition. Locks the batch; waits about `slice_s` + `LONGEST_LEAD_S` +
    `lateness_s` at most, with nothing held.
    """

    async def move(conn: Connection) -> str:
        batch = await _lock(conn, caller, batch_id)
        if await _move(conn, caller, batch_id, batch, "pause", reason):
            await control.tell_workers(conn, batch_id)
        return batch.service_id

    service_id = await _transact(pool, move)
    return await _halted(pool, settings, caller, service_id, batch_id)


async def cancel_batch(
    pool: Pool, settings: Settings, caller: Caller, batch_id: UUID, *, reason: str | None = None
) -> Halted:
    """End the batch; after the answer no call starts, and what has not left becomes `unsent`.

    Refunded when the batch is settled, which is once the outcome of everything that had left is known. Raises NotFound
    or IllegalTransition. Locks the meters of its holds, then the batch.
    """
    service_id = await _end(pool, settings, caller, batch_id, "cancel", reason)
    return await _halted(pool, settings, caller, service_id, batch_id)


async def reject_batch(pool: Pool, settings: Settings, caller: Caller, batch_id: UUID, *, reason: str) -> BatchView:
    """End a batch that waits for moderation. Raises and locks as `cancel_batch`."""
    await _end(pool, settings, caller, batch_id, "reject", reason)
    return await reading.read_batch(pool, caller.account_id, batch_id)


async def resume_batch(pool: Pool, caller: Caller, batch_id: UUID, *, reason: str | None = None) -> BatchView:
    """Send on, at once. Raises NotFound or IllegalTransition."""
    return await _set_going(pool, caller, batch_id, "resume", reason)


async def approve_batch(pool: Pool, caller: Caller, batch_id: UUID, *, reason: str | None = None) -> BatchView:
    """Let a batch out of moderation: it is sent at once, or at its time. Raises NotFound or IllegalTransition."""
    return await _set_going(pool, caller, batch_id, "approve", reason)


async def reschedule_batch(
    pool: Pool, settings: Settings, caller: Caller, batch_id: UUID, *, scheduled_at: datetime | None
) -> BatchView:
    """Set when dispatch begins; None, or a time that has passed: at once. The batch must not have begun.

    What it held already is released if it is to wait, as a scheduled batch holds nothing. Raises NotFound,
    IllegalTransition or InvalidRequest. Locks the meters of its holds, then the batch.
    """
    at = scheduled_at.astimezone(UTC) if scheduled_at else None

    async def move(conn: Connection) -> list[str]:
        batch, holds = await _lock_with_holds(conn, settings, caller, batch_id)
        if batch.status not in UNSTARTED:
            raise _illegal(batch, "rescheduled")
        if at is not None:
            _check_schedule(batch, at)
        if at == batch.scheduled_at:
            return []
        await batches.set_actor(conn, caller.actor)
        await control.reschedule(conn, batch_id, at)
        if at is None or at <= batch.now:
            await jobs.defer_pump(conn, batch.service_id)
            return []
        return await settlement.release_holds(conn, batch_id) if holds else []

    freed = await _transact(pool, move)
    if freed:
        await wake_waiting(pool, freed)
    return await reading.read_batch(pool, caller.account_id, batch_id)


async def release_idle_holds(pool: Pool, settings: Settings) -> int:
    """Release what batches hold and will not use: ended, expired, or paused for longer than a window. How many did.

    Driven by the sweep. One transaction a batch; locks the meters of its holds, then the batch.
    """
    async with pool.connection() as conn:
        idle = await control.idle_holders(conn, keep_s=settings.window_s)
    freed: set[str] = set()
    for batch_id in idle:

        async def release(conn: Connection, batch_id: UUID = batch_id) -> list[str]:
            held_on = await _lock_holds(conn, settings, batch_id)
            await outcomes.share_batch(conn, batch_id)  # whoever resumes it waits
            if not await control.idle_holders(conn, keep_s=settings.window_s, batch_id=batch_id):
                return []  # resumed or settled meanwhile
            await _check_holds(conn, batch_id, held_on)
            return await settlement.release_holds(conn, batch_id)

        freed.update(await _transact(pool, release))
    if freed:
        await wake_waiting(pool, freed)
    return len(idle)


async def _end(pool: Pool, settings: Settings, caller: Caller, batch_id: UUID, action: str, reason: str | None) -> str:
    """Cancel or reject: the state and the holds in one transaction, then the first of the pending rows; the sweep does
    the rest. Answers the service.
    """

    async def move(conn: Connection) -> tuple[str, list[str]]:
        batch, holds = await _lock_with_holds(conn, settings, caller, batch_id)
        if not await _move(conn, caller, batch_id, batch, action, reason):
            return batch.service_id, []
        await control.tell_workers(conn, batch_id)
        return batch.service_id, await settlement.release_holds(conn, batch_id) if holds else []

    service_id, freed = await _transact(pool, move)
    if freed:
        await wake_waiting(pool, freed)
    await withdraw_some(pool, batch_id)
    return service_id


async def _set_going(pool: Pool, caller: Caller, batch_id: UUID, action: str, reason: str | None) -> BatchView:
    async def move(conn: Connection) -> None:
        batch = await _lock(conn, caller, batch_id)
        if await _move(conn, caller, batch_id, batch, action, reason):
            await jobs.defer_pump(conn, batch.service_id)

    await _transact(pool, move)
    return await reading.read_batch(pool, caller.account_id, batch_id)


async def _lock(conn: Connection, caller: Caller, batch_id: UUID) -> Steered:
    batch = await control.lock_batch(conn, caller.account_id, batch_id)
    if batch is None:
        raise NotFound("There is no such batch in this account.")
    return batch


async def _lock_with_holds(
    conn: Connection, settings: Settings, caller: Caller, batch_id: UUID
) -> tuple[Steered, bool]:
    """The batch with the meters on which it holds capacity, and whether it holds any. Raises _HoldsMoved."""
    if await batches.read_owner(conn, batch_id) != caller.account_id:
        raise NotFound("There is no such batch in this account.")
    held_on = await _lock_holds(conn, settings, batch_id)
    batch = await _lock(conn, caller, batch_id)
    return batch, await _check_holds(conn, batch_id, held_on)


async def _lock_holds(conn: Connection, settings: Settings, batch_id: UUID) -> set[str]:
    """Lock the meters on which the batch holds capacity, before the batch itself; answers their owners."""
    held_on = set(await capacity.read_holds(conn, batch_id))
    if held_on:
        keep_s = settings.window_s + settings.bucket_s
        await capacity.lock_meters(conn, {("bm", owner) for owner in held_on}, keep_s=keep_s)
    return held_on


async def _check_holds(conn: Connection, batch_id: UUID, held_on: set[str]) -> bool:
    """Whether the batch holds any capacity now, under its lock. Raises _HoldsMoved: on a meter that is not locked."""
    holds = (await capacity.read_holds(conn, batch_id)).keys()
    if not holds <= held_on:
        raise _HoldsMoved
    return bool(holds)


async def _move(
    conn: Connection, caller: Caller, batch_id: UUID, batch: Steered, action: str, reason: str | None
) -> bool:
    """Move the locked batch. False: it was there already, as after a double click. Raises IllegalTransition."""
    event = EVENTS[action]
    await batches.set_actor(conn, caller.actor)
    if await control.move_batch(conn, batch_id, event=event, reason=reason) is not None:
        return True
    if _is_repeat(batch, event):
        return False
    raise _illegal(batch, event)


def _is_repeat(batch: Steered, event: str) -> bool:
    """Whether the batch is where the event leads, or where the engine has taken it from there in the meantime."""
    if event == EVENTS["approve"] and batch.status == BatchState.PROCESSING:
        return batch.approved
    return any(target_of(Machine.BATCH, event, source) == batch.status for source in BatchState)


def _check_schedule(batch: Steered, at: datetime) -> None:
    """Raises InvalidRequest."""
    if at > batch.now + SCHEDULE_MAX:
        raise InvalidRequest(errors=[FieldError("/scheduled_at", "too-far", f"Within {SCHEDULE_MAX.days} days.")])
    if batch.expires_at is not None and batch.expires_at <= at:
        told = f"The batch expires at {batch.expires_at.isoformat()}: it must begin before."
        raise InvalidRequest(errors=[FieldError("/scheduled_at", "too-late", told)])


def _illegal(batch: Steered, event: str) -> IllegalTransition:
    return IllegalTransition(state=batch.status, event=event, allowed=allowed_actions(batch.status))


def allowed_actions(status: str) -> list[str]:
    """What a client may do to a batch in this state, by the names of the operations."""
    allowed = [action for action, event in EVENTS.items() if target_of(Machine.BATCH, event, status)]
    return [*allowed, RESCHEDULE] if status in UNSTARTED else allowed


async def _halted(pool: Pool, settings: Settings, caller: Caller, service_id: str, batch_id: UUID) -> Halted:
    await _until_no_call_starts(pool, settings, service_id, batch_id)
    seen = await reading.read_batch(pool, caller.account_id, batch_id)
    on_their_way = seen.counts[MessageState.PENDING_SEND] + seen.counts[MessageState.UNKNOWN]
    return Halted(seen, on_their_way)


async def _until_no_call_starts(pool: Pool, settings: Settings, service_id: str, batch_id: UUID) -> None:
    """Wait until every open claim of the batch is closed, or the last of their slots too long ago for a call to start.

    No claim follows those that there are. Bounded by their last slot even where a worker is dead, frozen or does not
    hear; a resumption meanwhile does not lengthen it.
    """
    certain_at_s: float | None = None
    while True:
        async with pool.connection() as conn:
            left_s = await control.until_last_slot_s(conn, service_id, batch_id)
        now_s = time.monotonic()
        if left_s is None:
            return
        last_start_s = now_s + left_s + settings.lateness_s + FIRST_BYTE_S
        certain_at_s = last_start_s if certain_at_s is None else min(certain_at_s, last_start_s)
        if now_s >= certain_at_s:
            return
        await asyncio.sleep(min(POLL_S, certain_at_s - now_s))


async def _transact(pool: Pool, work: Callable[[Connection], Awaitable[Result]]) -> Result:
    """Run `work` in a transaction, again when Postgres or a moving hold asks for it. Raises Unavailable in the end."""

    async def attempt() -> Result:
        async with transact(pool) as conn:
            return await work(conn)

    for _ in range(TRIES):
        try:
            return await retry_serialization(attempt)
        except _HoldsMoved:
            continue
    raise Unavailable("The batch is too busy at the moment.", retry_after_s=1)
