"""The pacing calendar: which instants a meter has granted to calls, and the earliest one that it can still grant.

A call starts up to `lateness` after its slot, so that two starts less than a window apart have slots less than window + lateness
apart. A slot is granted if no span of window + lateness + grid would then hold more than `limit` of them, whichever end of the
span it lies at: grants fill gaps as well as append, because several workers claim for the same quarter of a second one after the
other. What is not used is lost; nothing is ever caught up in a burst.

Fast meters (100 a window and more) count slots in cells of a hundredth of a window. Slow ones keep exact instants and a gap to
both neighbours, so that sixty a minute means one about every second.

All times are integer microseconds of one clock, the database's.
"""

from bisect import bisect_left, bisect_right, insort
from dataclasses import dataclass
from math import ceil

CELLS = 100
SPREAD = 1.2
"""A cell of a fast meter takes a fifth more than its even share, so that what two workers ask for fits together."""
EVENNESS = 0.9
"""Starts of a slow meter are at least 0.9 / rate apart."""


@dataclass(frozen=True, slots=True)
class Pace:
    """`limit` calls a `window_us`, each starting up to `lateness_us` after its slot."""

    limit: int
    window_us: int
    lateness_us: int

    @property
    def is_slow(self) -> bool:
        return self.limit < CELLS

    @property
    def grid_us(self) -> int:
        return 1 if self.is_slow else self.window_us // CELLS

    @property
    def span_us(self) -> int:
        return self.window_us + self.lateness_us + self.grid_us

    @property
    def gap_us(self) -> int:
        """Between the slots of a slow meter. Lateness is added where the span leaves room for it: then it holds for the starts."""
        if not self.is_slow:
            return 0
        even_us = ceil(EVENNESS * self.window_us / self.limit)
        strict_us = even_us + self.lateness_us
        return strict_us if strict_us <= 0.96 * self.span_us / self.limit else even_us

    @property
    def cell_limit(self) -> int:
        return 1 if self.is_slow else ceil(SPREAD * self.limit * self.grid_us / self.window_us)


class Calendar:
    """One meter's granted slots: sorted instants (cells of a fast meter) and the calls granted at each."""

    def __init__(self, pace: Pace, times_us: list[int], counts: list[int]) -> None:
        self.limit = pace.limit
        self.grid_us = pace.grid_us
        self.span_us = pace.span_us
        self.gap_us = pace.gap_us
        self.cell_limit = pace.cell_limit
        self.times_us = list(times_us)
        self.counts = list(counts)
        self._asked_us = self._answer_us = -1
        self._cell_us = -1
        self._cell_room = 0

    def earliest(self, at_us: int, until_us: int) -> int | None:
        """The earliest instant in [at_us, until_us] that can be granted; None if there is none."""
        if self._asked_us <= at_us <= self._answer_us:
            return self._answer_us if self._answer_us <= until_us else None
        candidate_us = at_us
        while candidate_us <= until_us:
            next_us = self._refused_until(candidate_us)
            if next_us == candidate_us:
                self._asked_us, self._answer_us = at_us, candidate_us
                return candidate_us
            candidate_us = next_us
        return None

    def grant(self, at_us: int) -> None:
        """Grant an instant that `earliest` answered."""
        cell_us = at_us // self.grid_us * self.grid_us
        index = bisect_left(self.times_us, cell_us)
        if index < len(self.times_us) and self.times_us[index] == cell_us:
            self.counts[index] += 1
        else:
            insort(self.times_us, cell_us)
            self.counts.insert(index, 1)
        self._asked_us = self._answer_us = -1
        if cell_us == self._cell_us:
            self._cell_room -= 1

    def trimmed(self, now_us: int) -> tuple[list[int], list[int]]:
        """What still matters at or after `now_us`: instants and counts, for storage."""
        first = bisect_right(self.times_us, now_us - self.span_us)
        return self.times_us[first:], self.counts[first:]

    def _refused_until(self, at_us: int) -> int:
        """`at_us` itself if it can be granted, else the next instant worth asking for."""
        if self.gap_us:
            return self._near_neighbour(at_us)
        cell_us = at_us // self.grid_us * self.grid_us
        if cell_us != self._cell_us:
            self._cell_us = cell_us
            self._cell_room = self._room(cell_us)
        if self._cell_room > 0:
            return at_us
        busy_us = self._full_span_from(cell_us)
        return max(cell_us + self.grid_us, busy_us + self.span_us if busy_us is not None else 0)

    def _near_neighbour(self, at_us: int) -> int:
        index = bisect_left(self.times_us, at_us)
        if index and at_us - self.times_us[index - 1] < self.gap_us:
            return self.times_us[index - 1] + self.gap_us
        if index < len(self.times_us) and self.times_us[index] - at_us < self.gap_us:
            return self.times_us[index] + self.gap_us
        busy_us = self._full_span_from(at_us)
        return at_us if busy_us is None else busy_us + self.span_us

    def _room(self, cell_us: int) -> int:
        """How many more a cell of a fast meter takes."""
        index = bisect_left(self.times_us, cell_us)
        here = self.counts[index] if index < len(self.times_us) and self.times_us[index] == cell_us else 0
        fullest = max((total for _, total in self._spans_over(cell_us)), default=0)
        return min(self.cell_limit - here, self.limit - fullest)

    def _full_span_from(self, at_us: int) -> int | None:
        """The start of the first span that contains `at_us` and is full; None if there is none."""
        return next((start_us for start_us, total in self._spans_over(at_us) if total >= self.limit), None)

    def _spans_over(self, at_us: int) -> list[tuple[int, int]]:
        """Every span worth looking at that contains `at_us`: (its start, the slots in it). They begin at a slot or at `at_us`."""
        first = bisect_right(self.times_us, at_us - self.span_us)
        end = bisect_left(self.times_us, at_us + self.span_us)
        spans = []
        total, right = 0, first
        for left in range(first, end):
            start_us = self.times_us[left]
            if start_us > at_us:
                break
            while right < end and self.times_us[right] < start_us + self.span_us:
                total += self.counts[right]
                right += 1
            spans.append((start_us, total))
            total -= self.counts[left]
        while right < end and self.times_us[right] < at_us + self.span_us:
            total += self.counts[right]
            right += 1
        if not spans or spans[-1][0] != at_us:
            spans.append((at_us, total))
        return spans
