"""From the first byte of a JSON request to its 202."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from tests.benchmarks.bed import Bed, contacts

SIZES = (1_000, 10_000, 100_000)
RUNS = 3


@dataclass(frozen=True)
class Creation:
    contacts: int
    best_s: float
    worst_s: float


def measure_creation(bed: Bed) -> list[Creation]:
    """Scheduled batches, so that nothing is dispatched meanwhile; each run with contacts of its own."""
    later = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    figures = []
    for size in SIZES:
        runs = [bed.post_batch(contacts(size, bed.take(size)), scheduled_at=later)[1] for _ in range(RUNS)]
        figures.append(Creation(size, min(runs), max(runs)))
    return figures
