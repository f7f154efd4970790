"""What an outcome costs: the table, and that no credit is lost or made."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carteiro.domain.lifecycle import UNSETTLED, MessageState
from carteiro.domain.money import ChargeRule, charged, refundable, settlement

TERMINAL = [state for state in MessageState if state not in UNSETTLED]
counts_of_terminal = st.dictionaries(st.sampled_from(TERMINAL), st.integers(0, 1_000_000))


@pytest.mark.parametrize(
    ("status", "sent_only", "full"),
    [
        (MessageState.DELIVERED, True, True),
        (MessageState.SEEN, True, True),
        (MessageState.FAILED, False, True),
        (MessageState.UNSENT, False, False),
    ],
)
def test_the_table(status, sent_only, full):
    assert charged("sent_only", status) is sent_only
    assert charged("full", status) is full


@pytest.mark.parametrize("status", UNSETTLED)
@pytest.mark.parametrize("rule", ChargeRule)
def test_an_open_outcome_is_held(rule, status):
    assert not charged(rule, status)
    assert refundable(rule, {status: 5}, 0) == 0
    with pytest.raises(ValueError, match="open outcomes"):
        settlement(rule, {status: 5}, 0)


@given(rule=st.sampled_from(ChargeRule), counts=counts_of_terminal)
def test_a_settled_batch_adds_up(rule, counts):
    settled = settlement(rule, counts, 0)
    assert settled.charged + settled.refund == sum(counts.values())


@given(rule=st.sampled_from(ChargeRule), counts=counts_of_terminal, unsent=st.integers(0, 1_000))
def test_what_was_refunded_before_is_not_refunded_again(rule, counts, unsent):
    early = refundable(rule, {MessageState.UNSENT: unsent}, 0)
    counts = counts | {MessageState.UNSENT: counts.get(MessageState.UNSENT, 0) + unsent}
    settled = settlement(rule, counts, early)
    assert settled.charged + settled.refund + early == sum(counts.values())
    assert refundable(rule, counts, early + settled.refund) == 0
