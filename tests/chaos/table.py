"""The table of runs in docs/reliability.md."""

from pathlib import Path

from tests.chaos.run import Run

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"


def append(done: Run) -> None:
    """Add a row at the end of the page."""
    with PAGE.open("a", encoding="utf-8") as page:
        page.write(row(done) + "\n")


def row(done: Run) -> str:
    """fault | seed | seconds | batches | messages | calls | unknown | apart | recovery | result"""
    verdict = done.verdict
    recovery = "" if verdict.recovery_s is None else f"{verdict.recovery_s:.1f} s"
    cells = [
        done.faults,
        done.seed,
        round(done.seconds),
        verdict.batches,
        verdict.messages,
        verdict.calls,
        verdict.unknown,
        verdict.apart or "",
        recovery,
        f"**{len(done.findings)} findings**" if done.findings else "passed",
    ]
    return f"| {' | '.join(map(str, cells))} |"
