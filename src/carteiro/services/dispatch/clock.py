"""The database's clock as a worker knows it: slots are instants of that clock, whatever the worker's own clock says."""

import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def monotonic_s() -> float:
    """Our monotonic clock. It goes on while the machine sleeps, so that a call is not sent late without being
    noticed.
    """
    return time.clock_gettime(_CLOCK)


def to_us(at: datetime) -> int:
    """Epoch microseconds, exact."""
    return (at - EPOCH) // timedelta(microseconds=1)


def from_us(us: int) -> datetime:
    return EPOCH + timedelta(microseconds=us)


@dataclass(frozen=True, slots=True)
class Reading:
    """One reading of the database's clock, taken somewhere between `asked_s` and `answered_s` of our monotonic clock.

    The truth lies between `earliest_us` and `latest_us`; a call may start when the former has reached its slot and
    the latter is not yet past the tolerated lateness, so that the round trip's uncertainty never breaks a pace.
    """

    database_us: int
    asked_s: float
    answered_s: float

    def earliest_us(self, monotonic_s: float) -> int:
        return self.database_us + round((monotonic_s - self.answered_s) * 1e6)

    def latest_us(self, monotonic_s: float) -> int:
        return self.database_us + round((monotonic_s - self.asked_s) * 1e6)

    def wait_s(self, us: int, monotonic_s: float) -> float:
        """How long until an instant is certainly reached; negative when it was."""
        return (us - self.earliest_us(monotonic_s)) / 1e6
