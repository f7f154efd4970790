"""The table of runs in docs/reliability.md."""

import re
from pathlib import Path

from tests.chaos.run import Run

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"
BEGIN, END = "<!-- runs:begin -->", "<!-- runs:end -->"
HEAD = """\
| faults | seed | seconds | messages | calls | witnessed | unknown | apart | fullest window | struck | result |
|---|---|---|---|---|---|---|---|---|---|---|"""


def append(done: Run) -> None:
    """Add a row to the page, and the sums above it."""
    page = PAGE.read_text(encoding="utf-8")
    before, rest = page.split(BEGIN)
    inside, after = rest.split(END)
    rows = [line for line in inside.splitlines() if re.match(r"\| [a-z]", line) and not line.startswith("| faults ")]
    rows.append(row(done))
    text = "\n".join([before + BEGIN, "", sums(rows), "", HEAD, *rows, END + after])
    PAGE.write_text(text, encoding="utf-8")


def sums(rows: list[str]) -> str:
    cells = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in rows]
    seconds, messages, calls = (sum(int(row[place] or 0) for row in cells) for place in (2, 3, 4))
    failed = sum(row[-1] != "passed" for row in cells)
    return (
        f"{len(rows)} runs, {seconds / 60:.0f} minutes, {messages:,} messages, {calls:,} calls; {failed} runs failed."
    )


def row(done: Run) -> str:
    verdict = done.verdict
    cells = [
        done.faults,
        done.seed,
        round(done.seconds),
        verdict.messages,
        verdict.calls,
        verdict.witnessed,
        verdict.unknown,
        verdict.apart,
        "" if verdict.fullest is None else f"{verdict.fullest:.2f}",
        struck(done),
        f"**{len(done.findings)} findings**" if done.findings else "passed",
    ]
    return f"| {' | '.join(map(str, cells))} |"


def struck(done: Run) -> str:
    """What the faults did, in words."""
    return ", ".join(what if n == 1 else f"{n} {what}" for what, n in done.did.items())
