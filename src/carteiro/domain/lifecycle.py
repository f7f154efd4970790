"""Every edge of every state machine, once.

From this table come the guarded UPDATEs (through the `lifecycle_edge` table in Postgres, which holds the same rows),
the trigger that refuses any other edge even from psql, the page `docs/states.md`, the exhaustive tests and the
Hypothesis model. Statements name *events*; nothing else in the code names a target state.

A `fenced` edge belongs to the worker whose claim is the row's last one. `only_if` narrows an edge by a fact of the
row before the move; it is what the database checks as well.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Machine(StrEnum):
    BATCH = "batch"
    MESSAGE = "message"
    FOLLOW_UP = "follow_up"
    """In the states of a message."""


class BatchState(StrEnum):
    DRAFT = "draft"
    PENDING_MODERATION = "pending_moderation"
    PENDING = "pending"
    PROCESSING = "processing"
    PAUSED = "paused"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    ERROR = "error"


class MessageState(StrEnum):
    PENDING = "pending"
    PENDING_SEND = "pending_send"
    UNKNOWN = "unknown"
    SENT = "sent"
    DELIVERED = "delivered"
    SEEN = "seen"
    FAILED = "failed"
    UNSENT = "unsent"


@dataclass(frozen=True, slots=True)
class Edge:
    """One event of one machine: from any of `sources` to `target`."""

    machine: Machine
    event: str
    sources: tuple[str, ...]
    target: str
    fenced: bool = False
    only_if: str = ""
    why: str = ""


def _batch(event: str, sources: Iterable[str], target: str, *, why: str = "") -> Edge:
    return Edge(Machine.BATCH, event, tuple(sources), target, why=why)


def _message(
    event: str, sources: Iterable[str], target: str, *, fenced: bool = False, only_if: str = "", why: str = ""
) -> Edge:
    return Edge(Machine.MESSAGE, event, tuple(sources), target, fenced, only_if, why)


def _follow_up(
    event: str, sources: Iterable[str], target: str, *, fenced: bool = False, only_if: str = "", why: str = ""
) -> Edge:
    return Edge(Machine.FOLLOW_UP, event, tuple(sources), target, fenced, only_if, why)


B, M = BatchState, MessageState

OUTCOME_UNKNOWN = "OUTCOME_UNKNOWN"
"""The code of a message whose outcome could not be found out. Visible, and never sent again by itself."""

EDGES: tuple[Edge, ...] = (
    _batch("moderated", [B.DRAFT], B.PENDING_MODERATION, why="created on a service in test mode"),
    _batch("opened", [B.DRAFT], B.PENDING, why="created: rows loaded, credits and capacity taken"),
    _batch("approved", [B.PENDING_MODERATION], B.PENDING),
    _batch("rejected", [B.PENDING_MODERATION], B.CANCELLED),
    _batch("expired", [B.PENDING_MODERATION, B.PENDING], B.CANCELLED, why="`expires_at` passed before it began"),
    _batch("started", [B.PENDING], B.PROCESSING, why="first claim"),
    _batch("paused", [B.PROCESSING], B.PAUSED),
    _batch("resumed", [B.PAUSED], B.PROCESSING),
    _batch("cancelled", [B.PENDING_MODERATION, B.PENDING, B.PROCESSING, B.PAUSED], B.CANCELLED),
    _batch("erred", [B.PENDING, B.PROCESSING], B.ERROR, why="cannot be sent; only before the first send"),
    _batch("completed", [B.PROCESSING, B.PAUSED], B.COMPLETED, why="everything settled"),
    _message("claimed", [M.PENDING], M.PENDING_SEND, why="committed before the call's first byte"),
    _message("guarded", [M.PENDING], M.FAILED, why="cannot be rendered: a missing placeholder or URL suffix"),
    _message("withdrawn", [M.PENDING], M.UNSENT, why="batch cancelled or expired, or contact suppressed"),
    _message("given_back", [M.PENDING_SEND], M.PENDING, fenced=True, why="certainly not sent"),
    _message("dropped", [M.PENDING_SEND], M.UNSENT, fenced=True, why="given back to a batch that no longer sends"),
    _message("lost", [M.PENDING_SEND], M.UNKNOWN, fenced=True, why="ambiguous answer, or the claim's lease lapsed"),
    _message("exhausted", [M.PENDING_SEND], M.FAILED, fenced=True, why="the last of `max_attempts` did not leave"),
    _message("absent", [M.UNKNOWN], M.PENDING, why="the provider's log proves that it was not sent"),
    _message("absent_dropped", [M.UNKNOWN], M.UNSENT, why="proven absent, and the batch no longer sends"),
    _message("sent", [M.PENDING, M.PENDING_SEND, M.UNKNOWN], M.SENT, why="the provider took it"),
    _message("sent", [M.FAILED], M.SENT, only_if="gave_up", why="it had gone after all"),
    _message(
        "delivered",
        [M.PENDING, M.PENDING_SEND, M.UNKNOWN, M.SENT, M.FAILED],
        M.DELIVERED,
        why="receipt, even an early one",
    ),
    _message(
        "seen",
        [M.PENDING, M.PENDING_SEND, M.UNKNOWN, M.SENT, M.DELIVERED, M.FAILED],
        M.SEEN,
        why="receipt, even an early one",
    ),
    _message("failed", [M.PENDING, M.PENDING_SEND, M.UNKNOWN, M.SENT], M.FAILED, why="refused, or failed later"),
    _message("failed", [M.DELIVERED], M.FAILED, only_if="assumed", why="the delivery had only been assumed"),
    _message("assumed", [M.SENT], M.DELIVERED, why="no receipt within 24 h of the send"),
    _message("gave_up", [M.UNKNOWN], M.FAILED, why=f"no evidence in time: {OUTCOME_UNKNOWN}"),
    _follow_up("claimed", [M.PENDING], M.PENDING_SEND, why="committed before the call's first byte"),
    _follow_up(
        "withdrawn",
        [M.PENDING],
        M.UNSENT,
        why="batch cancelled or in error, contact suppressed, or the service window closed",
    ),
    _follow_up("given_back", [M.PENDING_SEND], M.PENDING, fenced=True, why="certainly not sent"),
    _follow_up(
        "dropped",
        [M.PENDING_SEND],
        M.UNSENT,
        fenced=True,
        why="certainly not sent, and its batch no longer sends or its window closes before it may be tried again",
    ),
    _follow_up("lost", [M.PENDING_SEND], M.UNKNOWN, fenced=True, why="ambiguous answer, or the claim's lease lapsed"),
    _follow_up("exhausted", [M.PENDING_SEND], M.FAILED, fenced=True, why="it did not leave too often"),
    _follow_up("sent", [M.PENDING, M.PENDING_SEND, M.UNKNOWN], M.SENT, why="the provider took it"),
    _follow_up("sent", [M.FAILED], M.SENT, only_if="gave_up", why="it had gone after all"),
    _follow_up(
        "delivered", [M.PENDING, M.PENDING_SEND, M.UNKNOWN, M.SENT, M.FAILED], M.DELIVERED, why="receipt, even early"
    ),
    _follow_up(
        "seen",
        [M.PENDING, M.PENDING_SEND, M.UNKNOWN, M.SENT, M.DELIVERED, M.FAILED],
        M.SEEN,
        why="receipt, even early",
    ),
    _follow_up("failed", [M.PENDING, M.PENDING_SEND, M.UNKNOWN, M.SENT], M.FAILED, why="refused, or failed later"),
    _follow_up("gave_up", [M.UNKNOWN], M.FAILED, why=f"no evidence in time: {OUTCOME_UNKNOWN}; never sent again"),
)

INITIAL: dict[Machine, str] = {Machine.BATCH: B.DRAFT, Machine.MESSAGE: M.PENDING, Machine.FOLLOW_UP: M.PENDING}
STATES: dict[Machine, tuple[str, ...]] = {
    Machine.BATCH: tuple(B),
    Machine.MESSAGE: tuple(M),
    Machine.FOLLOW_UP: tuple(M),
}

SENDING: tuple[BatchState, ...] = (B.PENDING_MODERATION, B.PENDING, B.PROCESSING, B.PAUSED)
"""A batch in any other state no longer sends: an edge of its messages into `pending` ends in `unsent` instead."""
ENDED: tuple[BatchState, ...] = (B.COMPLETED, B.CANCELLED, B.ERROR)
UNSETTLED: tuple[MessageState, ...] = (M.PENDING, M.PENDING_SEND, M.UNKNOWN, M.SENT)
"""States in which a message's outcome is still open."""


def edges_of(machine: Machine) -> tuple[Edge, ...]:
    return tuple(edge for edge in EDGES if edge.machine is machine)


def steps() -> list[tuple[str, str, str, str]]:
    """(machine, event, source, target), one a legal step: the rows of `lifecycle_edge`."""
    return sorted(
        (str(edge.machine), edge.event, str(source), str(edge.target)) for edge in EDGES for source in edge.sources
    )


def target_of(machine: Machine, event: str, source: str) -> str | None:
    """Where `event` leads from `source`, or None when it is illegal there."""
    for edge in edges_of(machine):
        if edge.event == event and source in edge.sources:
            return edge.target
    return None


def allowed_events(machine: Machine, source: str) -> tuple[str, ...]:
    """The events that are legal in `source`: what a 409 tells the client."""
    return tuple(dict.fromkeys(edge.event for edge in edges_of(machine) if source in edge.sources))
