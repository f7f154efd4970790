"""A message's state as a pure function of what is known about it, so that order and repetition do not matter.

Merging keeps the earliest time of each kind: it is commutative, associative and idempotent. The statement in
`storage/sql/facts.sql` does the same, set by set.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import reduce

from carteiro.domain.lifecycle import OUTCOME_UNKNOWN, MessageState
from carteiro.domain.outcomes import Fact, FactKind

STRENGTH: tuple[tuple[FactKind, MessageState], ...] = (
    (FactKind.SEEN, MessageState.SEEN),
    (FactKind.DELIVERED, MessageState.DELIVERED),
    (FactKind.FAILED, MessageState.FAILED),
    (FactKind.ASSUMED, MessageState.DELIVERED),
    (FactKind.SENT, MessageState.SENT),
    (FactKind.GIVEN_UP, MessageState.FAILED),
)
"""Strongest first, each with the state that it means."""


@dataclass(slots=True)  # not frozen, which costs four times as much to make: there is one a message
class Known:
    """All that is known of one message: the earliest time of each kind of fact."""

    seen_at: datetime | None = None
    delivered_at: datetime | None = None
    failed_at: datetime | None = None
    assumed_at: datetime | None = None
    sent_at: datetime | None = None
    gave_up_at: datetime | None = None
    code: str | None = None
    """Of the earliest failure."""
    provider_id: str | None = None

    def at(self, kind: FactKind) -> datetime | None:
        match kind:
            case FactKind.SEEN:
                return self.seen_at
            case FactKind.DELIVERED:
                return self.delivered_at
            case FactKind.FAILED:
                return self.failed_at
            case FactKind.ASSUMED:
                return self.assumed_at
            case FactKind.SENT:
                return self.sent_at
            case FactKind.GIVEN_UP:
                return self.gave_up_at


NOTHING = Known()


def known_of(facts: Iterable[Fact]) -> Known:
    """What these facts of one message come to."""
    told = map(_alone, facts)
    return reduce(merge, told, next(told, NOTHING))


def merge(a: Known, b: Known) -> Known:
    return Known(
        seen_at=_earliest(a.seen_at, b.seen_at),
        delivered_at=_earliest(a.delivered_at, b.delivered_at),
        failed_at=_earliest(a.failed_at, b.failed_at),
        assumed_at=_earliest(a.assumed_at, b.assumed_at),
        sent_at=_earliest(a.sent_at, b.sent_at),
        gave_up_at=_earliest(a.gave_up_at, b.gave_up_at),
        code=_code_of_earliest(a, b),
        # Ours or the provider's: a message has one. Should two be told, the choice must not depend on their order.
        provider_id=_least(a.provider_id, b.provider_id),
    )


def strongest(known: Known) -> FactKind | None:
    """The fact that decides; None while nothing is known."""
    return next((kind for kind, _ in STRENGTH if known.at(kind) is not None), None)


def state_of(known: Known) -> MessageState | None:
    """The state that the facts mean; None while nothing is known, when the state is dispatch's to say."""
    return next((state for kind, state in STRENGTH if known.at(kind) is not None), None)


def code_of(known: Known) -> str | None:
    """Why it failed, if it did."""
    match strongest(known):
        case FactKind.FAILED:
            return known.code
        case FactKind.GIVEN_UP:
            return OUTCOME_UNKNOWN
        case _:
            return None


def _alone(fact: Fact) -> Known:
    return Known(
        seen_at=fact.at if fact.kind is FactKind.SEEN else None,
        delivered_at=fact.at if fact.kind is FactKind.DELIVERED else None,
        failed_at=fact.at if fact.kind is FactKind.FAILED else None,
        assumed_at=fact.at if fact.kind is FactKind.ASSUMED else None,
        sent_at=fact.at if fact.kind is FactKind.SENT else None,
        gave_up_at=fact.at if fact.kind is FactKind.GIVEN_UP else None,
        code=fact.code if fact.kind is FactKind.FAILED else None,
        provider_id=fact.provider_id,
    )


def _code_of_earliest(a: Known, b: Known) -> str | None:
    if a.failed_at is None or b.failed_at is None:
        return b.code if a.failed_at is None else a.code
    if a.failed_at != b.failed_at:
        return a.code if a.failed_at < b.failed_at else b.code
    return _least(a.code, b.code)


def _earliest(a: datetime | None, b: datetime | None) -> datetime | None:
    if a is None or b is None:
        return b if a is None else a
    return min(a, b)


def _least(a: str | None, b: str | None) -> str | None:
    if a is None or b is None:
        return b if a is None else a
    return min(a, b)
