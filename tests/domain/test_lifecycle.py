"""The table of edges itself: that it is whole, and what it allows."""

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carteiro.domain.lifecycle import (
    EDGES,
    ENDED,
    INITIAL,
    SENDING,
    STATES,
    UNSETTLED,
    BatchState,
    Machine,
    MessageState,
    allowed_events,
    edges_of,
    steps,
    target_of,
)

EVENTS = {machine: sorted({edge.event for edge in edges_of(machine)}) for machine in Machine}
PAIRS = [(machine, event, state) for machine in Machine for event in EVENTS[machine] for state in STATES[machine]]


def test_edges_name_states_of_their_own_machine() -> None:
    for edge in EDGES:
        assert {*edge.sources, edge.target} <= set(STATES[edge.machine]), edge
        assert edge.target not in edge.sources, f"{edge.event} leads nowhere"


def test_an_event_leads_from_a_state_to_one_state_only() -> None:
    seen = Counter((machine, event, source) for machine, event, source, _ in steps())
    assert [step for step, times in seen.items() if times > 1] == []


def test_every_state_can_be_reached_from_the_beginning() -> None:
    for machine in Machine:
        reached = {INITIAL[machine]}
        while more := {target for _, _, source, target in steps_of(machine) if source in reached} - reached:
            reached |= more
        assert reached == set(STATES[machine])


def test_a_batch_that_has_ended_stays_so() -> None:
    assert [step for step in steps_of(Machine.BATCH) if step[2] in ENDED] == []


def test_a_batch_sends_until_it_has_ended() -> None:
    assert {*SENDING, *ENDED, BatchState.DRAFT} == set(BatchState)
    assert not set(SENDING) & set(ENDED)


def test_nothing_leads_back_from_an_outcome_to_sending() -> None:
    """Once it is known what became of a message, it is never claimed again."""
    may_be_sent = {MessageState.PENDING, MessageState.PENDING_SEND, MessageState.UNKNOWN}
    outcomes = set(MessageState) - may_be_sent
    assert [step for step in steps_of(Machine.MESSAGE) if step[2] in outcomes and step[3] in may_be_sent] == []


def test_only_a_claim_leads_to_sending_and_only_from_pending() -> None:
    assert [step[1:] for step in steps_of(Machine.MESSAGE) if step[3] == MessageState.PENDING_SEND] == [
        ("claimed", "pending", "pending_send")
    ]


def test_a_message_returns_to_pending_only_with_evidence_that_it_did_not_go() -> None:
    assert sorted(step[1:3] for step in steps_of(Machine.MESSAGE) if step[3] == MessageState.PENDING) == [
        ("absent", "unknown"),
        ("given_back", "pending_send"),
    ]


def test_an_unsent_message_and_a_seen_one_move_no_more() -> None:
    for state in (MessageState.UNSENT, MessageState.SEEN):
        assert allowed_events(Machine.MESSAGE, state) == ()


def test_evidence_can_come_in_every_unsettled_state() -> None:
    for state in UNSETTLED:
        for event in ("delivered", "seen", "failed"):
            assert target_of(Machine.MESSAGE, event, state) == event


def test_moves_of_the_claims_own_worker_are_fenced() -> None:
    fenced = {edge.event for edge in EDGES if edge.fenced}
    assert fenced == {"given_back", "dropped", "lost", "exhausted"}
    assert all(edge.sources == (MessageState.PENDING_SEND,) for edge in EDGES if edge.fenced)


@pytest.mark.parametrize(("machine", "event", "state"), PAIRS)
def test_what_an_event_does_in_a_state(machine: Machine, event: str, state: str) -> None:
    """`target_of`, `allowed_events` and `steps` say the same."""
    told = [target for *step, target in steps_of(machine) if step[1:] == [event, state]]
    target = target_of(machine, event, state)
    assert told == ([] if target is None else [target])
    assert (event in allowed_events(machine, state)) is (target is not None)


def test_an_unknown_event_leads_nowhere() -> None:
    assert target_of(Machine.BATCH, "claimed", BatchState.PENDING) is None
    assert target_of(Machine.MESSAGE, "exploded", MessageState.PENDING) is None


@given(st.lists(st.sampled_from(EVENTS[Machine.MESSAGE]), max_size=40))
def test_between_two_claims_there_is_always_evidence(events: list[str]) -> None:
    """Whatever is asked for in whatever order: an event that is illegal where the message stands changes nothing."""
    state: str = INITIAL[Machine.MESSAGE]
    lived = []
    for event in events:
        target = target_of(Machine.MESSAGE, event, state)
        if target is not None:
            lived.append(event)
            state = target
    claims = [at for at, event in enumerate(lived) if event == "claimed"]
    for before, after in pairwise(claims):
        assert {"given_back", "absent"} & set(lived[before:after])


def steps_of(machine: Machine) -> list[tuple[str, str, str, str]]:
    return [step for step in steps() if step[0] == machine]
