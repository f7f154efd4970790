"""When a message that certainly did not leave is tried again."""

from hashlib import sha256

LONGEST_S = 30.0
"""Of a batch that sets no delay of its own: 1 s, doubled each time, up to this."""
MULTIPLIER_MAX = 8
JITTER = 0.1
"""Of a batch that sets one: up to this part of the delay is added, so that what failed together does not return
together."""


def attempt_delay_s(base_s: float | None, attempt: int, message_id: str) -> float:
    """The delay after failed call number `attempt` (from 1).

    With a base it lies in [base x n, base x n x (1 + JITTER)), n = min(attempt, MULTIPLIER_MAX), and is the same
    whenever it is asked for: the jitter is drawn from the message's id and the attempt.
    """
    if base_s is None:
        return float(min(LONGEST_S, 2.0 ** min(attempt - 1, 10)))
    return base_s * min(attempt, MULTIPLIER_MAX) * (1 + JITTER * _draw(message_id, attempt))


def _draw(message_id: str, attempt: int) -> float:
    """In [0, 1), evenly."""
    return int.from_bytes(sha256(f"{message_id}/{attempt}".encode()).digest()[:4]) / 2**32
