"""The claim: one transaction that takes a slice of one batch, its senders, its slots and its capacity."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from math import ceil
from uuid import UUID

from carteiro.domain.capacity import bucket_of
from carteiro.domain.lifecycle import BatchState
from carteiro.domain.outcomes import Outgoing
from carteiro.domain.planning import Plan, Rotation, Slot, plan_slots
from carteiro.services.dispatch.clock import from_us, monotonic_s
from carteiro.services.dispatch.ground import Ground, keep_calendars, lock_ground
from carteiro.services.dispatch.holds import hold_at_start, tidy_holds
from carteiro.services.dispatch.model import Due, Nothing, Slice
from carteiro.services.dispatch.record import BLACKOUT_AFTER
from carteiro.services.dispatch.rows import Ready, advance, take_ready
from carteiro.services.dispatch.spacing import Spacing
from carteiro.services.dispatch.station import Claimant
from carteiro.services.dispatch.waking import wake_waiting
from carteiro.settings import Settings
from carteiro.storage import capacity, claims
from carteiro.storage.capacity import Unit
from carteiro.storage.claims import Assigned, Service, Turn
from carteiro.storage.pool import Connection, retry_serialization, transact

NO_LOG_SLICE_S = 0.05
"""Where the provider has no log, what a crash leaves unknown stays unknown: claim less at a time."""
RETRY_CAPACITY_S = 60.0
"""When to look again while no bucket is due to be released."""
SHOWN_WAIT_S = 1.0
POLL_S = 0.05
"""When to look again for what other workers hold at this moment: calls in flight, locked rows."""


async def claim_slice(
    station: Claimant, service_id: str, spacing: Spacing, *, has_log: bool, batch_id: UUID | None = None
) -> Slice | Nothing:
    """Claim a slice of the batch whose turn it is, or of this one, or say what stands in the way.

    Locks, in this order: the service, capacity meters, pace meters, the batch, its rows. Everything is read after the
    service's lock, so that an operator's change (`max_inflight`, a stopped sender, a lowered limit) holds from the
    next claim on. Committed before the first byte of a call; killed before the commit, nothing happened.
    """
    slice_s = slice_length_s(station.settings, has_log=has_log)
    began_s = monotonic_s()

    async def attempt() -> tuple[Slice | Nothing, list[str]]:
        freed: list[str] = []
        async with transact(station.pool) as conn:
            claimed = await _claim(conn, station, service_id, spacing, slice_s, freed, batch_id)
        return claimed, freed

    claimed, freed = await retry_serialization(attempt)
    if freed:
        await wake_waiting(station.pool, freed)
    if isinstance(claimed, Slice):
        learn_claim(spacing, claimed, began_s)
    return claimed


def learn_claim(spacing: Spacing, claimed: Slice, began_s: float) -> None:
    """After its commit. Follow-ups go beside the batches: the slots of few of them may be far apart."""
    ended_s = monotonic_s()
    spacing.learn_claim(
        seconds=ended_s - claimed.reading.asked_s,
        whole_s=ended_s - began_s,
        last_slot_us=None if claimed.follow_ups else claimed.due[-1].slot_us,
    )


async def _claim(
    conn: Connection,
    station: Claimant,
    service_id: str,
    spacing: Spacing,
    slice_s: float,
    freed: list[str],
    batch_id: UUID | None,
) -> Slice | Nothing:
    """`freed` takes the business managers on which holds were released."""
    settings = station.settings
    entered = await enter_service(conn, service_id, settings, spacing, slice_s)
    if isinstance(entered, Nothing):
        return entered
    service, most = entered

    turn = await (claims.next_turn(conn, service_id) if batch_id is None else claims.one_turn(conn, batch_id))
    if turn is None:
        due_s = claims.next_due_s(conn, service_id) if batch_id is None else claims.one_due_s(conn, batch_id)
        return Nothing("idle", await due_s)
    ground = await lock_ground(conn, service_id, service, turn, settings)
    locked = await claims.lock_batch(conn, turn.batch_id)
    if locked is None:
        return Nothing("raced", 0.0)
    status, cursor_seq, pending = locked
    if not ground.lanes:
        return await _without_sender(conn, turn, service, ground.back_at)
    if status == BatchState.PENDING:
        await claims.start_batch(conn, turn.batch_id)
        await hold_at_start(conn, turn.batch_id, ground, Rotation(service.rotation), pending)

    probing = service.failures_in_a_row >= BLACKOUT_AFTER
    ready = await take_ready(conn, turn, cursor_seq, most, probing=probing)
    start_us = spacing.start_us(ground.reading.database_us, slice_s)
    plan = plan_slots(
        len(ready.going),
        service=ground.service_calendar,
        lanes=ground.lanes,
        rooms=ground.rooms,
        rotation=Rotation(service.rotation),
        start_us=start_us,
        horizon_us=start_us + round(slice_s * 1e6),
        gap_us=spacing.gap_us,
    )
    if ready.going and not plan.slots:
        return await _blocked(conn, turn, ground, plan, settings)
    ready.keep_first(len(plan.slots))
    await advance(conn, turn.batch_id, cursor_seq, ready)
    freed += await tidy_holds(
        conn, turn.batch_id, ground, Rotation(service.rotation), plan.slots, pending - len(ready.rows)
    )
    if not plan.slots:
        return Nothing("gap", POLL_S)
    filled = len(plan.slots) >= min(settings.slice_max, spacing.rows_in(slice_s))
    return await _open(
        conn, station, service_id, service, turn, ground, ready, plan.slots, spacing.rate_per_s, filled=filled
    )


async def enter_service(
    conn: Connection, service_id: str, settings: Settings, spacing: Spacing, slice_s: float
) -> tuple[Service, int] | Nothing:
    """Lock the service, then read it: with how many rows a slice may have, or what stands in the way of any."""
    await claims.lock_service(conn, service_id)
    service = await claims.read_service(conn, service_id)
    if service is None or not service.active:
        return Nothing("service_stopped")
    if service.wait_until is not None:
        return Nothing(service.wait_reason or "waiting", (service.wait_until - service.now).total_seconds())
    allowance = in_flight_allowance(service, slice_s) - service.in_flight
    if allowance <= 0:
        return Nothing("in_flight", POLL_S)
    paced = ceil(service.messages_per_second * slice_s)
    return service, min(allowance, settings.slice_max, spacing.rows_in(slice_s), paced)


def slice_length_s(settings: Settings, *, has_log: bool) -> float:
    return settings.slice_s if has_log else min(settings.slice_s, NO_LOG_SLICE_S)


def notify_url(settings: Settings, service: Service) -> str:
    """Where the provider is asked to tell what became of a message."""
    return f"{settings.public_url}/webhooks/{service.provider}/{service.webhook_token}"


def in_flight_allowance(service: Service, slice_s: float) -> int:
    """Rows that all workers may hold together: the operator's `max_inflight`, else twice what the rate keeps under way.

    A row is under way from its claim on, so a slice's length counts beside the provider's latency. After a blackout a
    single message probes.
    """
    if service.failures_in_a_row >= BLACKOUT_AFTER:
        return 1
    if service.max_inflight is not None:
        return service.max_inflight
    return max(1, ceil(service.messages_per_second * (service.latency_s + slice_s) * 2))


async def _without_sender(conn: Connection, turn: Turn, service: Service, back_at: datetime | None) -> Nothing:
    """No sender at all, or (`back_at`) none before then because the provider asked each of them to slow down."""
    if back_at is not None:
        await claims.block_batch(conn, turn.batch_id, blocked_by="throttled", next_attempt_at=back_at)
        return Nothing("throttled", 0.0)
    reason = "no sender of the account is active with an approved submission of this template"
    if not await claims.fail_batch(conn, turn.batch_id, code="NO_ACTIVE_SENDERS", reason=reason):
        next_attempt_at = service.now + timedelta(seconds=RETRY_CAPACITY_S)
        await claims.block_batch(conn, turn.batch_id, blocked_by="no_active_senders", next_attempt_at=next_attempt_at)
    return Nothing("no_active_senders", 0.0)


async def _blocked(conn: Connection, turn: Turn, ground: Ground, plan: Plan, settings: Settings) -> Nothing:
    """Say on the batch why it waits and until when. Its turn passes, so that others are not held up by it."""
    now = from_us(ground.reading.database_us)
    if plan.next_us is not None:
        reason, next_attempt_at = "pacing", from_us(plan.next_us) - timedelta(seconds=settings.slice_s / 2)
    else:
        reason, next_attempt_at = "capacity", now + timedelta(seconds=RETRY_CAPACITY_S)
        oldest_at = await capacity.oldest_bucket_at(conn, ground.meters)
        if oldest_at is not None:
            frees_at = oldest_at + timedelta(seconds=settings.window_s + settings.bucket_s)
            next_attempt_at = min(next_attempt_at, max(frees_at, now))
    if ground.back_at is not None:
        next_attempt_at = min(next_attempt_at, ground.back_at)
    # A wait shorter than anybody would ask about is part of running at the agreed pace.
    shown = reason if (next_attempt_at - now).total_seconds() > SHOWN_WAIT_S else None
    await claims.block_batch(conn, turn.batch_id, blocked_by=shown, next_attempt_at=next_attempt_at)
    return Nothing(reason, 0.0)


async def _open(
    conn: Connection,
    station: Claimant,
    service_id: str,
    service: Service,
    turn: Turn,
    ground: Ground,
    ready: Ready,
    slots: Sequence[Slot],
    rate_per_s: float,
    *,
    filled: bool,
) -> Slice:
    """Charge the units, keep the calendars, move the rows to `pending_send`."""
    settings = station.settings
    told_at = notify_url(settings, service)
    units = _units(slots, settings)
    due = [
        Due(
            outgoing=Outgoing(
                batch_id=turn.batch_id,
                seq=row.seq,
                sender=ground.candidates[slot.lane.sender_id].provider_ref,
                to=row.address,
                template_name=ground.candidates[slot.lane.sender_id].physical_name,
                language=turn.template_language,
                placeholders=parameters.placeholders,
                header=parameters.header,
                buttons=parameters.buttons,
                parameter_names=tuple(ground.candidates[slot.lane.sender_id].parameter_names),
                notify_url=told_at,
            ),
            slot_us=slot.at_us,
            unit=unit,
            attempt=row.attempt,
            sender_id=slot.lane.sender_id,
            together=row.together,
        )
        for (row, parameters), slot, unit in zip(ready.going, slots, units, strict=True)
    ]
    from_holds = Counter(slot.lane.business_manager_id for slot in slots if slot.from_hold)
    await capacity.charge(conn, turn.batch_id, units, from_holds, ground.limits)
    carriers = {(slot.lane.sender_id, slot.lane.business_manager_id) for slot in slots}
    await keep_calendars(conn, service_id, ground.calendars, carriers, ground.reading)
    claim_id, lease_until = await claims.open_claim(
        conn,
        batch_id=turn.batch_id,
        service_id=service_id,
        worker_id=station.worker_id,
        rows=[Assigned(row.outgoing.seq, from_us(row.slot_us), unit) for row, unit in zip(due, units, strict=True)],
        lease_s=settings.lease_s,
    )
    return Slice(
        claim_id,
        turn.batch_id,
        service_id,
        due,
        ground.reading,
        lease_until,
        rate_per_s,
        filled,
        messages_per_request=service.messages_per_request,
    )


def _units(slots: Sequence[Slot], settings: Settings) -> list[Unit]:
    """One unit a row, in the bucket of the latest instant at which its call may be accepted."""
    allowed_us, bucket_us = round((settings.lateness_s + settings.call_timeout_s) * 1e6), round(settings.bucket_s * 1e6)
    buckets = {
        number: bucket_of(from_us(number * bucket_us), settings.bucket_s)
        for number in {(slot.at_us + allowed_us) // bucket_us for slot in slots}
    }
    return [
        Unit(slot.lane.business_manager_id, slot.lane.sender_id, buckets[(slot.at_us + allowed_us) // bucket_us])
        for slot in slots
    ]
