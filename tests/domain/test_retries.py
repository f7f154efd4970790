"""When a message that did not leave is tried again."""

from itertools import pairwise

from carteiro.domain.retries import JITTER, LONGEST_S, MULTIPLIER_MAX, attempt_delay_s


def test_without_a_base_the_delay_doubles_up_to_its_longest() -> None:
    delays = [attempt_delay_s(None, attempt, "m-1") for attempt in range(1, 9)]
    assert delays == [1, 2, 4, 8, 16, LONGEST_S, LONGEST_S, LONGEST_S]


def test_with_a_base_it_grows_by_the_base_up_to_eight_times() -> None:
    for attempt in range(1, 20):
        n = min(attempt, MULTIPLIER_MAX)
        for message in ("a-1", "b-1"):
            delay_s = attempt_delay_s(60.0, attempt, message)
            assert 60.0 * n <= delay_s < 60.0 * n * (1 + JITTER)
            assert delay_s == attempt_delay_s(60.0, attempt, message)


def test_the_jitter_is_spread_over_its_whole_width() -> None:
    parts = sorted((attempt_delay_s(1.0, 1, f"m-{n}") - 1.0) / JITTER for n in range(200))
    assert parts[0] < 0.1
    assert parts[-1] > 0.9
    assert max(later - earlier for earlier, later in pairwise(parts)) < 0.1
    assert attempt_delay_s(1.0, 9, "m-1") != attempt_delay_s(1.0, 10, "m-1")
