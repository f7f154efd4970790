"""What the simulator saw, judged without a line of the engine's code.

Times are the arrivals of the calls at the simulator, by the clock that all processes of the machine share.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import msgspec


class Sight(msgspec.Struct, frozen=True):
    """What the database said of a message when its call arrived (`--witness-dsn`). `status` None: no such message."""

    status: str | None
    claim_id: int | None
    claim_open: bool


class Arrival(msgspec.Struct, frozen=True):
    """One message as it came: a line of `/_sim/calls`."""

    n: int
    arrived_ns: int
    arrived_wall_ns: int
    sender: str
    to: str
    message_id: str
    template: str
    placeholders: list[str]
    answer: str
    accepted: bool
    caller: str = ""
    sight: Sight | None = None
    status_id: int | None = None
    """As it was reported."""

    @property
    def claim_id(self) -> int | None:
        """Of the claim that called, where the rig has it say so: `carteiro claim/7 asked/122 at/123`."""
        return _named(self.caller, "claim")

    @property
    def asked_ns(self) -> int | None:
        """When it was asked for the last time whether the call may start, where the rig has it say so."""
        return _named(self.caller, "asked")

    @property
    def started_ns(self) -> int:
        """When the call began, by the clock of `arrived_ns`; its arrival, where the rig does not have it say so."""
        return _named(self.caller, "at") or self.arrived_ns

    @property
    def batch(self) -> str:
        """The batch that our message id names: 32 hex digits."""
        return self.message_id.partition("-")[0]

    @property
    def at_s(self) -> float:
        return self.arrived_ns / 1e9


def _named(caller: str, name: str) -> int | None:
    for word in caller.split():
        key, _, value = word.partition("/")
        if key == name and value.isdigit():
            return int(value)
    return None


@dataclass(frozen=True)
class Evidence:
    """A selection of arrivals, oldest first."""

    arrivals: Sequence[Arrival]

    @classmethod
    def read(cls, lines: bytes) -> "Evidence":
        decoder = msgspec.json.Decoder(Arrival)
        found = [decoder.decode(line) for line in lines.splitlines()]
        return cls(sorted(found, key=lambda arrival: arrival.arrived_ns))

    def __len__(self) -> int:
        return len(self.arrivals)

    @property
    def accepted(self) -> "Evidence":
        return self.where(lambda arrival: arrival.accepted)

    def of(self, batch_id: object) -> "Evidence":
        key = str(batch_id).replace("-", "")
        return self.where(lambda arrival: arrival.batch == key)

    def where(self, condition: Callable[[Arrival], bool]) -> "Evidence":
        return Evidence([arrival for arrival in self.arrivals if condition(arrival)])

    @property
    def per_sender(self) -> Counter[str]:
        return Counter(arrival.sender for arrival in self.arrivals)

    @property
    def times_s(self) -> list[float]:
        return [arrival.at_s for arrival in self.arrivals]

    @property
    def span_s(self) -> float:
        """From the first arrival to the last."""
        return self.times_s[-1] - self.times_s[0] if self.arrivals else 0.0

    def doubles(self) -> list[tuple[str, str]]:
        """(batch, phone) accepted more than once, and message ids accepted more than once as ("id", message id)."""
        taken = [arrival for arrival in self.arrivals if arrival.accepted]
        # What follows an answer is no template, and one more message to the same person.
        phones = Counter((arrival.batch, arrival.to, bool(arrival.template)) for arrival in taken)
        ids = Counter(arrival.message_id for arrival in taken)
        return [(batch, to) for (batch, to, _), n in phones.items() if n > 1] + [
            ("id", key) for key, n in ids.items() if n > 1
        ]

    def most_in(self, window_s: float, by: Callable[[Arrival], Hashable] = lambda arrival: None) -> int:
        """The most arrivals of one group in any window (t - window_s, t]."""
        groups: dict[Hashable, list[float]] = {}
        for arrival in self.arrivals:
            groups.setdefault(by(arrival), []).append(arrival.at_s)
        return max((most_within(times, window_s) for times in groups.values()), default=0)

    def fullest(
        self, window_s: float, limits: Mapping[str, int], owner_of: Callable[[Arrival], str]
    ) -> list[tuple[str, int, int]]:
        """(owner, most in any window (t - window_s, t], limit) of each owner that has a limit and any arrivals."""
        groups: dict[str, list[float]] = {}
        for arrival in self.arrivals:
            groups.setdefault(owner_of(arrival), []).append(arrival.at_s)
        return [
            (owner, most_within(times, window_s), limits[owner])
            for owner, times in sorted(groups.items())
            if owner in limits
        ]

    def without_row(self, histories: Mapping[str, "History"]) -> list[Arrival]:
        """Calls whose message was not about to be sent, by what the database had written by then. Histories are by
        message id.
        """
        nothing = History((), ())
        return [
            arrival
            for arrival in self.arrivals
            if histories.get(arrival.message_id, nothing).state_at(arrival.arrived_wall_ns) != "pending_send"
        ]

    def smallest_gap_s(self) -> float:
        return min((later - earlier for earlier, later in pairwise(self.times_s)), default=float("inf"))


@dataclass(frozen=True)
class History:
    """What became of one message: instants in nanoseconds since 1970, ascending, and the state from each one on."""

    instants_ns: Sequence[int]
    states: Sequence[str]

    @classmethod
    def of(cls, changes: Iterable[tuple[int, str]]) -> "History":
        """From (instant, state) in the order in which they were written."""
        ordered = sorted(changes, key=lambda change: change[0])
        return cls([at_ns for at_ns, _ in ordered], [state for _, state in ordered])

    def state_at(self, at_ns: int) -> str | None:
        """None: nothing had happened to it by then."""
        place = bisect_right(self.instants_ns, at_ns)
        return self.states[place - 1] if place else None


def most_within(times_s: Iterable[float], window_s: float) -> int:
    """The most of these instants in any half-open window (t - window_s, t]."""
    ordered = sorted(times_s)
    most = first = 0
    for last, at_s in enumerate(ordered):
        while ordered[first] <= at_s - window_s:
            first += 1
        most = max(most, last - first + 1)
    return most
