"""The claim of follow-ups: as that of messages, but each row has its sender already, and none takes daily capacity."""

from collections.abc import Sequence
from datetime import timedelta

from carteiro.domain.erasure import ERASED
from carteiro.domain.follow_ups import free_form_of
from carteiro.domain.lifecycle import BatchState
from carteiro.domain.outcomes import FreeForm
from carteiro.domain.pacing import Calendar
from carteiro.domain.planning import Lane, next_chance_us, plan_each
from carteiro.domain.suppression import SUPPRESSED, scopes_of
from carteiro.services.dispatch.claim import POLL_S, enter_service, learn_claim, notify_url, slice_length_s
from carteiro.services.dispatch.clock import from_us, monotonic_s
from carteiro.services.dispatch.ground import calendars_of, keep_calendars, open_calendars, paces_of
from carteiro.services.dispatch.model import Due, Nothing, Slice
from carteiro.services.dispatch.record import BLACKOUT_AFTER
from carteiro.services.dispatch.spacing import Spacing
from carteiro.services.dispatch.station import Station
from carteiro.settings import Settings
from carteiro.storage import claims, follow_ups, outcomes, suppression
from carteiro.storage.claims import PaceId
from carteiro.storage.follow_ups import Carrier, Row, Turn
from carteiro.storage.pool import Connection, retry_serialization, transact

SENDING = (BatchState.PROCESSING, BatchState.COMPLETED)
"""Follow-ups go on after their batch's end. Those of a paused one wait."""


async def any_wait(station: Station, service_id: str) -> bool:
    """Whether there are follow-ups that could be claimed now. A look without locks."""
    async with station.pool.connection() as conn:
        return await follow_ups.any_claimable(conn, service_id, margin_s=margin(station.settings))


async def claim_follow_ups(station: Station, service_id: str, spacing: Spacing, *, has_log: bool) -> Slice | Nothing:
    """Claim follow-ups of one batch, or say that none can be claimed now.

    Locks, in this order: the service, pace meters, the batch (FOR KEY SHARE, against which a pause and a cancellation
    stand), follow-ups. Committed before the first byte of a call.
    """
    slice_s = slice_length_s(station.settings, has_log=has_log)
    began_s = monotonic_s()

    async def attempt() -> Slice | Nothing:
        async with transact(station.pool) as conn:
            return await _claim(conn, station, service_id, spacing, slice_s)

    claimed = await retry_serialization(attempt)
    if isinstance(claimed, Slice):
        learn_claim(spacing, claimed, began_s)
    return claimed


def margin(settings: Settings) -> float:
    """How long, in seconds, a window must still be open: the latest that a call may be accepted after its slot."""
    return settings.lateness_s + settings.call_timeout_s


async def _claim(
    conn: Connection, station: Station, service_id: str, spacing: Spacing, slice_s: float
) -> Slice | Nothing:
    settings = station.settings
    entered = await enter_service(conn, service_id, settings, spacing, slice_s)
    if isinstance(entered, Nothing):
        return entered
    service, most = entered
    if service.failures_in_a_row >= BLACKOUT_AFTER and await claims.next_turn(conn, service_id) is not None:
        # A batch probes with whichever of its rows has failed least; a follow-up may be the one that always fails.
        return Nothing("blackout", POLL_S)
    margin_s = margin(settings) + spacing.reach_s(slice_s)
    turn = await follow_ups.next_turn(conn, service_id, margin_s=margin_s)
    if turn is None:
        return Nothing("idle")
    carriers = {
        carrier.sender_id: carrier
        for carrier in await follow_ups.read_carriers(conn, turn.batch_id, most, margin_s=margin_s)
    }
    reading, calendars = await open_calendars(conn, paces_of(service_id, service, carriers.values()), settings)
    batch = await outcomes.share_batch(conn, turn.batch_id)
    if batch.status not in SENDING:
        return Nothing("raced", 0.0)
    taken = await follow_ups.take_rows(conn, turn.batch_id, most, senders=carriers, margin_s=margin_s)
    rows = await _without_unwanted(conn, turn, taken)

    lanes = {sender_id: _lane(carrier, calendars) for sender_id, carrier in carriers.items()}
    served = calendars["service", service_id]
    start_us = spacing.start_us(reading.database_us, slice_s)
    horizon_us = start_us + round(slice_s * 1e6)
    planned = plan_each(
        [lanes[row.sender_id] for row in rows],
        service=served,
        start_us=start_us,
        horizon_us=horizon_us,
        gap_us=spacing.gap_us,
    )
    await follow_ups.postpone(
        conn,
        turn.batch_id,
        {
            row.seq: from_us(next_chance_us(served, lanes[row.sender_id], start_us, horizon_us))
            - timedelta(seconds=slice_s / 2)
            for row, at_us in zip(rows, planned, strict=True)
            if at_us is None
        },
    )
    going = [(row, at_us) for row, at_us in zip(rows, planned, strict=True) if at_us is not None]
    if not going:
        return Nothing("pacing" if rows else "gap", 0.0)
    used = {(row.sender_id, carriers[row.sender_id].business_manager_id) for row, _ in going}
    await keep_calendars(conn, service_id, calendars, used, reading)
    claim_id, lease_until = await follow_ups.open_claim(
        conn,
        batch_id=turn.batch_id,
        service_id=service_id,
        worker_id=station.worker_id,
        slots={row.seq: (carriers[row.sender_id].business_manager_id, from_us(at_us)) for row, at_us in going},
        lease_s=settings.lease_s,
    )
    due = _due(turn, going, carriers, notify_url(settings, service))
    return Slice(
        claim_id,
        turn.batch_id,
        service_id,
        due,
        reading,
        lease_until,
        spacing.rate_per_s,
        filled=False,
        follow_ups=True,
    )


async def _without_unwanted(conn: Connection, turn: Turn, rows: Sequence[Row]) -> list[Row]:
    """Withdraw the locked rows whose contact is suppressed or erased by now; answers the others."""
    listed = await suppression.find_among(
        conn,
        turn.account_id,
        [row.phone_key for row in rows],
        scopes_of(turn.template_content.get("category")),
    )
    codes = {row.seq: ERASED for row in rows if row.phone_key < 0}
    codes |= {row.seq: SUPPRESSED for row in rows if row.phone_key in listed}
    await follow_ups.withdraw(conn, turn.batch_id, codes)
    return [row for row in rows if row.seq not in codes]


def _lane(carrier: Carrier, calendars: dict[PaceId, Calendar]) -> Lane:
    own = calendars_of(carrier.sender_id, carrier.business_manager_id, calendars)
    return Lane(carrier.sender_id, carrier.business_manager_id, "UNKNOWN", 0, None, own)


def _due(turn: Turn, going: Sequence[tuple[Row, int]], carriers: dict[str, Carrier], told_at: str) -> list[Due]:
    """In order of slot."""
    text, media = free_form_of(turn.content)
    due = [
        Due(
            outgoing=FreeForm(
                batch_id=turn.batch_id,
                seq=row.seq,
                sender=carriers[row.sender_id].name,
                to=row.address,
                text=text,
                media=media,
                notify_url=told_at,
            ),
            slot_us=at_us,
            unit=None,
            attempt=row.attempt,
            sender_id=row.sender_id,
        )
        for row, at_us in going
    ]
    return sorted(due, key=lambda row: row.slot_us)
