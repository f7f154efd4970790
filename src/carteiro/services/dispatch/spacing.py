"""How fast one worker process may ask for slots: a claim wider than the process can send would only miss its slots."""

FIRST_RATE_PER_S = 400.0
LOWEST_RATE_PER_S = 20.0
HIGHEST_RATE_PER_S = 20_000.0
FIRST_GROWTH = 2.0
"""Until the rate was too high for the first time."""
GROWTH = 1.05
"""At first after the rate was too high; more and more while it is not: what slowed the worker down may be over."""
GROWTH_STEP = 0.03
GROWTH_MAX = 1.3
BACK_OFF = 0.9
TOO_LATE = 0.5
"""Part of the tolerated lateness from which on the rate is too high: some calls of the slice will miss their slots."""
IN_TIME = 0.2
"""Part of it up to which the rate may grow."""
FIRST_LEAD_S = 0.015
LONGEST_LEAD_S = 0.15


class Lead:
    """How long the claims of one process lately took.

    Of the process, not of a pump: one that ends after a single message has nothing to learn from.
    """

    def __init__(self) -> None:
        self.seconds = FIRST_LEAD_S
        """From reading the clock to the commit: slots begin this much later, or the first ones would be missed."""
        self.whole_s = FIRST_LEAD_S
        """The wait for the locks included: the next claim begins this much before the last slot of the one before."""
        self._learnt = False

    def learn(self, seconds: float, whole_s: float) -> None:
        """After a claim that took so long."""
        weight = 0.3 if self._learnt else 1.0
        self.seconds = min(LONGEST_LEAD_S, self.seconds * (1 - weight) + seconds * 1.2 * weight)
        self.whole_s = min(LONGEST_LEAD_S, self.whole_s * (1 - weight) + whole_s * 1.2 * weight)
        self._learnt = True


class Spacing:
    """Multiplicative control by the lag between slot and start: grows while calls start in time, backs off before
    slots are missed.

    By the lag that most calls of a slice stay within, not by the worst: a machine that is busy with other things holds
    up a few calls at any rate, and asking for less would not help them.
    """

    def __init__(self, lateness_s: float, lead: Lead | None = None) -> None:
        self._lateness_s = lateness_s
        self._lead = lead or Lead()
        self._growth = FIRST_GROWTH
        self.rate_per_s = FIRST_RATE_PER_S
        self._free_us = 0

    @property
    def lead_s(self) -> float:
        return self._lead.seconds

    def claim_s(self, slice_s: float) -> float:
        """How long before the last slot of a claim the next one should begin: a slice at most, so that no more than two
        are in hand.
        """
        return min(self._lead.whole_s, slice_s)

    def start_us(self, now_us: int, slice_s: float) -> int:
        """When the first slot of a claim may be, by the database's clock: after its commit, and after the slots that
        this worker has already. Should that clock have been set back, no more than a slice later.
        """
        soonest_us = now_us + round(self.lead_s * 1e6)
        return max(soonest_us, min(self._free_us, soonest_us + round(slice_s * 1e6)))

    def reach_s(self, slice_s: float) -> float:
        """From reading the clock to the last slot that a claim may get, at most."""
        return LONGEST_LEAD_S + 2 * slice_s

    @property
    def gap_us(self) -> int:
        """Distance between two slots of this process."""
        return max(1, round(1e6 / self.rate_per_s))

    def rows_in(self, seconds: float) -> int:
        return max(1, round(self.rate_per_s * seconds))

    def learn(self, *, lag_s: float, rate_per_s: float, filled: bool) -> None:
        """After a slice: the lag of most of its starts, the rate it was planned at, and whether that was what bounded
        it (`filled`). The rate may have grown since: what was too high then is too high now, and what was not proves
        nothing.
        """
        if lag_s > self._lateness_s * TOO_LATE:
            back_off = 1 / FIRST_GROWTH if self._growth == FIRST_GROWTH else BACK_OFF
            self.rate_per_s = max(LOWEST_RATE_PER_S, min(self.rate_per_s, rate_per_s * back_off))
            self._growth = GROWTH
        elif filled and lag_s < self._lateness_s * IN_TIME and rate_per_s >= self.rate_per_s:
            self.rate_per_s = min(HIGHEST_RATE_PER_S, self.rate_per_s * self._growth)
            if self._growth != FIRST_GROWTH:
                self._growth = min(GROWTH_MAX, self._growth + GROWTH_STEP)

    def learn_claim(self, *, seconds: float, whole_s: float, last_slot_us: int | None) -> None:
        """After a claim: how long it took from the clock's reading to the commit, how long in all, and the last slot
        that it got; None where the next claim's slots may lie beside them.
        """
        self._lead.learn(seconds, whole_s)
        if last_slot_us is not None:
            self._free_us = last_slot_us + self.gap_us
