"""What passes between claim, send and record."""

from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from carteiro.domain.outcomes import FreeForm, Outcome, Outgoing
from carteiro.services.dispatch.clock import Reading
from carteiro.storage.capacity import Unit


@dataclass(slots=True)  # not frozen, which costs four times as much to make: there is one a message
class Due:
    """One claimed message, committed as `pending_send`: what to send and the instant at which its call may start."""

    outgoing: Outgoing | FreeForm
    slot_us: int
    """Epoch microseconds on the database's clock."""
    unit: Unit | None
    """None: a follow-up takes none."""
    attempt: int
    """Earlier calls that certainly did not send."""
    sender_id: str
    """Ours for the sender, whatever the provider calls it."""
    together: int | None = None
    """Most messages in its request, after one that was refused as a whole; None: as many as the service sends."""


@dataclass(slots=True)
class Slice:
    """A claim: rows of one batch held by this worker until `lease_until`."""

    claim_id: int
    batch_id: UUID
    service_id: str
    due: list[Due]
    """In order of slot."""
    reading: Reading
    lease_until: datetime
    rate_per_s: float
    """The worker's own pace when it was claimed."""
    filled: bool
    """As many rows as that pace allowed, or as one claim may have: nothing else bounded it."""
    follow_ups: bool = False
    """Its rows are follow-ups of these messages, not the messages."""
    messages_per_request: int = 1
    halted: bool = False
    """Its batch was paused or cancelled: no further call of it starts."""
    flushes: int = 0
    """Records made so far."""
    judged: bool = False
    """Its worker's pace was judged by it."""
    lags_s: list[float] = field(default_factory=list)
    """How long after its slot each request that is under way could start."""

    @property
    def lag_s(self) -> float:
        """What three of four requests stayed within so far; one must be under way."""
        return sorted(self.lags_s)[len(self.lags_s) * 3 // 4]


@dataclass(frozen=True, slots=True)
class Nothing:
    """No slice: what stands in the way, and for how long as far as can be told. `wait_s` None: there is no work at
    all.
    """

    reason: str
    wait_s: float | None = None


@dataclass(slots=True)  # not frozen, which costs four times as much to make: there is one a message
class Result:
    """What became of one claimed message. `outcome` None: its request was not started."""

    due: Due
    outcome: Outcome | None
    latency_s: float | None
    """Of the request; None unless it `stands_for_request`."""
    at: datetime
    """When the answer came, by the database's clock as this worker knows it."""
    stands_for_request: bool = True
    """The first message of its request: a failure of that counts once, whatever the number of messages in it."""
