"""How fast one worker process may ask for slots: a claim wider than the process can send would only miss its slots."""

FIRST_RATE_PER_S = 400.0
LOWEST_RATE_PER_S = 20.0
HIGHEST_RATE_PER_S = 20_000.0
FIRST_GROWTH = 2.0
"""Until the rate was too high for the first time."""
GROWTH = 1.1
BACK_OFF = 0.85
FIRST_LEAD_S = 0.015
LONGEST_LEAD_S = 0.2


class Lead:
    """How long one process lately took from reading the clock to the claim's commit: slots begin this much later, or
    the first ones would be missed.

    Of the process, not of a pump: one that ends after a single message has nothing to learn from.
    """

    def __init__(self) -> None:
        self.seconds = FIRST_LEAD_S
        self._learnt = False

    def learn(self, claim_s: float) -> None:
        """After a claim that took so long."""
        weight = 0.3 if self._learnt else 1.0
        self.seconds = min(LONGEST_LEAD_S, self.seconds * (1 - weight) + claim_s * 1.2 * weight)
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

    @property
    def lead_s(self) -> float:
        return self._lead.seconds

    @property
    def gap_us(self) -> int:
        """Distance between two slots of this process."""
        return max(1, round(1e6 / self.rate_per_s))

    def rows_in(self, seconds: float) -> int:
        return max(1, round(self.rate_per_s * seconds))

    def learn(self, *, lag_s: float, rate_per_s: float, filled: bool) -> None:
        """After a slice: the lag of most of its starts, the rate it was planned at, and whether that was what bounded
        it (`filled`). The rate may have grown since: what was too high then is too high now.
        """
        if lag_s > self._lateness_s * 0.6:
            back_off = BACK_OFF if self._growth == GROWTH else 1 / FIRST_GROWTH
            self.rate_per_s = max(LOWEST_RATE_PER_S, min(self.rate_per_s, rate_per_s * back_off))
            self._growth = GROWTH
        elif filled and lag_s < self._lateness_s * 0.4:
            self.rate_per_s = min(HIGHEST_RATE_PER_S, self.rate_per_s * self._growth)

    def learn_claim(self, seconds: float) -> None:
        """After a claim: how long it took from the clock's reading to the commit."""
        self._lead.learn(seconds)
