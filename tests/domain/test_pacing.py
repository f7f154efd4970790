"""The pacing calendar, whoever claims in whatever order: never above the rate, evenly spread, nearly all of it used."""

import random
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carteiro.domain.pacing import MINUTE_US, SECOND_US, open_calendar, slot_gap_us

LATENESS_US = 50_000
MS = 1_000
SLOW = [1, 2, 3, 8, 60, 80, 99]
FAST = [100, 137, 1_000, 5_000]


@dataclass
class Meter:
    """A meter as it stands in the database between claims."""

    limit: int
    window_us: int = SECOND_US
    lateness_us: int = LATENESS_US
    stored: tuple[list[int], list[int]] = ([], [])
    slots: list[int] = field(default_factory=list)

    def claim(self, now_us: int, from_us: int, until_us: int, own_gap_us: int, most: int = 500) -> int:
        """One worker claims up to `most` slots at its own pace; answers where it wants to go on."""
        times_us, counts = self.stored
        calendar = open_calendar(
            self.limit, self.window_us, self.lateness_us, now_us=now_us, times_us=times_us, counts=counts
        )
        cursor_us = from_us
        for _ in range(most):
            slot_us = calendar.earliest(cursor_us, until_us)
            if slot_us is None:
                break
            calendar.grant(slot_us)
            self.slots.append(slot_us)
            cursor_us = max(cursor_us + own_gap_us, slot_us)
        self.stored = calendar.trimmed(now_us)
        return cursor_us

    def most_in_a_window(self, starts_us: list[int]) -> int:
        starts_us = sorted(starts_us)
        begin, most = 0, 0
        for end, start_us in enumerate(starts_us):
            while starts_us[begin] <= start_us - self.window_us:
                begin += 1
            most = max(most, end - begin + 1)
        return most


def gaps(instants: list[int]) -> list[int]:
    ordered = sorted(instants)
    return [after - before for before, after in pairwise(ordered)]


def saturate(meter: Meter, *, claimers: int, own_gap_us: int, seconds: float) -> float:
    """`claimers` workers in turn keep the meter busy, 250 ms ahead each: the share of the rate that was used."""
    horizon_us, lead_us = 250 * MS, 60 * MS
    goes_on_at = [worker * 31 * MS for worker in range(claimers)]
    until_us = round(seconds * SECOND_US)
    while (now_us := min(goes_on_at)) < until_us:
        worker = goes_on_at.index(now_us)
        cursor_us = meter.claim(now_us, now_us, now_us + lead_us + horizon_us, own_gap_us)
        goes_on_at[worker] = max(cursor_us - lead_us, now_us + 20 * MS)
    used = sum(1 for slot_us in meter.slots if meter.window_us <= slot_us < until_us)
    return used / (meter.limit * (until_us - meter.window_us) / meter.window_us)


steps = st.lists(
    st.tuples(
        st.integers(0, 400 * MS),  # now advances
        st.integers(0, 100 * MS),  # the worker begins a little later
        st.integers(0, 400 * MS),  # how far ahead it plans
        st.sampled_from([0, 1, 500, 12_500, 25 * MS, 60 * MS]),  # its own pace
    ),
    min_size=1,
    max_size=16,
)


@pytest.mark.parametrize("limit", SLOW + FAST)
@given(steps=steps, minute=st.booleans(), seed=st.integers(0, 2**32))
@settings(max_examples=20, deadline=None)
def test_no_window_of_starts_holds_more_than_the_limit(limit, steps, minute, seed):
    scale = 60 if minute else 1
    meter = Meter(limit, MINUTE_US if minute else SECOND_US)
    now_us = 1_700_000_000 * SECOND_US + seed % SECOND_US
    for advance_us, delay_us, ahead_us, own_gap_us in steps:
        now_us += advance_us * scale
        meter.claim(now_us, now_us + delay_us, now_us + delay_us + ahead_us * scale, own_gap_us * scale)

    chance = random.Random(seed)
    starts_us = [slot_us + chance.randint(0, LATENESS_US) for slot_us in meter.slots]
    assert meter.most_in_a_window(starts_us) <= limit
    # The worst that lateness can do: the first call of a window comes late, the one after the window in time.
    slots_us = sorted(meter.slots)
    for first, beyond in zip(slots_us, slots_us[limit:], strict=False):
        assert beyond - first >= meter.window_us + LATENESS_US


@pytest.mark.parametrize(
    ("limit", "minute"), [(1, False), (2, False), (3, False), (8, False), (19, False), (60, True), (99, True)]
)
@given(steps=steps, seed=st.integers(0, 2**32))
@settings(max_examples=20, deadline=None)
def test_slots_of_a_slow_meter_keep_nine_tenths_of_the_even_distance(limit, minute, steps, seed):
    scale = 60 if minute else 1
    meter = Meter(limit, MINUTE_US if minute else SECOND_US)
    now_us = seed
    for advance_us, delay_us, ahead_us, own_gap_us in steps:
        now_us += advance_us * scale
        meter.claim(now_us, now_us + delay_us, now_us + delay_us + ahead_us * scale, own_gap_us)
    even_us = 0.9 * meter.window_us / limit
    assert all(gap_us >= even_us for gap_us in gaps(meter.slots))
    if slot_gap_us(limit, meter.window_us, LATENESS_US) > even_us + 1:
        chance = random.Random(seed)
        starts_us = [slot_us + chance.choice([0, LATENESS_US]) for slot_us in meter.slots]
        assert all(gap_us >= even_us for gap_us in gaps(starts_us))


@pytest.mark.parametrize("limit", [20, 50, 80, 99])
@given(steps=steps, seed=st.integers(0, 2**32))
@settings(max_examples=20, deadline=None)
def test_where_a_distance_could_not_be_seen_the_calls_are_spread_all_the_same(limit, steps, seed):
    meter = Meter(limit)
    now_us = seed
    for advance_us, delay_us, ahead_us, own_gap_us in steps:
        now_us += advance_us
        meter.claim(now_us, now_us + delay_us, now_us + delay_us + ahead_us, own_gap_us)
    slots_us = sorted(meter.slots)
    for few in (2, 5, 10):
        for first_us, last_us in zip(slots_us, slots_us[few:], strict=False):
            assert last_us - first_us >= (few - 1) * 0.999 * SECOND_US / (1.2 * limit)


def test_a_minutes_meter_and_a_few_a_second_keep_the_distance_of_starts_too():
    assert slot_gap_us(60, MINUTE_US, LATENESS_US) == 950 * MS
    assert slot_gap_us(3, SECOND_US, LATENESS_US) == 350 * MS
    assert slot_gap_us(8, SECOND_US, LATENESS_US) == 112_500


@pytest.mark.parametrize("claimers", [1, 2, 4])
@pytest.mark.parametrize("own_share", [None, 0.5, 0.6])
@pytest.mark.parametrize(
    ("limit", "window_us", "seconds"),
    [(80, SECOND_US, 8), (8, SECOND_US, 10), (400, SECOND_US, 5), (60, MINUTE_US, 300), (1_000, MINUTE_US, 130)],
)
def test_with_work_waiting_nearly_all_of_the_rate_is_used(limit, window_us, seconds, claimers, own_share):
    meter = Meter(limit, window_us)
    own_gap_us = round(window_us / limit / own_share) if own_share else 1
    expected = 0.90 if claimers > 1 or not own_share else 0.8 * own_share
    assert saturate(meter, claimers=claimers, own_gap_us=own_gap_us, seconds=seconds) >= expected


def test_a_missed_slot_is_lost():
    meter = Meter(80)
    meter.claim(0, 0, 100 * MS, 0)
    before = len(meter.slots)
    meter.claim(10 * SECOND_US, 10 * SECOND_US, 10 * SECOND_US + 250 * MS, 0)
    assert len(meter.slots) - before <= 0.25 * 80 * 1.2 + 1


def test_a_fast_meter_spreads_its_calls():
    meter = Meter(1_000)
    meter.claim(0, 0, 250 * MS, 0)
    for cell_us in range(0, 250 * MS, 10 * MS):
        assert sum(cell_us <= slot_us < cell_us + 10 * MS for slot_us in meter.slots) <= 12


def test_a_fast_minutes_meter_spreads_the_calls_inside_a_cell():
    meter = Meter(1_000, MINUTE_US)
    for now_us in range(0, 20 * SECOND_US, 200 * MS):
        meter.claim(now_us, now_us, now_us + 250 * MS, 0)
    assert min(gaps(meter.slots)) >= 30 * MS
    assert 0.9 * 20 * 1_000 / 60 <= len(meter.slots) <= 1.2 * 20 * 1_000 / 60 + 12


@pytest.mark.parametrize(("limit", "own_gap_us"), [(80, 25 * MS), (80, 17 * MS), (8, 250 * MS), (400, 5 * MS)])
def test_the_room_between_the_slots_of_another_claim_is_found(limit, own_gap_us):
    meter = Meter(limit)
    meter.claim(0, 0, 900 * MS, own_gap_us)
    first = list(meter.slots)
    meter.claim(5 * MS, 5 * MS, 900 * MS, own_gap_us)
    between = sum(first[0] < slot_us < first[-1] for slot_us in meter.slots[len(first) :])
    assert between >= min(limit - len(first), len(first)) - 2


def test_nothing_that_no_longer_matters_is_stored():
    for limit in (8, 1_000):
        meter = Meter(limit)
        meter.claim(0, 0, 250 * MS, 0)
        times_us, counts = meter.stored
        assert len(times_us) == len(counts) > 0
        calendar = open_calendar(limit, SECOND_US, LATENESS_US, now_us=0, times_us=times_us, counts=counts)
        assert sum(calendar.trimmed(250 * MS)[1]) == sum(counts)
        assert calendar.trimmed(2 * SECOND_US) == ([], [])


def test_a_lowered_limit_counts_what_was_granted_under_the_old_one():
    meter = Meter(99)
    meter.claim(0, 0, 900 * MS, 0)
    granted = len(meter.slots)
    meter.limit = 8
    meter.claim(900 * MS, 900 * MS, 1_900 * MS, 0)
    for slot_us in meter.slots[granted:]:
        assert sum(slot_us - SECOND_US < other <= slot_us for other in meter.slots) <= 8


def test_a_horizon_in_the_past_has_no_slot():
    for limit in (8, 1_000):
        assert open_calendar(limit, SECOND_US, LATENESS_US, now_us=SECOND_US).earliest(SECOND_US, SECOND_US - 1) is None
