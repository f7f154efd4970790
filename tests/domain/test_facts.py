"""Receipts commute: any order, any repetition, the same row."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carteiro.domain.facts import NOTHING, STRENGTH, code_of, known_of, merge, state_of, strongest
from carteiro.domain.lifecycle import OUTCOME_UNKNOWN, MessageState
from carteiro.domain.outcomes import Fact, FactKind

BATCH = UUID(int=1)
NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)


def fact(kind: FactKind, seconds: int = 0, code: str | None = None, provider_id: str | None = None) -> Fact:
    return Fact(BATCH, 1, kind, NOON + timedelta(seconds=seconds), provider_id, code)


facts = st.lists(
    st.builds(
        fact,
        st.sampled_from(FactKind),
        st.integers(0, 3),
        st.none() | st.sampled_from("ABC"),
        st.none() | st.sampled_from("xyz"),
    ),
    max_size=8,
)


@given(facts.flatmap(lambda given: st.tuples(st.just(given), st.permutations(given))))
def test_order_does_not_matter(given_and_shuffled):
    in_order, shuffled = given_and_shuffled
    assert known_of(shuffled) == known_of(in_order)


@given(facts, st.data())
def test_repetition_does_not_matter(told, data):
    again = data.draw(st.lists(st.sampled_from(told), max_size=5)) if told else []
    assert known_of(told + again) == known_of(told)


@given(facts, facts, facts)
def test_merging_is_commutative_associative_and_idempotent(first, second, third):
    a, b, c = known_of(first), known_of(second), known_of(third)
    assert merge(a, b) == merge(b, a)
    assert merge(merge(a, b), c) == merge(a, merge(b, c))
    assert merge(a, a) == a
    assert merge(a, NOTHING) == a


@given(facts, facts)
def test_more_knowledge_never_makes_the_decision_weaker(first, second):
    order = [kind for kind, _ in STRENGTH]
    before, after = strongest(known_of(first)), strongest(known_of(first + second))
    if before is not None:
        assert after is not None
        assert order.index(after) <= order.index(before)


def test_nothing_known_means_no_state():
    assert state_of(NOTHING) is None
    assert code_of(NOTHING) is None


@pytest.mark.parametrize(
    ("kinds", "state"),
    [
        ([FactKind.SENT], MessageState.SENT),
        ([FactKind.SENT, FactKind.DELIVERED], MessageState.DELIVERED),
        ([FactKind.SEEN], MessageState.SEEN),
        ([FactKind.FAILED, FactKind.SENT], MessageState.FAILED),
        ([FactKind.FAILED, FactKind.DELIVERED], MessageState.DELIVERED),
        ([FactKind.ASSUMED, FactKind.SENT], MessageState.DELIVERED),
        ([FactKind.ASSUMED, FactKind.FAILED], MessageState.FAILED),
        ([FactKind.GIVEN_UP], MessageState.FAILED),
        ([FactKind.GIVEN_UP, FactKind.SENT], MessageState.SENT),
    ],
)
def test_the_strongest_fact_decides(kinds, state):
    assert state_of(known_of([fact(kind) for kind in kinds])) is state


def test_the_code_is_that_of_the_earliest_failure():
    known = known_of([fact(FactKind.FAILED, 5, "LATER"), fact(FactKind.FAILED, 1, "FIRST")])
    assert code_of(known) == "FIRST"
    assert known.failed_at == NOON + timedelta(seconds=1)


def test_giving_up_has_a_code_of_its_own_until_evidence_comes():
    assert code_of(known_of([fact(FactKind.GIVEN_UP)])) == OUTCOME_UNKNOWN
    assert code_of(known_of([fact(FactKind.GIVEN_UP), fact(FactKind.DELIVERED)])) is None
