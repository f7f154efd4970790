"""`carteiro retention`: exits 1 when it could not finish."""

import asyncio

import rich_click as click

from carteiro.cli.session import with_pool
from carteiro.services.retention import retain
from carteiro.settings import Settings


@click.command()
@click.option("--dry-run", is_flag=True, help="Show what would go and what is kept, and touch nothing.")
def retention(dry_run: bool) -> None:
    """Let go of messages, history and receipts that are old enough: what workers do every hour."""
    settings = Settings.from_environment()
    report = asyncio.run(with_pool(lambda pool: retain(pool, settings, dry_run=dry_run)))
    if report is None:
        raise click.ClickException("another process is at it")
    for name in report.dropped:
        click.echo(f"{'would drop' if dry_run else 'dropped'} {name}")
    for what, rows in report.pruned.items():
        if rows:
            click.echo(f"deleted {rows} {what.replace('_', ' ')}")
    for line in report.kept:
        click.echo(f"kept {line}")
    for name in report.busy:
        click.echo(f"error: {name} is in use: it is tried again every hour", err=True)
    if not (report.dropped or report.kept or report.busy or any(report.pruned.values())):
        click.echo("nothing is old enough")
    if report.busy:
        raise SystemExit(1)
