"""The suppression list of an account: who is put on it and taken off, by clients and by the contacts themselves."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from carteiro.domain import phones
from carteiro.domain.contacts import MOST_NAMED
from carteiro.domain.errors import FieldError, InvalidRequest
from carteiro.domain.outcomes import Inbound, Parsed
from carteiro.domain.phones import Phone
from carteiro.domain.suppression import COOL_DOWN_LONGEST_S, Scope, Source, StopWords, Word
from carteiro.services.api_keys import Caller
from carteiro.storage import batches
from carteiro.storage import suppression as storage
from carteiro.storage.pool import Connection, Pool, retry_serialization, transact
from carteiro.storage.suppression import Entry

KEEP_S = 2 * COOL_DOWN_LONGEST_S
"""How long a word that no longer holds is kept: an old one that comes late must not count as new, and a cool-down's
length follows from the one before it.
"""
FORGET_ROWS = 5_000


@dataclass(frozen=True, slots=True)
class Checked:
    """One contact as the account's list has it."""

    phone: Phone = field(repr=False)
    entries: list[Entry]

    def stops(self, scope: Scope) -> bool:
        return any(entry.scope == scope for entry in self.entries)


@dataclass(frozen=True, slots=True)
class Heard:
    """One thing that a contact told. No `words`: nothing that we act on, or (`stranger`) it cannot be said whose."""

    kind: str
    at: datetime | None
    words: tuple[Word, ...] = ()
    """One for each account that it concerns."""
    stranger: str | None = None
    """Which of the two is not known."""
    answer: Inbound | None = None
    """What was written, where it may be the answer to a message of ours."""


async def suppress(pool: Pool, caller: Caller, given: Sequence[str], *, scope: Scope, reason: str | None = None) -> int:
    """Put contacts on the account's list, for ever; how many different ones. All of them, or InvalidRequest.

    What is claimed after this returned is not sent to them.
    """
    keys = await asyncio.to_thread(_identities, given)
    words = [Word(caller.account_id, key, scope, Source.API, reason=reason) for key in keys]

    async def attempt() -> None:
        async with transact(pool) as conn:
            await batches.set_actor(conn, caller.actor)
            await storage.note_words(conn, words)

    await retry_serialization(attempt)
    return len(keys)


async def lift(pool: Pool, caller: Caller, given: Sequence[str], *, scope: Scope | None = None) -> int:
    """Take contacts off the account's list, whoever put them on it; of one scope, or of both.

    Answers how many were on it. Raises InvalidRequest. What was withdrawn before stays unsent.
    """
    keys = await asyncio.to_thread(_identities, given)
    scopes = [scope] if scope else list(Scope)

    async def attempt() -> int:
        async with transact(pool) as conn:
            await batches.set_actor(conn, caller.actor)
            return await storage.lift(conn, caller.account_id, keys, scopes)

    return await retry_serialization(attempt)


async def check(pool: Pool, account_id: str, given: str) -> Checked:
    """What the account's list says of one phone. Raises InvalidRequest."""
    phone = phones.parse(given)
    if not isinstance(phone, Phone):
        raise InvalidRequest(phone.remedy)
    async with pool.connection() as conn:
        return Checked(phone, await storage.read_contact(conn, account_id, phone.identity))


async def read_list(
    pool: Pool, account_id: str, *, scope: Scope | None, before_id: int | None, limit: int
) -> list[Entry]:
    """What is in force, newest first."""
    async with pool.connection() as conn:
        return await storage.read_page(
            conn,
            account_id,
            scopes=[scope] if scope else list(Scope),
            before_id=storage.HIGHEST_ID if before_id is None else before_id,
            limit=limit,
        )


async def forget_lapsed(pool: Pool) -> int:
    """Delete what has not held for so long that nothing follows from it any more; how many."""
    forgotten, deleted = 0, FORGET_ROWS
    while deleted == FORGET_ROWS:
        async with transact(pool) as conn:
            deleted = await storage.forget_lapsed(conn, keep_s=KEEP_S, limit=FORGET_ROWS)
        forgotten += deleted
    return forgotten


def hear(
    accounts_of: Callable[[str | None], Sequence[str]], received_at: datetime, parsed: Parsed, stop_words: StopWords
) -> Iterator[Heard]:
    """What the contacts told in one payload, one answer an item. What they wrote goes no further than here.

    `accounts_of` gives the accounts that a number of ours, as the provider names it, sends for.
    """
    for inbound in parsed.inbound:
        at = inbound.at or received_at
        if inbound.text not in stop_words:
            yield Heard("inbound", at, answer=inbound)
            continue
        key, accounts = identity_of(inbound.phone), accounts_of(inbound.sender)
        words = tuple(
            Word(account, key, Scope.ALL, Source.INBOUND, at, "stop word") for account in accounts if key is not None
        )
        yield Heard("inbound", at, words, _stranger(key, accounts))
    for told in parsed.preferences:
        at = told.at or received_at
        key, accounts = identity_of(told.phone), accounts_of(told.sender)
        reason = "stop" if told.stop else "resume"
        words = tuple(
            Word(account, key, Scope.MARKETING, Source.PREFERENCE, at, reason, told.stop)
            for account in accounts
            if key is not None
        )
        yield Heard("preference", at, words, _stranger(key, accounts))


def _stranger(key: int | None, accounts: Sequence[str]) -> str | None:
    if key is None:
        return "no phone of the contact"
    return None if accounts else "no number of ours"


async def note_heard(conn: Connection, heard: Sequence[Heard]) -> None:
    """Write down what follows from it, in the caller's transaction."""
    await storage.note_words(conn, [word for told in heard for word in told.words])


def identity_of(digits: str | None) -> int | None:
    """Of a contact as providers write it: international, without a plus."""
    phone = phones.parse(f"+{digits}") if digits else None
    return phone.identity if isinstance(phone, Phone) else None


def _identities(given: Sequence[str]) -> list[int]:
    """The different contacts, in order. Raises InvalidRequest, naming all that are no phones."""
    keys: dict[int, None] = {}
    errors: list[FieldError] = []
    for index, raw in enumerate(given):
        phone = phones.parse(raw)
        if isinstance(phone, Phone):
            keys.setdefault(phone.identity)
        else:
            errors.append(FieldError(f"/phones/{index}", str(phone), phone.remedy))
    if errors:
        unnamed = f" {len(errors) - MOST_NAMED} more are not listed." if len(errors) > MOST_NAMED else ""
        raise InvalidRequest(
            f"{len(errors)} of the phones cannot be used; nothing was changed.{unnamed}",
            errors=errors[:MOST_NAMED],
            extra={"error_count": len(errors)},
        )
    return list(keys)
