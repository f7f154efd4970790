"""The ground a claim stands on: meters, calendars and holds of every eligible sender, read under their locks."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from carteiro.domain.capacity import ManagerMeter, SenderMeter, free_room
from carteiro.domain.pacing import MINUTE_US, SECOND_US, Calendar, open_calendar
from carteiro.domain.planning import Lane, Room, Slot
from carteiro.services.dispatch.clock import Reading, monotonic_s, to_us
from carteiro.settings import Settings
from carteiro.storage import capacity, claims, outcomes, pools
from carteiro.storage.capacity import Meter, MeterId
from carteiro.storage.claims import PaceId, Service, Turn
from carteiro.storage.follow_ups import Carrier
from carteiro.storage.pool import Connection
from carteiro.storage.pools import Candidate


@dataclass(slots=True)
class Ground:
    """What one claim may use. `lanes`, `rooms` and `calendars` are worked on by the plan.

    Senders that wait have no lane, and keep their business managers' holds all the same: they will be back.
    """

    reading: Reading
    candidates: dict[str, Candidate]
    managers: list[ManagerMeter]
    senders: list[SenderMeter]
    limits: dict[MeterId, int | None]
    holds: dict[str, int]
    """The batch's own, per BM; also on BMs that have no eligible sender left."""
    calendars: dict[PaceId, Calendar]
    service_calendar: Calendar
    lanes: list[Lane]
    rooms: dict[str, Room]

    def hold(self, business_manager_id: str, n: int) -> None:
        """Note `n` units that were held just now: they come out of the free room."""
        room = self.rooms[business_manager_id]
        room.held += n
        if room.free is not None:
            room.free -= n
        self.holds[business_manager_id] = self.holds.get(business_manager_id, 0) + n
        self.managers = [
            replace(manager, held=manager.held + n) if manager.id == business_manager_id else manager
            for manager in self.managers
        ]

    def after(self, slots: Iterable[Slot]) -> tuple[list[ManagerMeter], list[SenderMeter]]:
        """The meters as they are once the units of `slots` are charged."""
        taken = Counter((slot.lane.business_manager_id, slot.from_hold) for slot in slots)
        managers = [
            replace(
                manager,
                used=manager.used + taken[manager.id, True] + taken[manager.id, False],
                held=manager.held - taken[manager.id, True],
            )
            for manager in self.managers
        ]
        volumes = {lane.sender_id: lane.volume for lane in self.lanes}
        senders = [replace(sender, used=volumes.get(sender.id, sender.used)) for sender in self.senders]
        return managers, senders

    @property
    def back_at(self) -> datetime | None:
        """When the first of the senders that wait may be used again."""
        waiting = [candidate.wait_until for candidate in self.candidates.values() if candidate.wait_until is not None]
        return min(waiting, default=None)

    @property
    def meters(self) -> set[MeterId]:
        return set(self.limits)


async def lock_ground(conn: Connection, service_id: str, service: Service, turn: Turn, settings: Settings) -> Ground:
    """Read who may send the batch, lock their meters and calendars in order, and read those.

    The clock is read last: a wait for a meter's lock must not make a plan of instants that are past.
    """
    candidates = await pools.read_candidates(
        conn,
        account_id=turn.account_id,
        service_id=service_id,
        template_name=turn.template_name,
        template_language=turn.template_language,
        signature=turn.template_signature,
    )
    held_on = await capacity.read_holds(conn, turn.batch_id)
    usable = meters_needed(candidates)
    meters = await capacity.lock_meters(
        conn, usable | {("bm", bm) for bm in held_on}, keep_s=settings.window_s + settings.bucket_s
    )
    holds = await capacity.read_holds(conn, turn.batch_id)
    paces = paces_of(service_id, service, candidates)
    reading, calendars = await open_calendars(conn, paces, settings)

    managers = manager_meters(candidates, meters)
    senders = [sender_meter(candidate, meters) for candidate in candidates]
    return Ground(
        reading=reading,
        candidates={candidate.sender_id: candidate for candidate in candidates},
        managers=managers,
        senders=senders,
        limits={id: meters[id].limit for id in usable},
        holds=holds,
        calendars=calendars,
        service_calendar=calendars["service", service_id],
        lanes=[
            _lane(candidate, sender, calendars)
            for candidate, sender in zip(candidates, senders, strict=True)
            if candidate.wait_until is None
        ],
        rooms={manager.id: _room(manager, senders, holds) for manager in managers},
    )


async def open_calendars(
    conn: Connection, paces: Mapping[PaceId, tuple[int, int]], settings: Settings
) -> tuple[Reading, dict[PaceId, Calendar]]:
    """Lock the calendars of these meters, in order; the clock is read after. `paces`: (calls, window)."""
    stored = await claims.lock_pace(conn, list(paces))
    asked_s = monotonic_s()
    database_us = to_us(await outcomes.read_clock(conn))
    reading = Reading(database_us, asked_s, monotonic_s())
    return reading, {
        pace_id: open_calendar(
            limit,
            window_us,
            round(settings.lateness_s * SECOND_US),
            now_us=database_us,
            times_us=stored[pace_id][0],
            counts=stored[pace_id][1],
        )
        for pace_id, (limit, window_us) in paces.items()
    }


async def keep_calendars(
    conn: Connection,
    service_id: str,
    calendars: Mapping[PaceId, Calendar],
    senders: Iterable[tuple[str, str]],
    reading: Reading,
) -> None:
    """Write those in which calls were granted: the service's, and of each sender (with its business manager)."""
    used: set[PaceId] = {("service", service_id)}
    used |= {pace_id for sender_id, bm in senders for pace_id in _paced_by(sender_id, bm)}
    granted = {
        pace_id: calendar.trimmed(reading.database_us) for pace_id, calendar in calendars.items() if pace_id in used
    }
    await claims.write_pace(conn, granted)


def paces_of(
    service_id: str, service: Service, candidates: Iterable[Candidate | Carrier]
) -> dict[PaceId, tuple[int, int]]:
    """The meters that are paced at all, as (calls, window): service and senders by the second, BMs by the minute."""
    paces: dict[PaceId, tuple[int, int]] = {("service", service_id): (service.messages_per_second, SECOND_US)}
    for candidate in candidates:
        if candidate.bm_messages_per_minute is not None:
            paces["bm", candidate.business_manager_id] = candidate.bm_messages_per_minute, MINUTE_US
        if candidate.messages_per_second is not None:
            paces["sender", candidate.sender_id] = candidate.messages_per_second, SECOND_US
    return paces


def meters_needed(candidates: Iterable[Candidate]) -> set[MeterId]:
    """Everything that limits what they may send."""
    needed: set[MeterId] = set()
    for candidate in candidates:
        needed |= {("bm", candidate.business_manager_id), ("sender", candidate.sender_id)}
    return needed


def manager_meters(candidates: Iterable[Candidate], meters: Mapping[MeterId, Meter]) -> list[ManagerMeter]:
    """Of the candidates' business managers, in order of id."""
    owners = sorted({candidate.business_manager_id for candidate in candidates})
    return [
        ManagerMeter(owner, meter.limit, meter.used, meter.held)
        for owner, meter in ((owner, meters["bm", owner]) for owner in owners)
    ]


def sender_meter(candidate: Candidate, meters: Mapping[MeterId, Meter]) -> SenderMeter:
    own = meters["sender", candidate.sender_id]
    return SenderMeter(candidate.sender_id, candidate.business_manager_id, candidate.quality, own.limit, own.used)


def _lane(candidate: Candidate, sender: SenderMeter, calendars: dict[PaceId, Calendar]) -> Lane:
    return Lane(
        sender.id,
        sender.business_manager_id,
        sender.quality,
        sender.used,
        sender.rest,
        calendars_of(candidate.sender_id, candidate.business_manager_id, calendars),
    )


def calendars_of(
    sender_id: str, business_manager_id: str, calendars: Mapping[PaceId, Calendar]
) -> tuple[Calendar, ...]:
    """Those that a call of the sender is granted in, beside the service's."""
    paced = _paced_by(sender_id, business_manager_id)
    return tuple(calendars[pace_id] for pace_id in paced if pace_id in calendars)


def _paced_by(sender_id: str, business_manager_id: str) -> tuple[PaceId, PaceId]:
    return ("sender", sender_id), ("bm", business_manager_id)


def _room(manager: ManagerMeter, senders: list[SenderMeter], holds: dict[str, int]) -> Room:
    """Own hold and free room; a hold that a lowered limit no longer covers waits like any other row."""
    own = holds.get(manager.id, 0)
    rest = None if manager.limit is None else max(0, manager.limit - manager.used)
    held = own if rest is None else min(own, rest)
    return Room(held, free_room(manager, [s for s in senders if s.business_manager_id == manager.id]))
