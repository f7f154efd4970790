"""`carteiro migrate`."""

import rich_click as click
from sqlalchemy.exc import OperationalError

from carteiro.settings import Settings
from carteiro.storage.migrations import migrate as migrate_database


@click.command()
def migrate() -> None:
    """Bring the database of CARTEIRO_DATABASE_URL to this release's schema. Safe to run twice, and at the same time."""
    dsn = Settings.from_environment().require_database_url()
    try:
        before, after = migrate_database(dsn)
    except OperationalError as error:
        raise click.ClickException(f"the database cannot be reached: {error.orig}") from error
    click.echo(f"already at revision {after}" if before == after else f"migrated from {before or 'nothing'} to {after}")
