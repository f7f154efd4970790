"""`make bench`: measure on this machine and write docs/benchmarks.md."""

import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path

from carteiro.embedded import find_binaries
from tests.benchmarks.bed import test_bed
from tests.benchmarks.creation import Creation, measure_creation
from tests.benchmarks.dispatch import IN_FLIGHT, MESSAGES, Rate, measure_floor, measure_ours

PAGE = Path(__file__).parents[2] / "docs" / "benchmarks.md"
LATENCY_MS = 20.0


def main() -> None:
    with test_bed(latency_ms=LATENCY_MS) as bed:
        creation = measure_creation(bed)
        floors = [measure_floor(bed, processes) for processes in (1, 2)]
        rates = [measure_ours(bed, workers) for workers in (1, 2)]
        settings = {
            name: bed.scalar(f"SHOW {name}")
            for name in ("server_version", "fsync", "synchronous_commit", "shared_buffers", "max_connections")
        }
    text = page(creation, floors, rates, settings)
    PAGE.write_text(text)
    print(text)


def page(creation: list[Creation], floors: list[Rate], rates: list[Rate], settings: dict[str, str]) -> str:
    lines = [
        "# Benchmarks",
        "",
        "Written by `make bench` on the machine named below; everything (Postgres, API, workers, simulator) shares its
        cores.", "Absolute figures are this machine's; ratios within one run travel.",
        "",
        f"- {datetime.now(UTC):%Y-%m-%d}, commit {_commit()}, {os.cpu_count()} cores, Python
        {platform.python_version()}", f"- Postgres {', '.join(f'{name} {value}' for name, value in settings.items())}
        ({find_binaries().source})", f"- provider: the simulator as a process of its own, {LATENCY_MS:g} ms to each
        answer, receipts off, one message a request", "",
        "## Dispatch",
        "",
        f"{MESSAGES:,} messages of one batch over ten senders, no limit in the way; credits, capacity, pacing and
        audit on.", "Ours counts from the first slot to the last answer, the climb to full speed included. The floor
        is the same HTTP", f"client in bare loops with {IN_FLIGHT} calls in flight a process and no database.",
        "",
        "| run | messages/s | of the floor with as many processes | commits a message | WAL bytes a message |",
        "|---|---|---|---|---|",
    ]
    lines += [f"| {floor.name} | {floor.per_second:,.0f} | 1.00 | | |" for floor in floors]
    lines += [
        f"| {rate.name} | {rate.per_second:,.0f} | {rate.per_second / floor.per_second:.2f} | {rate.commits:.3f} "
        f"| {rate.wal_bytes:,.0f} |"
        for rate, floor in zip(rates, floors, strict=True)
    ]
    lines += [
        "",
        "## Creation",
        "",
        "One JSON request, from its first byte to the 202: decoded, validated, deduplicated, stored, credits and
        capacity taken.", "",
        "| contacts | best s | worst s | contacts/s |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {made.contacts:,} | {made.best_s:.3f} | {made.worst_s:.3f} | {made.contacts / made.best_s:,.0f} |" for
        made in creation
    ]
    return "\n".join([*lines, "", *_bounds()]) + "\n"


def _bounds() -> list[str]:
    return [
        "## What bounds it",
        "",
        "Dispatch is bound by the processors: a call costs a worker about as much as the floor's loop, and the
        simulator and", "Postgres take their share of the same cores. A worker asks for no more slots than it has
        shown it can start in time", "(`services/dispatch/spacing.py`), so a busy machine lowers the rate instead of
        missing slots. Creation is bound by", "decoding and validating the JSON and by COPY into two tables.",
    ]


def _commit() -> str:
    return subprocess.run(["git", "rev-parse", "--short", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    main()
