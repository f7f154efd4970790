"""`carteiro erase`: exits 1 while something is left to do."""

import asyncio
import getpass

import rich_click as click

from carteiro.cli.session import with_pool
from carteiro.domain.phones import PhoneProblem, parse
from carteiro.services.erasure import erase_contact


@click.command()
@click.argument("phone")
@click.option("--reason", help="Why, in words that stay in the audit.")
@click.confirmation_option(prompt="This cannot be undone. Erase?", help="Do not ask.")
def erase(phone: str, reason: str | None) -> None:
    """Take PHONE out of all messages and raw receipts, of every account. Counts, money and history stay.

    The suppression list keeps it: without it nobody would know whom not to write to.
    """
    contact = parse(phone)
    if isinstance(contact, PhoneProblem):
        raise click.ClickException(contact.remedy)
    actor = f"operator:{getpass.getuser()}"
    done = asyncio.run(with_pool(lambda pool: erase_contact(pool, contact, actor=actor, reason=reason)))
    click.echo(f"{done.messages} messages erased, {done.payloads} raw receipts and inbound messages")
    if done.withdrawn:
        click.echo(f"{done.withdrawn} of the messages had not left, and will not")
    if done.on_their_way:
        click.echo(f"{done.on_their_way} of the messages may be on their way at this moment")
    if done.waiting:
        raise click.ClickException(f"{done.waiting} raw receipts are not merged yet: run it again in a moment")
