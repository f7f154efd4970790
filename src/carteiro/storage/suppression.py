"""The contacts that an account must not write to, and the messages that are withdrawn for it.

Rows of the list are locked in order of account, contact, scope and source, after everything else. Reading takes no
lock: what is claimed at the moment at which a contact is suppressed may still go.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection
from psycopg.rows import args_row

from carteiro.domain.outcomes import Fact
from carteiro.domain.suppression import (
    COOL_DOWN_FIRST_S,
    COOL_DOWN_LONGEST_S,
    REFUSALS,
    SUPPRESSED,
    Scope,
    Source,
    Word,
)
from carteiro.storage.statements import load

SQL = load("suppression")

HIGHEST_ID = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Entry:
    """One word in force."""

    id: int
    phone_key: int = field(repr=False)
    scope: str
    source: str
    reason: str | None
    until: datetime | None
    times: int
    created_at: datetime
    changed_at: datetime


async def note_words(conn: AsyncConnection[Any], words: Iterable[Word]) -> None:
    """Write down what was said; what is not news changes nothing, so that words commute and may be repeated."""
    lasting: list[Word] = []
    passing: list[Word] = []
    for word in words:
        (passing if word.source is Source.COOL_DOWN else lasting).append(word)
    if lasting:
        await conn.execute(SQL.note, _arrays(lasting))
    if passing:
        lengths = {"first_s": COOL_DOWN_FIRST_S, "longest_s": COOL_DOWN_LONGEST_S}
        await conn.execute(SQL.cool_down, {**_arrays(passing), **lengths})


async def note_refusals(conn: AsyncConnection[Any], batch_id: UUID, facts: Iterable[Fact]) -> None:
    """Suppress the contacts of messages that were refused because of them. Facts of other kinds are left alone."""
    refused = {fact.seq: fact for fact in facts if fact.failure in REFUSALS}
    if not refused:
        return
    cursor = await conn.execute(SQL.contacts_of, {"batch_id": batch_id, "seqs": list(refused)})
    words = []
    for seq, account_id, phone_key in await cursor.fetchall():
        fact = refused[seq]
        assert fact.failure is not None
        scope, source = REFUSALS[fact.failure]
        words.append(Word(account_id, phone_key, scope, source, fact.at, fact.code))
    await note_words(conn, words)


async def find_among(
    conn: AsyncConnection[Any], account_id: str, phone_keys: Collection[int], scopes: Sequence[Scope]
) -> set[int]:
    """Those of the contacts that are suppressed now, in one of the scopes."""
    if not phone_keys:
        return set()
    cursor = await conn.execute(
        SQL.among, {"account_id": account_id, "phones": list(phone_keys), "scopes": list(scopes)}
    )
    return {phone_key for (phone_key,) in await cursor.fetchall()}


async def find_in_batch(
    conn: AsyncConnection[Any],
    batch_id: UUID,
    account_id: str,
    scopes: Sequence[Scope],
    *,
    at: datetime | None,
    first_seq: int = 1,
    last_seq: int = 2**31 - 1,
) -> list[int]:
    """Of these messages of a batch, as a rule all, those whose contact is suppressed now and still will be at `at`
    (None: now), in order of seq.
    """
    cursor = await conn.execute(
        SQL.in_batch,
        {
            "batch_id": batch_id,
            "account_id": account_id,
            "scopes": list(scopes),
            "first_seq": first_seq,
            "last_seq": last_seq,
            "at": at,
        },
    )
    return [seq for (seq,) in await cursor.fetchall()]


async def withdraw(conn: AsyncConnection[Any], batch_id: UUID, seqs: Sequence[int]) -> None:
    """Pending messages of suppressed contacts become `unsent`; the batch counts them. The caller has locked both."""
    if seqs:
        await conn.execute(SQL.withdraw, {"batch_id": batch_id, "seqs": list(seqs), "code": SUPPRESSED})


async def lift(
    conn: AsyncConnection[Any], account_id: str, phone_keys: Collection[int], scopes: Sequence[Scope]
) -> int:
    """End what is in force in these scopes, whatever its source; the number of contacts for which there was any."""
    cursor = await conn.execute(
        SQL.lift, {"account_id": account_id, "phones": list(phone_keys), "scopes": list(scopes)}
    )
    row = await cursor.fetchone()
    return int(row[0]) if row else 0


async def read_page(
    conn: AsyncConnection[Any], account_id: str, *, scopes: Sequence[Scope], before_id: int, limit: int
) -> list[Entry]:
    """The account's words in force, newest first, those with an id below `before_id`."""
    async with conn.cursor(row_factory=args_row(Entry)) as cursor:
        await cursor.execute(
            SQL.page, {"account_id": account_id, "scopes": list(scopes), "before_id": before_id, "limit": limit}
        )
        return await cursor.fetchall()


async def read_contact(conn: AsyncConnection[Any], account_id: str, phone_key: int) -> list[Entry]:
    """The words in force on one contact."""
    async with conn.cursor(row_factory=args_row(Entry)) as cursor:
        await cursor.execute(SQL.of_contact, {"account_id": account_id, "phone_key": phone_key})
        return await cursor.fetchall()


async def forget_lapsed(conn: AsyncConnection[Any], *, keep_s: float, limit: int) -> int:
    """Delete up to `limit` words that lapsed or were taken back `keep_s` ago or earlier; how many."""
    cursor = await conn.execute(SQL.forget_lapsed, {"keep_s": keep_s, "limit": limit})
    return cursor.rowcount


def _arrays(words: Sequence[Word]) -> dict[str, Any]:
    return {
        "accounts": [word.account_id for word in words],
        "phones": [word.phone_key for word in words],
        "scopes": [word.scope for word in words],
        "sources": [word.source for word in words],
        "reasons": [word.reason for word in words],
        "said_at": [word.said_at for word in words],
        "stops": [word.stop for word in words],
    }
