"""One slice planned: for each row an instant, a sender, and where its unit of capacity comes from.

Pure: calendars, rooms and lanes come from the tables under the claim's locks, and go back there.
"""

import heapq
from dataclasses import dataclass
from enum import StrEnum

from carteiro.domain.pacing import Calendar

LOOK_AHEAD_US = 120_000_000
"""How far beyond the horizon a lane is asked for its next instant, to say when to come back."""


class Rotation(StrEnum):
    ROUND_ROBIN = "round_robin"
    QUALITY_FIRST = "quality_first"


RANKS = {"HIGH": 0, "MEDIUM": 1, "LOW": 2, "UNKNOWN": 2}


@dataclass(slots=True)
class Room:
    """What a batch may still take from one business manager: its own hold first, then free room. None: no limit."""

    held: int
    free: int | None

    @property
    def is_open(self) -> bool:
        return self.held > 0 or self.free is None or self.free > 0


@dataclass(slots=True)
class Lane:
    """An eligible sender: `volume` is what it has used in the window, `rest` what its own limit leaves (None: no
    limit).
    """

    sender_id: str
    business_manager_id: str
    quality: str
    volume: int
    rest: int | None
    calendars: tuple[Calendar, ...] = ()

    def earliest(self, at_us: int, until_us: int) -> int | None:
        """The earliest instant that all of its calendars grant."""
        while True:
            found_us = at_us
            for calendar in self.calendars:
                answer_us = calendar.earliest(found_us, until_us)
                if answer_us is None:
                    return None
                found_us = answer_us
            if found_us == at_us or len(self.calendars) == 1:
                return found_us
            at_us = found_us


@dataclass(frozen=True, slots=True)
class Slot:
    at_us: int
    lane: Lane
    from_hold: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """`next_us`: when the next row could go at the earliest; None when no lane has room. Meaningless for a complete
    plan.
    """

    slots: list[Slot]
    next_us: int | None


def plan_slots(
    n: int,
    *,
    service: Calendar,
    lanes: list[Lane],
    rooms: dict[str, Room],
    rotation: Rotation,
    start_us: int,
    horizon_us: int,
    gap_us: int,
) -> Plan:
    """Plan up to `n` rows inside [start_us, horizon_us], at least `gap_us` apart: what one worker can send.

    For each row the earliest instant that the service grants and a lane is free at; of the lanes free then, the one
    that the rotation prefers. A lane with room but no free slot passes to the next. Grants are made in the calendars,
    and units taken from `rooms` and lanes.
    """
    queue = [(_rank(lane, rotation), lane.volume, lane.sender_id, lane) for lane in lanes]
    heapq.heapify(queue)
    slots: list[Slot] = []
    at_us = start_us
    while len(slots) < n:
        served_us = service.earliest(at_us, horizon_us + LOOK_AHEAD_US)
        if served_us is None or served_us > horizon_us:
            return Plan(slots, served_us)
        lane, soonest_us = _pick(queue, rooms, served_us, horizon_us + LOOK_AHEAD_US)
        if lane is None:
            if soonest_us is None or soonest_us > horizon_us:
                return Plan(slots, soonest_us)
            at_us = soonest_us
            continue
        service.grant(served_us)
        for calendar in lane.calendars:
            calendar.grant(served_us)
        slots.append(Slot(served_us, lane, _take(rooms[lane.business_manager_id])))
        lane.volume += 1
        if lane.rest is not None:
            lane.rest -= 1
        heapq.heappush(queue, (_rank(lane, rotation), lane.volume, lane.sender_id, lane))
        at_us = served_us + gap_us
    return Plan(slots, at_us)


Queue = list[tuple[int, int, str, Lane]]


def _pick(queue: Queue, rooms: dict[str, Room], at_us: int, until_us: int) -> tuple[Lane | None, int | None]:
    """The preferred lane that is free at `at_us`, taken out of the queue; else when the soonest lane is free."""
    passed: Queue = []
    soonest_us: int | None = None
    picked: Lane | None = None
    while queue and picked is None:
        entry = heapq.heappop(queue)
        lane = entry[3]
        if lane.rest == 0 or not rooms[lane.business_manager_id].is_open:
            continue
        free_us = lane.earliest(at_us, until_us)
        if free_us == at_us:
            picked = lane
            break
        passed.append(entry)
        if free_us is not None and (soonest_us is None or free_us < soonest_us):
            soonest_us = free_us
    for entry in passed:
        heapq.heappush(queue, entry)
    return picked, soonest_us


def _take(room: Room) -> bool:
    """Take one unit; True when it came out of the hold."""
    if room.held > 0:
        room.held -= 1
        return True
    if room.free is not None:
        room.free -= 1
    return False


def _rank(lane: Lane, rotation: Rotation) -> int:
    return RANKS.get(lane.quality, 2) if rotation is Rotation.QUALITY_FIRST else 0
