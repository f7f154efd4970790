"""A worker finds out how fast it can send, and stays there."""

import pytest

from carteiro.services.dispatch.spacing import FIRST_RATE_PER_S, LOWEST_RATE_PER_S, Spacing

LATENESS_S = 0.05
IN_TIME_S = 0.001
BUSY_S = 0.015
LATE_S = 0.04
SECOND_US = 1_000_000


def learn(spacing: Spacing, lag_s: float, *, filled: bool = True) -> float:
    spacing.learn(lag_s=lag_s, rate_per_s=spacing.rate_per_s, filled=filled)
    return spacing.rate_per_s


def test_doubles_until_it_was_too_fast_once_and_goes_back_to_what_was_good() -> None:
    spacing = Spacing(LATENESS_S)
    assert [learn(spacing, IN_TIME_S) for _ in range(3)] == [FIRST_RATE_PER_S * 2**n for n in (1, 2, 3)]
    assert learn(spacing, LATE_S) == FIRST_RATE_PER_S * 4
    assert FIRST_RATE_PER_S * 4 < learn(spacing, IN_TIME_S) < FIRST_RATE_PER_S * 5


def test_a_slice_that_was_claimed_before_the_rate_grew_speaks_of_its_own_rate() -> None:
    spacing = Spacing(LATENESS_S)
    for _ in range(3):
        learn(spacing, IN_TIME_S)
    spacing.learn(lag_s=LATE_S, rate_per_s=FIRST_RATE_PER_S * 2, filled=True)
    assert spacing.rate_per_s == FIRST_RATE_PER_S
    spacing.learn(lag_s=LATE_S, rate_per_s=FIRST_RATE_PER_S * 8, filled=True)
    assert spacing.rate_per_s == FIRST_RATE_PER_S, "an old slice makes it no faster"
    spacing.learn(lag_s=IN_TIME_S, rate_per_s=FIRST_RATE_PER_S / 2, filled=True)
    assert spacing.rate_per_s == FIRST_RATE_PER_S, "nor does one that was slower"


def test_a_slice_that_something_else_bounded_proves_no_higher_rate() -> None:
    spacing = Spacing(LATENESS_S)
    assert learn(spacing, IN_TIME_S, filled=False) == FIRST_RATE_PER_S


def test_a_worker_at_its_limit_keeps_its_rate() -> None:
    spacing = Spacing(LATENESS_S)
    assert learn(spacing, BUSY_S) == FIRST_RATE_PER_S


def test_is_soon_as_fast_as_before_when_what_slowed_it_down_is_over() -> None:
    spacing = Spacing(LATENESS_S)
    fast = [learn(spacing, IN_TIME_S) for _ in range(3)][-1]
    while learn(spacing, LATE_S) > fast / 8:
        pass
    assert max(learn(spacing, IN_TIME_S) for _ in range(15)) > fast


def test_never_stops_altogether() -> None:
    spacing = Spacing(LATENESS_S)
    assert min(learn(spacing, LATE_S) for _ in range(100)) == LOWEST_RATE_PER_S


def test_slots_begin_after_the_claim_and_after_those_that_the_worker_has() -> None:
    spacing = Spacing(LATENESS_S)
    spacing.learn_claim(seconds=0.01, whole_s=0.1, last_slot_us=0)
    assert spacing.start_us(SECOND_US, 0.25) == SECOND_US + 12_000
    assert spacing.claim_s(0.25) == pytest.approx(0.12)
    assert spacing.claim_s(0.05) == 0.05, "a slice ahead at most, however long claims take"
    spacing.learn_claim(seconds=0.01, whole_s=0.1, last_slot_us=SECOND_US + 100_000)
    assert spacing.start_us(SECOND_US, 0.25) == SECOND_US + 100_000 + spacing.gap_us
    spacing.learn_claim(seconds=0.01, whole_s=0.1, last_slot_us=None)
    assert spacing.start_us(SECOND_US, 0.25) == SECOND_US + 100_000 + spacing.gap_us, "follow-ups go beside them"


def test_a_database_clock_that_was_set_back_delays_a_worker_by_no_more_than_a_slice() -> None:
    spacing = Spacing(LATENESS_S)
    spacing.learn_claim(seconds=0.01, whole_s=0.01, last_slot_us=3600 * SECOND_US)
    assert spacing.start_us(SECOND_US, 0.25) == SECOND_US + 12_000 + 250_000
