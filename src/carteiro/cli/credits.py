"""`carteiro credits`."""

import asyncio
import getpass

import rich_click as click

from carteiro.cli.session import with_pool
from carteiro.domain.errors import NotFound
from carteiro.services.accounts import grant_credits, read_credits


@click.group()
def credits() -> None:
    """Credits of accounts. A message is one credit."""


@credits.command()
@click.argument("account")
@click.argument("amount", type=click.IntRange(min=1))
@click.option("--cause", required=True, help="Why, in words that stay in the ledger: an invoice's number, say.")
@click.option("--once", is_flag=True, help="Do nothing if the account was granted credits for this cause before.")
def grant(account: str, amount: int, cause: str, once: bool) -> None:
    """Add AMOUNT credits to ACCOUNT."""
    actor = f"operator:{getpass.getuser()}"
    try:
        balance = asyncio.run(
            with_pool(lambda pool: grant_credits(pool, account, amount, cause=cause, actor=actor, once=once))
        )
    except LookupError as error:
        raise click.ClickException(str(error.args[0])) from error
    if balance is None:
        click.echo(f"{account} was granted credits for {cause!r} before: nothing was done")
    else:
        click.echo(f"{account} has {balance} credits")


@credits.command()
@click.argument("account")
def show(account: str) -> None:
    """What ACCOUNT may spend, and who pays."""
    try:
        found = asyncio.run(with_pool(lambda pool: read_credits(pool, account)))
    except NotFound as error:
        raise click.ClickException(error.detail) from error
    payer = "" if found.billing_account_id == account else f" of {found.billing_account_id}"
    click.echo(f"{account} may spend {found.balance} credits{payer}")
