"""From the first byte of a JSON request to its 202."""

from dataclasses import dataclass

from tests.benchmarks.bed import Bed, contacts

SIZES = (1_000, 10_000, 100_000)
RUNS = 3
LATER = "2099-01-01T00:00:00Z"


@dataclass(frozen=True)
class Creation:
    contacts: int
    best_s: float
    worst_s: float


def measure_creation(bed: Bed) -> list[Creation]:
    """Scheduled batches, so that nothing is dispatched meanwhile; each run with contacts of its own."""
    figures = []
    for size in SIZES:
        runs = [bed.post_batch(contacts(size, first=10_000_000 + run), scheduled_at=LATER)[1] for run in range(RUNS)]
        figures.append(Creation(size, min(runs), max(runs)))
    return figures
