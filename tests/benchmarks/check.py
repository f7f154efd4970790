"""`make bench-check`: ours beside the floor, in one run of less than a minute; fails when it has become too slow."""

import sys

from tests.benchmarks.bed import test_bed
from tests.benchmarks.dispatch import Setting, measure_round

MESSAGES = 5_000
ROUNDS = 3
"""The best counts: what else runs on the machine only ever lowers it."""
LEAST = 0.7
"""Of the floor, one worker beside one bare loop of the same client."""


def main() -> int:
    ratios = []
    with test_bed() as bed:
        for _ in range(ROUNDS):
            measured = measure_round(bed, Setting(workers=1, messages=MESSAGES))
            ratios.append(measured.ratio)
            floor, ours = measured.floor.per_second, measured.ours.per_second
            print(f"floor {floor:,.0f}/s, ours {ours:,.0f}/s: {measured.ratio:.2f}")
            if measured.ratio >= LEAST:
                return 0
    print(f"{max(ratios):.2f} of the floor at best, and {LEAST} is the least", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
