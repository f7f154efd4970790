"""How long a small batch takes while a large one runs on the same business managers."""

import time
from dataclasses import dataclass

from tests.benchmarks.bed import Bed, contacts, wait_until

LARGE, SMALL, TRIES = 100_000, 10, 5


@dataclass(frozen=True)
class Fairness:
    seconds: tuple[float, ...]
    """From the answer to the POST of ten contacts to the last of them sent; each try a new batch."""


def measure_fairness(bed: Bed) -> Fairness:
    bed.simulator("POST", "reset")
    bed.simulator("POST", "settings", {"latency_ms": 20.0})
    bed.execute("UPDATE service SET messages_per_request = 1")
    bed.start_workers(2)
    large, _ = bed.post_batch(contacts(LARGE, first=bed.take(LARGE)))
    wait_until(lambda: bed.sent([large]) > 2_000, "the large batch is under way", 60)
    seconds = []
    for _ in range(TRIES):
        small, _ = bed.post_batch(contacts(SMALL, first=bed.take(SMALL)))
        began_s = time.perf_counter()
        wait_until(lambda small=small: bed.sent([small]) == SMALL, "the small batch is sent", 60, every_s=0.01)
        seconds.append(time.perf_counter() - began_s)
    if bed.sent([large]) >= LARGE:
        raise RuntimeError("the large batch was over before the small ones")
    bed.cancel(large)
    bed.stop_workers()
    return Fairness(tuple(seconds))
