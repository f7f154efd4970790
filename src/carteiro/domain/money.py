"""What an outcome costs. A message is one credit, debited when its batch is created; none under the rule `free`.

| outcome | sent_only | full |
|---|---|---|
| delivered, seen, assumed delivered | charged | charged |
| failed (after submit, by the guard, outcome unknown) | refunded | charged |
| unsent (cancelled, expired, suppressed, batch in error) | refunded | refunded |

A message in any other state is still held: neither charged nor refunded.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from carteiro.domain.lifecycle import MessageState


class ChargeRule(StrEnum):
    SENT_ONLY = "sent_only"
    FULL = "full"
    FREE = "free"
    """Nothing is debited, so nothing is charged or refunded."""


_ARRIVED = frozenset({MessageState.DELIVERED, MessageState.SEEN})
_TERMINAL = _ARRIVED | {MessageState.FAILED, MessageState.UNSENT}
CHARGED: Mapping[ChargeRule, frozenset[MessageState]] = {
    ChargeRule.SENT_ONLY: _ARRIVED,
    ChargeRule.FULL: _ARRIVED | {MessageState.FAILED},
    ChargeRule.FREE: frozenset(),
}
REFUNDED: Mapping[ChargeRule, frozenset[MessageState]] = {rule: _TERMINAL - CHARGED[rule] for rule in ChargeRule}


class Settlement(NamedTuple):
    """A batch's account when its last outcome is known, in credits. `refund` is what is still to be paid back."""

    charged: int
    refund: int


def price(rule: ChargeRule | str, total: int) -> int:
    """Credits to debit when a batch of `total` messages is created."""
    return 0 if ChargeRule(rule) is ChargeRule.FREE else total


def charged(rule: ChargeRule | str, status: MessageState | str) -> bool:
    """Whether a message that ends in this state is charged."""
    return status in CHARGED[ChargeRule(rule)]


def refundable(rule: ChargeRule | str, counts: Mapping[MessageState, int], already_refunded: int) -> int:
    """Credits to pay back now for a batch with these counts: what the rule refunds minus what was; never below 0."""
    return max(0, sum(counts.get(state, 0) for state in REFUNDED[ChargeRule(rule)]) - already_refunded)


def settlement(rule: ChargeRule | str, counts: Mapping[MessageState, int], already_refunded: int) -> Settlement:
    """`counts` are those of a batch whose messages are all terminal. Raises ValueError when one is not."""
    if any(n for state, n in counts.items() if state not in _TERMINAL):
        raise ValueError("a batch with open outcomes cannot be settled")
    return Settlement(
        charged=sum(counts.get(state, 0) for state in CHARGED[ChargeRule(rule)]),
        refund=refundable(rule, counts, already_refunded),
    )
