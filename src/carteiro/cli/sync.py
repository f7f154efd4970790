"""`carteiro sync`: exits 1 when a provider did not answer."""

import asyncio

import rich_click as click

from carteiro.bootstrap import Providers
from carteiro.cli.session import with_pool
from carteiro.services.sync import SyncReport, sync_now
from carteiro.settings import Settings
from carteiro.storage.pool import Pool


@click.command()
def sync() -> None:
    """Read from the providers how senders, limits and templates stand, and apply it: what workers do on a schedule."""
    settings = Settings.from_environment()

    async def work(pool: Pool) -> SyncReport:
        providers = Providers(pool, settings)
        try:
            return await sync_now(pool, settings, providers.of_service)
        finally:
            await providers.close()

    report = asyncio.run(with_pool(work))
    for line in report.changes:
        click.echo(line)
    if not report.changes:
        click.echo("no changes")
    for line in report.unlisted:
        click.echo(f"warning: the provider says nothing of {line}", err=True)
    for line in report.unanswered:
        click.echo(f"error: no answer: {line}", err=True)
    if report.unanswered:
        raise SystemExit(1)
