"""`carteiro catalog apply`."""

import asyncio
from pathlib import Path

import rich_click as click

from carteiro.cli.session import with_pool
from carteiro.services.catalog import CatalogError, Change, apply_catalog, read_unlimited
from carteiro.settings import Settings
from carteiro.storage.pool import Pool


@click.group()
def catalog() -> None:
    """Services, business managers, senders and templates, as a TOML file describes them."""


@catalog.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--dry-run", is_flag=True, help="Show what would change and change nothing.")
def apply(file: Path, dry_run: bool) -> None:
    """Make the database equal to FILE: show what differs, then change it in one transaction."""
    text, settings = file.read_text(encoding="utf-8"), Settings.from_environment()

    async def work(pool: Pool) -> tuple[list[Change], list[tuple[str, str]]]:
        changes = await apply_catalog(pool, text, dry_run=dry_run, settings=settings)
        return changes, [] if dry_run else await read_unlimited(pool)

    try:
        changes, unlimited = asyncio.run(with_pool(work))
    except CatalogError as error:
        raise click.ClickException("\n".join([f"{file} is not a valid catalog:", *error.faults])) from error
    for change in changes:
        for line in change.lines():
            click.echo(line)
    if not changes:
        click.echo("no changes")
    elif dry_run:
        click.echo(f"{len(changes)} rows would change; nothing was changed")
    else:
        click.echo(f"{len(changes)} rows changed")
    for manager, why in unlimited:
        click.echo(f"warning: business manager {manager} has no daily limit that is known: {why}", err=True)
