"""The pacing calendar: which instants a meter (service, business manager, sender) still has for calls.

A meter allows `limit` calls in any half-open window of `window_us`, judged by the instants at which calls *start*.
What is granted are *slots*; a call starts at its slot or at most `lateness_us` later, else it is given back and the
slot is lost. Starts inside (x, x + window] have slots inside (x - lateness, x + window], so it is enough that no
half-open span of window + lateness holds more than `limit` slots.

Worker processes take turns: each plans its calls a little ahead, at its own pace, so a later claim must find the room
that an earlier one left *between* its slots. A virtual clock (GCRA) forgets that room, and integer quotas a tick lose
phase when several meters have to agree. Hence a calendar of what was granted, with a sliding sum that looks both ways.

Two kinds, by what has to be remembered:

- slow (fewer than 100 calls a window): exact instants. Neighbours keep a distance of 0.9 window / limit, and where the
  window has room for it the lateness on top, so that the starts keep that distance as well. Where it has not (from 4 a
  second on at 50 ms: it would cost throughput) it holds for the slots, and starts come up to the lateness closer. Where
  even calls would be no further apart than the lateness (from 20 a second on at 50 ms) nobody could see a distance, and
  keeping it would leave holes too small for other workers' calls: instead one call in each 1/1.2 of an even share.
- fast: calls counted in cells of a hundredth of the window; their place inside a cell is free. A cell takes 1.2 times
  its even share, which keeps the load spread. A slot may lie anywhere in its cell, so the span is one cell longer.
  Where cells are wider than the lateness (a minute's) the calls inside one are spread as well.

The share of the rate that remains usable is window / span: 95 % (slow) and 94 % (fast) for a second at 50 ms of
lateness, 98 % and more for a minute.

Times are integer microseconds of the database's clock. Nothing here reads a clock.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
from typing import Protocol

SECOND_US = 1_000_000
"""The window of services and senders."""
MINUTE_US = 60 * SECOND_US
"""The window of business managers."""
FAST_FROM = 100
"""Calls a window from which on they are counted in cells."""
CELLS_PER_WINDOW = 100


class Calendar(Protocol):
    """What has been granted on one meter, from one span before `now` on."""

    def earliest(self, t_us: int, horizon_us: int) -> int | None:
        """The first instant at or after `t_us` for one more call; None when there is none up to `horizon_us`."""

    def grant(self, t_us: int) -> None:
        """Take the slot at an instant that `earliest` gave, with no other grant in between."""

    def trimmed(self, now_us: int) -> tuple[list[int], list[int]]:
        """What still matters after `now_us`, to be stored: instants in order, and the calls at each."""


def open_calendar(
    limit: int,
    window_us: int,
    lateness_us: int,
    *,
    now_us: int,
    times_us: Sequence[int] = (),
    counts: Sequence[int] = (),
) -> Calendar:
    """The calendar of a meter of `limit` >= 1 from what `trimmed` had stored; no slot before `now_us` will be asked
    for.

    After the operator changed a limit the new one holds exactly once a whole span was granted under it.
    """
    if limit < FAST_FROM:
        return SlowCalendar(limit, window_us, lateness_us, now_us, times_us, counts)
    return FastCalendar(limit, window_us, lateness_us, now_us, times_us, counts)


def slot_gap_us(limit: int, window_us: int, lateness_us: int) -> int:
    """The least distance between two slots of a slow meter; 0 where nobody could see one."""
    if limit * lateness_us >= window_us:
        return 0
    even = -(-9 * window_us // (10 * limit))
    apart = even + lateness_us
    return apart if apart * limit <= window_us + lateness_us else even


class SlowCalendar:
    """Exact instants, one list entry a call."""

    __slots__ = ("_cell_us", "_gap_us", "_limit", "_now_us", "_slots_us", "_span_us")

    def __init__(
        self,
        limit: int,
        window_us: int,
        lateness_us: int,
        now_us: int,
        times_us: Sequence[int] = (),
        counts: Sequence[int] = (),
    ) -> None:
        self._limit = limit
        self._span_us = window_us + lateness_us
        self._gap_us = slot_gap_us(limit, window_us, lateness_us)
        self._cell_us = 0 if self._gap_us else 10 * window_us // (12 * limit)
        self._now_us = now_us
        oldest_us = now_us - self._span_us
        self._slots_us = [t for t, n in zip(times_us, counts, strict=True) if t > oldest_us for _ in range(n)]

    def earliest(self, t_us: int, horizon_us: int) -> int | None:
        slots, span_us, limit = self._slots_us, self._span_us, self._limit
        t_us = max(t_us, self._now_us)
        while t_us <= horizon_us:
            asked_us = t_us
            t_us = self._past_neighbours(t_us)
            # `limit` calls in a row that lie within less than a span shut out everything that would share a span with
            # all of them. Both ends of these shut intervals grow with their first call, so one pass is enough.
            first = bisect_right(slots, t_us - span_us)
            last = first + limit - 1
            while last < len(slots) and slots[last] - span_us < t_us:
                t_us = max(t_us, slots[first] + span_us)
                first += 1
                last += 1
            if t_us == asked_us:
                return t_us
        return None

    def _past_neighbours(self, t_us: int) -> int:
        """The first instant from `t_us` on that is not too near to a granted one, or the start of the next cell."""
        slots, gap_us, cell_us = self._slots_us, self._gap_us, self._cell_us
        if cell_us:
            cell_at_us = t_us // cell_us * cell_us
            at = bisect_left(slots, cell_at_us)
            taken = at < len(slots) and slots[at] < cell_at_us + cell_us
            return cell_at_us + cell_us if taken else t_us
        after = bisect_left(slots, t_us)
        if after and slots[after - 1] + gap_us > t_us:
            t_us = slots[after - 1] + gap_us
        while after < len(slots) and slots[after] - gap_us < t_us:
            t_us = slots[after] + gap_us
            after += 1
        return t_us

    def grant(self, t_us: int) -> None:
        insort(self._slots_us, t_us)

    def trimmed(self, now_us: int) -> tuple[list[int], list[int]]:
        kept = self._slots_us[bisect_right(self._slots_us, now_us - self._span_us) :]
        return kept, [1] * len(kept)


class FastCalendar:
    """Calls counted in cells. Looks one span ahead of `now_us` at most, which is more than any claim does."""

    __slots__ = (
        "_cell_us",
        "_counts",
        "_first",
        "_full",
        "_limit",
        "_most",
        "_not_before_us",
        "_spread_us",
        "_sums",
        "_width",
    )

    def __init__(
        self,
        limit: int,
        window_us: int,
        lateness_us: int,
        now_us: int,
        times_us: Sequence[int] = (),
        counts: Sequence[int] = (),
    ) -> None:
        self._limit = limit
        self._cell_us = cell_us = window_us // CELLS_PER_WINDOW
        self._most = -(-12 * limit // (10 * CELLS_PER_WINDOW))
        """Calls in one cell."""
        self._width = width = -(-(window_us + lateness_us) // cell_us) + 1
        """Cells that a half-open interval of window + lateness can touch."""
        self._spread_us = cell_us // self._most if cell_us > lateness_us else 0
        self._not_before_us = now_us
        self._first = first = now_us // cell_us
        # One window's cells up to `first`, and as many after it; `_sums[i]` is what the window ending with cell first
        # + i holds, as far as somebody asked. `_full` is the last of them without room, so that cells up to it are
        # shut.
        self._counts = dense = [0] * (2 * width - 1)
        offset = width - 1 - first
        for t_us, n in zip(times_us, counts, strict=True):
            at = t_us // cell_us + offset
            if 0 <= at < len(dense):
                dense[at] += n
        self._sums = [sum(dense[:width])]
        self._full = 0 if self._sums[0] >= limit else -1
        # What another worker was granted beyond our horizon shares windows with what lies before it.
        self._sum_up_to(max((at for at, n in enumerate(dense) if n), default=0) - width + 1)

    def earliest(self, t_us: int, horizon_us: int) -> int | None:
        t_us = max(t_us, self._not_before_us)
        if t_us > horizon_us:
            return None
        cell_us, width, most, counts = self._cell_us, self._width, self._most, self._counts
        last = min(horizon_us // cell_us - self._first, width - 1)
        if last >= len(self._sums):
            self._sum_up_to(last)
        cell = max(t_us // cell_us - self._first, self._full + 1)
        while cell <= last and counts[cell + width - 1] >= most:
            cell += 1
        if cell > last:
            return None
        t_us = max(t_us, (self._first + cell) * cell_us + counts[cell + width - 1] * self._spread_us)
        return t_us if t_us <= horizon_us else None

    def grant(self, t_us: int) -> None:
        cell = t_us // self._cell_us - self._first
        if cell >= len(self._sums):
            self._sum_up_to(cell)
        self._counts[cell + self._width - 1] += 1
        sums, limit = self._sums, self._limit
        for end in range(cell, len(sums)):
            sums[end] += 1
            if sums[end] >= limit and end > self._full:
                self._full = end
        if self._spread_us:
            self._not_before_us = t_us + self._spread_us

    def trimmed(self, now_us: int) -> tuple[list[int], list[int]]:
        offset = self._width - 1 - self._first
        oldest = max(0, now_us // self._cell_us - self._width + 1 + offset)
        held = [(at, n) for at, n in enumerate(self._counts[oldest:], oldest) if n]
        return [(at - offset) * self._cell_us for at, _ in held], [n for _, n in held]

    def _sum_up_to(self, last: int) -> None:
        sums, counts, width = self._sums, self._counts, self._width
        for end in range(len(sums), last + 1):
            sums.append(sums[-1] + counts[end + width - 1] - counts[end - 1])
            if sums[end] >= self._limit:
                self._full = end
