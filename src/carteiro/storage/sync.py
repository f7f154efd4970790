"""What the provider says of senders, limits and templates, as the catalog keeps it; and whose turn it is to ask."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg import AsyncConnection

from carteiro.domain.standing import SenderState, TemplateState, Tier
from carteiro.storage.statements import load

SQL = load("sync")


@dataclass(frozen=True, slots=True)
class Manager:
    """A business manager and what is to be asked about it."""

    id: str
    senders: list[str]
    """Those that may be asked about, the usable ones first."""
    accounts: list[str]
    """What the provider calls the accounts that they belong to, where it has a name for those."""
    submissions: list[str]
    """"<physical name> <language>" of each."""


@dataclass(frozen=True, slots=True)
class SenderChange:
    sender: str
    status: tuple[str, str]
    """Before and after."""
    quality: tuple[str, str]


@dataclass(frozen=True, slots=True)
class LimitChange:
    synced: tuple[int | None, int | None]
    """Before and after; None: none."""
    note: tuple[str | None, str | None]
    overridden: bool
    """The operator's limit counts instead."""


@dataclass(frozen=True, slots=True)
class TemplateChange:
    name: str
    language: str
    status: tuple[str, str]


async def take_lead(conn: AsyncConnection[Any], holder: str, *, lease_s: float) -> bool:
    """Whether the holder is to sync now: for so long nobody else does."""
    cursor = await conn.execute(SQL.take_lead, {"holder": holder, "lease_s": lease_s})
    return await cursor.fetchone() is not None


async def rest_until_due(conn: AsyncConnection[Any], holder: str, *, rest_s: float) -> None:
    """The holder has synced: it is due again after `rest_s`; at once where a notice made it due meanwhile."""
    await conn.execute(SQL.rest_until, {"holder": holder, "rest_s": rest_s})


async def make_due(conn: AsyncConnection[Any]) -> None:
    await conn.execute(SQL.make_due)


async def read_connections(conn: AsyncConnection[Any]) -> list[tuple[str, list[str]]]:
    """(a service that has it, senders in use) of each provider's address and key."""
    cursor = await conn.execute(SQL.connections)
    return await cursor.fetchall()


async def read_managers(conn: AsyncConnection[Any], senders: Sequence[str]) -> list[Manager]:
    """The business managers of these senders, in order of id."""
    cursor = await conn.execute(SQL.managers, {"senders": list(senders)})
    return [Manager(*row) for row in await cursor.fetchall()]


async def read_names(conn: AsyncConnection[Any], senders: Sequence[str]) -> dict[str, str]:
    """What the provider calls each of these senders."""
    cursor = await conn.execute(SQL.names, {"senders": list(senders)})
    return dict(await cursor.fetchall())


async def note_senders(
    conn: AsyncConnection[Any], states: Sequence[SenderState], asked_at: datetime
) -> list[SenderChange]:
    """Write what is said of these senders; every one that exists is answered. Locks their rows in order of id."""
    if not states:
        return []
    cursor = await conn.execute(
        SQL.note_senders,
        {
            "senders": [state.sender for state in states],
            "words": [state.word for state in states],
            "standings": [state.standing for state in states],
            "qualities": [state.quality for state in states],
            "asked_at": asked_at,
        },
    )
    return [
        SenderChange(sender, (before, after), (was, quality))
        for sender, before, after, was, quality in await cursor.fetchall()
    ]


async def note_limit(
    conn: AsyncConnection[Any], business_manager_id: str, tier: Tier | None, asked_at: datetime
) -> LimitChange:
    """Write the portfolio's limit: a number, none, or a word that leaves the number as it was; None: nothing was said.

    The caller has locked the business manager's meter.
    """
    cursor = await conn.execute(
        SQL.note_limit,
        {
            "business_manager_id": business_manager_id,
            "word": tier.word if tier else None,
            "known": tier.known if tier else False,
            "cap": tier.limit if tier else None,
            "asked_at": asked_at,
        },
    )
    row = await cursor.fetchone()
    assert row is not None, business_manager_id
    before, after, note_before, note_after, override = row
    return LimitChange((before, after), (note_before, note_after), override is not None)


async def note_templates(
    conn: AsyncConnection[Any], business_manager_id: str, states: Iterable[TemplateState], at: datetime
) -> list[TemplateChange]:
    """Write what is said, at `at`, of templates in a business manager; what was said later stays.

    Answers every submission that it was said of. Locks their rows.
    """
    said = list({(state.name, state.language): state for state in states}.values())
    if not said:
        return []
    cursor = await conn.execute(
        SQL.note_templates,
        {
            "business_manager_id": business_manager_id,
            "names": [state.name for state in said],
            "languages": [state.language for state in said],
            "words": [state.word for state in said],
            "usable": [state.usable for state in said],
            "ids": [state.id for state in said],
            "at": at,
        },
    )
    return [
        TemplateChange(name, language, (before, after)) for name, language, before, after in await cursor.fetchall()
    ]


async def managers_of_notice(conn: AsyncConnection[Any], account_id: str, state: TemplateState) -> list[str]:
    """The business managers whose template a notice to this account is about; none where that cannot be told."""
    cursor = await conn.execute(
        SQL.managers_of_notice,
        {"account_id": account_id, "name": state.name, "language": state.language, "template_id": state.id},
    )
    return [manager for (manager,) in await cursor.fetchall()]


async def managers_of_accounts(conn: AsyncConnection[Any], accounts: Sequence[str]) -> dict[str, list[str]]:
    """The business managers whose senders belong to each of these accounts of the provider's; unknown ones are left
    out.
    """
    if not accounts:
        return {}
    cursor = await conn.execute(SQL.managers_of_accounts, {"accounts": list(accounts)})
    return dict(await cursor.fetchall())


async def senders_of_account(conn: AsyncConnection[Any], account: str, at: datetime) -> list[str]:
    """Its senders, but not those about which the provider was asked after `at`."""
    cursor = await conn.execute(SQL.senders_of_account, {"account": account, "at": at})
    return [sender for (sender,) in await cursor.fetchall()]


async def wait_account(conn: AsyncConnection[Any], account: str, until: datetime, *, word: str) -> None:
    """Nothing is sent with the account's senders until then. Locks them in order of id."""
    await conn.execute(SQL.wait_account, {"account": account, "until": until, "word": word})


async def read_unlimited(conn: AsyncConnection[Any]) -> list[tuple[str, str]]:
    """(business manager, why) of each whose daily limit is not known."""
    cursor = await conn.execute(SQL.unlimited)
    return await cursor.fetchall()
