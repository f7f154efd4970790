"""What a portfolio's limit is, when its senders tell different ones."""

import pytest

from carteiro.domain.standing import Tier, portfolio_tier

K2, K10 = Tier("LIMIT_2K", 2_000), Tier("LIMIT_10K", 10_000)
ENDLESS, ODD = Tier("UNLIMITED", None), Tier("LIMIT_HUGE", None, known=False)


@pytest.mark.parametrize(
    ("said", "tier"),
    [
        ([], None),
        ([K10], K10),
        ([K10, K2], K2),
        ([ENDLESS], ENDLESS),
        ([ENDLESS, K10], K10),
        ([ODD], ODD),
        ([ENDLESS, ODD], ODD),
        ([ODD, K10, ENDLESS], K10),
    ],
)
def test_the_smallest_number_wins_and_no_limit_comes_last(said, tier):
    assert portfolio_tier(said) == tier
    assert portfolio_tier(reversed(said)) == tier
