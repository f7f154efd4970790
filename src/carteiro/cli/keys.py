"""`carteiro keys`."""

import asyncio
from datetime import UTC, datetime

import rich_click as click

from carteiro.cli.session import with_pool
from carteiro.domain.errors import NotFound
from carteiro.services import api_keys
from carteiro.services.accounts import read_callback_secret


@click.group()
def keys() -> None:
    """API keys of accounts, and the secret of their callbacks."""


@keys.command()
@click.argument("account")
@click.option(
    "--scope", "scopes", multiple=True, type=click.Choice(api_keys.SCOPES), help="Repeat for several; all of them else."
)
@click.option("--name", default="", help="What it is for, as `keys list` shows it.")
@click.option(
    "--expires",
    type=click.DateTime(formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S%z"]),
    help="A day (its beginning in UTC), or a time with offset.",
)
@click.option("--owner", help="The person of the directory on whose behalf it speaks: what broadcasts are allowed by.")
def create(account: str, scopes: tuple[str, ...], name: str, expires: datetime | None, owner: str | None) -> None:
    """Make a key of ACCOUNT and print it. It cannot be shown again."""
    if expires is not None and expires.tzinfo is None:
        expires = expires.replace(tzinfo=UTC)
    try:
        key = asyncio.run(
            with_pool(
                lambda pool: api_keys.create(
                    pool,
                    account,
                    scopes=scopes or api_keys.SCOPES,
                    name=name,
                    expires_at=expires,
                    owner_id=owner or None,
                )
            )
        )
    except LookupError as error:
        raise click.ClickException(str(error.args[0])) from error
    click.echo(key)


@keys.command()
@click.argument("account")
def callback_secret(account: str) -> None:
    """Print what ACCOUNT checks the signatures of its callbacks with (Standard Webhooks)."""
    try:
        secret = asyncio.run(with_pool(lambda pool: read_callback_secret(pool, account)))
    except NotFound as error:
        raise click.ClickException(error.detail) from error
    click.echo(secret)


@keys.command()
@click.argument("key_id")
def revoke(key_id: str) -> None:
    """End the key with this id (of `keys list`) for good."""
    if not asyncio.run(with_pool(lambda pool: api_keys.revoke(pool, key_id))):
        raise click.ClickException(f"there is no key {key_id}, or it was revoked before")
    click.echo(f"{key_id} is revoked")


@keys.command(name="list")
@click.argument("account", required=False)
def list_keys(account: str | None) -> None:
    """Keys of ACCOUNT, or of all accounts, without their secrets."""
    for key in asyncio.run(with_pool(lambda pool: api_keys.read_list(pool, account))):
        state = "revoked" if key.revoked_at else _expiry(key.expires_at)
        used = f"used {key.last_used_at:%Y-%m-%d %H:%M}" if key.last_used_at else "never used"
        owner = [f"owner {key.owner_id}"] if key.owner_id else []
        click.echo("  ".join([key.id, key.account_id, state, used, ",".join(key.scopes), *owner, key.name]).rstrip())


def _expiry(expires_at: datetime | None) -> str:
    if expires_at is None:
        return "valid"
    return f"{'expired' if expires_at <= datetime.now(UTC) else 'until'} {expires_at:%Y-%m-%d %H:%M}"
