"""`carteiro audit`: exits 1 when a promise is broken."""

import asyncio
import json
from datetime import timedelta
from functools import partial
from typing import Any

import rich_click as click
from rich.console import Console
from rich.table import Table

from carteiro.cli.session import with_pool
from carteiro.services.audit import EVERYTHING, ROWS, Finding, examine


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Machine-readable output.")
@click.option("--days", type=click.FloatRange(min=0), help="Look back so many days; as far as audit.setting says else.")
@click.option("--all", "everything", is_flag=True, help="Look at every batch there is.")
@click.option("--rows", type=click.IntRange(min=1), default=ROWS, show_default=True, help="Rows of each view to show.")
def audit(as_json: bool, days: float | None, everything: bool, rows: int) -> None:
    """Check every promise: reads all audit.violation_* views, which must be empty. Exits 1 on any row."""
    if everything:
        lookback: timedelta | None = EVERYTHING
    else:
        lookback = timedelta(days=days) if days is not None else None
    try:
        findings = asyncio.run(with_pool(partial(examine, limit=rows, lookback=lookback)))
    except LookupError as error:
        raise click.ClickException(str(error.args[0])) from error
    if as_json:
        click.echo(json.dumps([_plain(finding) for finding in findings], default=str, indent=2))
    else:
        _show(findings, Console())
    if any(finding.count for finding in findings):
        raise SystemExit(1)


def _plain(finding: Finding) -> dict[str, Any]:
    return {"view": finding.view, "promise": finding.promise, "count": finding.count, "rows": finding.rows}


def _show(findings: list[Finding], console: Console) -> None:
    summary = Table("view", "rows", "promise", box=None, pad_edge=False)
    for finding in findings:
        summary.add_row(finding.view, str(finding.count), finding.promise.split(" Cost:")[0])
    console.print(summary)
    for finding in findings:
        if finding.count:
            console.print(f"\n{finding.view}: {finding.count} rows", highlight=False)
            for row in finding.rows:
                console.print("  " + _in_words(row), highlight=False, markup=False, soft_wrap=True)


def _in_words(row: dict[str, Any]) -> str:
    """One breach on one line: what, where, expected, found, by how much."""
    where = [f"{name} {row[name]}" for name in ("batch_id", "seq", "subject", "at") if row[name] is not None]
    off_by = "" if row["off_by"] is None else f", off by {row['off_by']}"
    return f"{row['what']}: {', '.join(where)}; expected {row['expected']}, found {row['found']}{off_by}"
