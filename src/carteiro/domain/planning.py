"""One slice planned: for each row an instant, a sender, and where its unit of capacity comes from.

Pure: calendars, rooms and lanes come from the tables under the claim's locks, and go back there.
"""

import heapq
from collections.abc import Sequence
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


@dataclass(slots=True)  # not frozen, which costs four times as much to make: there is one a message
class Slot:
    at_us: int
    lane: Lane
    from_hold: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """`next_us`: only of a plan without slots, when the first row could go; None when no lane has room."""

    slots: list[Slot]
    next_us: int | None = None


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
    """Plan up to `n` rows inside [start_us, horizon_us], one each `gap_us` on average: what one worker can send.

    For each row the earliest instant that the service grants and a lane is free at; of the lanes free then, the one
    that the rotation prefers. A lane with room but no free slot passes to the next. Grants are made in the calendars,
    and units taken from `rooms` and lanes.
    """
    queue = _Queue(lanes, rooms, rotation)
    slots: list[Slot] = []
    cursor_us = start_us
    while len(slots) < n:
        at_us = service.earliest(cursor_us, horizon_us)
        lane = None
        while at_us is not None:
            lane = queue.take(at_us, horizon_us)
            if lane is not None or queue.soonest_us is None:
                break
            at_us = service.earliest(queue.soonest_us, horizon_us)
        if at_us is None or lane is None:
            break
        service.grant(at_us)
        for calendar in lane.calendars:
            calendar.grant(at_us)
        slots.append(Slot(at_us, lane, _take(rooms[lane.business_manager_id])))
        lane.volume += 1
        if lane.rest is not None:
            lane.rest -= 1
        queue.put(lane)
        # A row that had to wait does not put off all that follow: the worker keeps its pace on average.
        cursor_us = max(cursor_us + gap_us, at_us)
    if slots:
        return Plan(slots)
    return Plan(slots, _next_us(service, [lane for lane in lanes if _is_open(lane, rooms)], start_us, horizon_us))


def plan_each(
    lanes: Sequence[Lane], *, service: Calendar, start_us: int, horizon_us: int, gap_us: int
) -> list[int | None]:
    """An instant inside [start_us, horizon_us] for each row whose sender is given already; None where there is none.

    One that has to wait for its sender holds up no other. Grants are made in the calendars.
    """
    planned: list[int | None] = []
    cursor_us = start_us
    for lane in lanes:
        at_us = _agreed(service, lane, cursor_us, horizon_us)
        if at_us is not None:
            service.grant(at_us)
            for calendar in lane.calendars:
                calendar.grant(at_us)
            cursor_us += gap_us
        planned.append(at_us)
    return planned


def next_chance_us(service: Calendar, lane: Lane, start_us: int, horizon_us: int) -> int:
    """When a row of this sender could go, as far as the calendars look ahead."""
    next_us = _next_us(service, [lane], start_us, horizon_us)
    return horizon_us if next_us is None else next_us


def _agreed(service: Calendar, lane: Lane, at_us: int, horizon_us: int) -> int | None:
    """The earliest instant that the service and the lane both grant."""
    while True:
        served_us = service.earliest(at_us, horizon_us)
        free_us = None if served_us is None else lane.earliest(served_us, horizon_us)
        if free_us is None or free_us == served_us:
            return free_us
        at_us = free_us


class _Queue:
    """The lanes with room, in the order of the rotation; those that are not free now wait until they are.

    Asked for instants that never go back. Only grants change when a lane is free, and only to later.
    """

    def __init__(self, lanes: list[Lane], rooms: dict[str, Room], rotation: Rotation) -> None:
        self._rooms = rooms
        self._rotation = rotation
        self._ready = [self._entry(lane) for lane in lanes]
        heapq.heapify(self._ready)
        self._waiting: list[tuple[int, str, Lane]] = []

    @property
    def soonest_us(self) -> int | None:
        """No lane that waits is free before; None when none waits for an instant up to the horizon."""
        return self._waiting[0][0] if self._waiting else None

    def take(self, at_us: int, horizon_us: int) -> Lane | None:
        """The preferred lane that is free at `at_us`, taken out of the queue."""
        while self._waiting and self._waiting[0][0] <= at_us:
            self.put(heapq.heappop(self._waiting)[2])
        while self._ready:
            lane = heapq.heappop(self._ready)[3]
            if not _is_open(lane, self._rooms):
                continue
            free_us = lane.earliest(at_us, horizon_us)
            if free_us == at_us:
                return lane
            if free_us is not None:
                heapq.heappush(self._waiting, (free_us, lane.sender_id, lane))
        return None

    def put(self, lane: Lane) -> None:
        heapq.heappush(self._ready, self._entry(lane))

    def _entry(self, lane: Lane) -> tuple[int, int, str, Lane]:
        return _rank(lane, self._rotation), lane.volume, lane.sender_id, lane


def _next_us(service: Calendar, lanes: list[Lane], start_us: int, horizon_us: int) -> int | None:
    """When the first row could go, as far as the calendars look ahead."""
    if not lanes:
        return None
    until_us = horizon_us + LOOK_AHEAD_US
    free = [free_us for lane in lanes if (free_us := lane.earliest(start_us, until_us)) is not None]
    lane_us = min(free, default=until_us)
    served_us = service.earliest(lane_us, until_us)
    # A calendar that does not look so far ahead has nothing granted there.
    return lane_us if served_us is None else served_us


def _is_open(lane: Lane, rooms: dict[str, Room]) -> bool:
    return lane.rest != 0 and rooms[lane.business_manager_id].is_open


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
