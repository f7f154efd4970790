"""A million contacts, from the first byte of their stream to the settlement: memory, pace, what was promised."""

import json
import time
from dataclasses import dataclass

from tests.benchmarks.bed import LATENCY_MS, Bed, peak_mb, wait_until
from tests.benchmarks.streaming import ndjson, post_stream

CONTACTS = 1_000_000
WORKERS = 2
TOGETHER = 100
PARTS = 10
"""The rate of the first and the last of so many parts is told: a cost that grows with the cursor would show."""
ASSUMED_AFTER_S = 3.0
"""Nobody tells what became of the messages, so that the batch is settled by what is assumed: soon, for once."""
LONGEST_S = 900.0


@dataclass(frozen=True)
class Million:
    contacts: int
    created_s: float
    sent_s: float
    """From the 202 to the last message sent."""
    first_rate: float
    last_rate: float
    """Messages a second, in the first and the last of PARTS."""
    settled_s: float
    """From the last message sent to the batch's settlement."""
    worker_mb: tuple[float, ...]
    """Largest resident memory of each worker at the end."""
    api_mb: float
    requests: int
    repeated: int
    """Message ids that the simulator got more than once."""
    views: int
    """Of broken promises, all of them empty: `carteiro audit --all` fails where one is not."""


def measure_million(bed: Bed) -> Million:
    bed.simulator("POST", "reset")
    bed.simulator("POST", "settings", {"latency_ms": LATENCY_MS})
    bed.execute(f"UPDATE service SET messages_per_request = {TOGETHER}")
    bed.start_workers(WORKERS, {"CARTEIRO_ASSUME_DELIVERED_AFTER_S": f"{ASSUMED_AFTER_S:g}"})
    batch, created_s, _ = post_stream(bed, ndjson(CONTACTS, first=bed.take(CONTACTS)), CONTACTS)
    began_s = time.perf_counter()
    reached_s = [0.0]
    for part in range(1, PARTS + 1):
        until = CONTACTS * part // PARTS
        wait_until(lambda until=until: bed.sent([batch]) >= until, f"{until:,} messages sent", LONGEST_S, every_s=0.2)
        reached_s.append(time.perf_counter() - began_s)
    wait_until(
        lambda: bed.scalar(f"SELECT settled_at FROM batch WHERE id = '{batch}'"), "the settlement", LONGEST_S, 0.2
    )
    settled_s = time.perf_counter() - began_s
    worker_mb = tuple(peak_mb(worker) for worker in bed.workers)
    bed.stop_workers()
    stats = bed.simulator("GET", "stats")
    views = json.loads(bed.carteiro("audit", "--all", "--json"))
    each = CONTACTS / PARTS
    return Million(
        contacts=CONTACTS,
        created_s=created_s,
        sent_s=reached_s[-1],
        first_rate=each / reached_s[1],
        last_rate=each / (reached_s[-1] - reached_s[-2]),
        settled_s=settled_s - reached_s[-1],
        worker_mb=worker_mb,
        api_mb=peak_mb(bed.api),
        requests=stats["requests"]["send"],
        repeated=stats["repeated_message_ids"],
        views=len(views),
    )
