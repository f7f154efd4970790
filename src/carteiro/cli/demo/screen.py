"""What the demo shows: steps with their times, live progress, the verdict."""

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from carteiro.cli.demo.evidence import Evidence
from carteiro.cli.demo.verdicts import Verdict

PLAIN_EVERY_S = 1.0
SENT_STATES = ("sent", "delivered", "seen", "failed")
BAR_WIDTH = 24


class Screen:
    """Times are since the demo began."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began_s = time.monotonic()

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._began_s

    def say(self, line: str = "") -> None:
        self._console.print(line, highlight=False, markup=False, soft_wrap=True)

    def step(self, what: str) -> None:
        self.say(f"{self.elapsed_s:5.1f} s  {what}")

    def progress(self) -> "Progress":
        return Progress(self, self._console)

    def show_result(self, evidence: Evidence) -> None:
        money, counts = evidence.batch["money"], evidence.batch["counts"]
        self.say()
        self.say("sender         messages taken by the provider")
        for sender, count in sorted(evidence.per_sender().items()):
            self.say(f"{sender:<14} {count:>4}")
        self.say()
        outcomes = ", ".join(f"{counts[state]:,} {state}" for state in SENT_STATES if counts[state])
        self.say(f"outcomes       {outcomes}")
        self.say(
            f"credits        {evidence.credits_before:,} before, {money['debited']:,} debited, "
            f"{money['charged']:,} charged, {money['refunded']:,} refunded, {evidence.credits_after:,} after"
        )
        self.say()

    def show_verdicts(self, verdicts: Sequence[Verdict]) -> None:
        for verdict in verdicts:
            self.say(f"{'FAILED' if verdict.problems else 'ok':<7} {verdict.promise}")
            for problem in verdict.problems:
                self.say(f"        {problem}")


class Progress:
    """One line that changes on a terminal; else a line now and then, whenever something has changed."""

    def __init__(self, screen: Screen, console: Console) -> None:
        self._screen = screen
        self._live = Live(console=console, refresh_per_second=10, transient=False) if console.is_terminal else None
        self._last_line = ""
        self._next_line_s = 0.0

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, batch: Mapping[str, Any]) -> None:
        line = describe(batch, datetime.now(UTC))
        if self._live is not None:
            row = Table.grid(padding=(0, 1))
            row.add_row(
                f"{self._screen.elapsed_s:5.1f} s ", ProgressBar(batch["total"], sent(batch), width=BAR_WIDTH), line
            )
            self._live.update(row)
        elif line != self._last_line and (self._screen.elapsed_s >= self._next_line_s or batch["settled_at"]):
            self._screen.step(line)
            self._last_line = line
            self._next_line_s = self._screen.elapsed_s + PLAIN_EVERY_S


def sent(batch: Mapping[str, Any]) -> int:
    return sum(batch["counts"][state] for state in SENT_STATES)


def describe(batch: Mapping[str, Any], now: datetime) -> str:
    """A batch on one line: how many of how many, how fast, how long still, and where all its messages are."""
    if batch["settled_at"] is not None:
        pace = "settled"
    elif sent(batch) == batch["total"]:
        pace = "waiting for receipts"
    elif batch["blocked_by"]:
        pace = f"waits for {batch['blocked_by']}"
    elif batch["eta_at"] is None:
        pace = "starting"
    else:
        left_s = max(0.0, (datetime.fromisoformat(batch["eta_at"]) - now).total_seconds())
        pace = f"{batch['rate_per_s']:.0f}/s, ETA {left_s:.0f} s"
    states = ", ".join(f"{count:,} {state}" for state, count in batch["counts"].items() if count)
    return f"{sent(batch):,} of {batch['total']:,} sent; {pace}; {states}"
