"""`make bench`: measure on this machine and write docs/benchmarks.md."""

import os
import platform
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from tests.benchmarks.bed import LATENCY_MS, Bed, test_bed
from tests.benchmarks.claims import ROWS, measure_claims
from tests.benchmarks.creation import measure_creation
from tests.benchmarks.database import measure_database
from tests.benchmarks.dispatch import IN_FLIGHT, measure_dispatch
from tests.benchmarks.fairness import LARGE, measure_fairness
from tests.benchmarks.idle import measure_idle
from tests.benchmarks.million import measure_million
from tests.benchmarks.peers.measure import MESSAGES, measure_peers
from tests.benchmarks.receipts import measure_receipts
from tests.benchmarks.streaming import SMALL_PER_S, measure_streaming
from tests.benchmarks.targets import judge
from tests.benchmarks.transaction import measure_old_transaction

PAGE = Path(__file__).parents[2] / "docs" / "benchmarks.md"
TEMPLATE = Path(__file__).parent / "page.md.j2"
SHOWN = ("server_version", "fsync", "synchronous_commit", "shared_buffers", "max_connections")


ENTRIES: dict[str, Callable[[Bed], dict[str, Any]]] = {
    "creation": lambda bed: {"creation": measure_creation(bed)},
    "dispatch": lambda bed: {"dispatch": measure_dispatch(bed)},
    "peers": lambda bed: {"peers": measure_peers(bed), "peer_messages": MESSAGES},
    "receipts": lambda bed: {"receipts": measure_receipts(bed)},
    "fairness": lambda bed: {"fairness": measure_fairness(bed), "large": LARGE},
    "idle": lambda bed: {"idle": measure_idle(bed)},
    "claims": lambda bed: {"claims": measure_claims(bed), "claim_rows": ROWS},
    "transaction": lambda bed: {"transaction": measure_old_transaction(bed)},
    "database": lambda bed: {"database": measure_database(bed)},
    "million": lambda bed: {"million": measure_million(bed)},
    "streaming": lambda bed: {"streaming": measure_streaming(bed), "small_per_s": SMALL_PER_S},
}


def main(names: Sequence[str]) -> None:
    """`python -m tests.benchmarks [entry ...]`: all of them write the page, some are only shown.

    Each on a bed of its own: what one leaves behind, batches to be settled or bloat, is not measured with the next.
    """
    measured: dict[str, Any] = {}
    for name in names or ENTRIES:
        with test_bed() as bed:
            measured |= ENTRIES[name](bed)
            settings = {name: bed.scalar(f"SHOW {name}") for name in SHOWN}
    template = Environment(undefined=StrictUndefined, trim_blocks=True).from_string(TEMPLATE.read_text())
    text = template.render(
        day=f"{datetime.now(UTC):%Y-%m-%d}",
        commit=_commit(),
        cores=os.cpu_count(),
        python=platform.python_version(),
        settings=settings,
        latency_ms=f"{LATENCY_MS:g}",
        in_flight=IN_FLIGHT,
        load=f"{os.getloadavg()[2]:.1f}",
        targets=judge(measured),
        **measured,
    )
    if not names:
        PAGE.write_text(text.rstrip() + "\n")
    print(text)


def _commit() -> str:
    command = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    main(sys.argv[1:])
