"""`make bench`: measure on this machine and write docs/benchmarks.md."""

import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path

from jinja2 import Environment, StrictUndefined

from tests.benchmarks.bed import LATENCY_MS, test_bed
from tests.benchmarks.creation import measure_creation
from tests.benchmarks.dispatch import IN_FLIGHT, MESSAGES, measure_floor, measure_ours
from tests.benchmarks.streaming import SMALL_PER_S, measure_streaming

PAGE = Path(__file__).parents[2] / "docs" / "benchmarks.md"
TEMPLATE = Path(__file__).parent / "page.md.j2"
SHOWN = ("server_version", "fsync", "synchronous_commit", "shared_buffers", "max_connections")


def main() -> None:
    with test_bed() as bed:
        creation = measure_creation(bed)
        floors = [measure_floor(bed, processes) for processes in (1, 2)]
        rates = [measure_ours(bed, workers) for workers in (1, 2)]
        streaming = measure_streaming(bed)
        settings = {name: bed.scalar(f"SHOW {name}") for name in SHOWN}
    template = Environment(undefined=StrictUndefined).from_string(TEMPLATE.read_text())
    text = template.render(
        day=f"{datetime.now(UTC):%Y-%m-%d}",
        commit=_commit(),
        cores=os.cpu_count(),
        python=platform.python_version(),
        settings=settings,
        latency_ms=f"{LATENCY_MS:g}",
        messages=MESSAGES,
        in_flight=IN_FLIGHT,
        creation=creation,
        streaming=streaming,
        small_per_s=SMALL_PER_S,
        floors=floors,
        pairs=list(zip(rates, floors, strict=True)),
    )
    PAGE.write_text(text.rstrip() + "\n")
    print(text)


def _commit() -> str:
    command = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    main()
