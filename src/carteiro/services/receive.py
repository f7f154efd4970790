"""Receipts: stored raw and answered at once, merged into their messages afterwards."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from uuid import UUID

import structlog
from psycopg import InterfaceError, OperationalError

from carteiro.domain.lifecycle import MessageState
from carteiro.domain.outcomes import Fact, FactKind, Parsed, message_key
from carteiro.domain.standing import TemplateState
from carteiro.domain.suppression import StopWords
from carteiro.services.finalise import fold_tallies
from carteiro.services.suppression import Heard, hear, note_heard
from carteiro.services.sync import note_notices
from carteiro.storage import receipts
from carteiro.storage.facts import merge_facts
from carteiro.storage.pool import Connection, Pool, retry_serialization, transact
from carteiro.storage.receipts import Known, Payload, Receipt, Result

log = structlog.get_logger(__name__)

Parse = Callable[[bytes], Parsed]
"""Reads one provider's webhook body. Raises only when the body as a whole is unreadable."""

NO_STOP_WORDS = StopWords()
SEQ_MAX = 2**31 - 1
DETAIL_MAX = 200
"""Characters of foreign text that a row keeps; the whole body is kept beside it."""


async def store_payload(pool: Pool, provider: str, token: str, body: bytes) -> bool:
    """Keep the body as it came; committed when this returns. False: no service of that provider has the token."""
    async with pool.connection() as conn:
        return await receipts.store_payload(conn, provider, token, body)


async def apply_payloads(
    pool: Pool, parser_of: Callable[[str], Parse], *, stop_words: StopWords = NO_STOP_WORDS, limit: int = 200
) -> int:
    """Merge up to `limit` waiting payloads, oldest first, in one transaction; how many were taken. 0: none is left.

    `parser_of` gives the reader of a provider's bodies, or raises LookupError. Any number of appliers may run at once.
    Locks: inbox rows (skipping locked ones), batches in order of id (FOR KEY SHARE), messages in order of seq, rows of
    the suppression list, templates' copies.
    """

    async def attempt() -> tuple[int, set[UUID]]:
        async with transact(pool) as conn:
            payloads = await receipts.take_payloads(conn, limit=limit)
            if not payloads:
                return 0, set()
            told = await _apply(conn, payloads, parser_of, stop_words)
            await receipts.record_receipts(conn, told)
            await receipts.clear_inbox(conn, payloads)
        return len(payloads), {row.batch_id for row in told if row.batch_id and row.result is Result.APPLIED}

    taken, touched = await retry_serialization(attempt)
    if touched:
        # Settled batches still get receipts, and the sweep folds only the unsettled ones.
        await fold_tallies(pool, sorted(touched))
    return taken


async def apply_all(pool: Pool, parser_of: Callable[[str], Parse], *, stop_words: StopWords = NO_STOP_WORDS) -> int:
    """Merge until nothing is left that others have not taken; how many payloads."""
    applied = 0
    while taken := await apply_payloads(pool, parser_of, stop_words=stop_words):
        applied += taken
    return applied


@dataclass(frozen=True, slots=True)
class _Item:
    """One fact and the payload that told it."""

    payload: Payload
    fact: Fact

    def receipt(self, result: Result, detail: str | None = None) -> Receipt:
        fact = self.fact
        return Receipt(self.payload, result, fact.kind, fact.batch_id, fact.seq, fact.at, fact.code, detail)


async def _apply(
    conn: Connection, payloads: Iterable[Payload], parser_of: Callable[[str], Parse], stop_words: StopWords
) -> list[Receipt]:
    told: list[Receipt] = []
    items: list[_Item] = []
    heard: list[Heard] = []
    notices: dict[str, list[TemplateState]] = defaultdict(list)
    for payload in payloads:
        try:
            parsed = _parse(payload, parser_of)
        except Exception as error:
            log.warning("payload_unreadable", payload_id=payload.id, error=type(error).__name__)
            told.append(Receipt(payload, Result.MALFORMED, "payload", detail=type(error).__name__))
            continue
        told += [Receipt(payload, Result.ORPHAN, "item", detail=_clean(key)) for key in parsed.orphans]
        told += [Receipt(payload, Result.MALFORMED, "item")] * parsed.malformed
        told += [Receipt(payload, Result.IGNORED, "item")] * parsed.ignored
        if payload.account_id is not None:
            of_contacts = list(hear(payload.account_id, payload.received_at, parsed, stop_words))
            told += [_receipt_of(payload, one) for one in of_contacts]
            heard += of_contacts
            notices[payload.account_id] += parsed.templates
            told += [
                Receipt(payload, Result.APPLIED, "template", at=state.at, code=state.word) for state in parsed.templates
            ]
        for fact in parsed.facts:
            if fact.followup:
                told.append(Receipt(payload, Result.IGNORED, fact.kind, fact.batch_id, fact.seq, fact.at, fact.code))
            elif 0 < fact.seq <= SEQ_MAX:
                items.append(_Item(payload, _cleaned(fact)))
            else:
                key = message_key(fact.batch_id, fact.seq)
                told.append(Receipt(payload, Result.ORPHAN, fact.kind, fact.batch_id, detail=key))
    items.sort(key=_place)
    batches = await receipts.share_batches(conn, sorted({item.fact.batch_id for item in items}))
    told += [item.receipt(Result.ORPHAN, "no such batch") for item in items if item.fact.batch_id not in batches]
    told += await _merge_apart(conn, [item for item in items if item.fact.batch_id in batches])
    await note_heard(conn, heard)
    for account_id in sorted(notices):
        await note_notices(conn, account_id, notices[account_id])
    return told


def _receipt_of(payload: Payload, heard: Heard) -> Receipt:
    """That a contact told something, never what or who."""
    if heard.unknown_contact:
        return Receipt(payload, Result.ORPHAN, heard.kind, at=heard.at, detail="no phone of the contact")
    return Receipt(payload, Result.APPLIED if heard.word else Result.IGNORED, heard.kind, at=heard.at)


def _parse(payload: Payload, parser_of: Callable[[str], Parse]) -> Parsed:
    if payload.provider is None:
        raise LookupError("the payload's service is gone")
    return parser_of(payload.provider)(payload.body)


async def _merge_apart(conn: Connection, items: Sequence[_Item]) -> list[Receipt]:
    """Merge; what cannot be written is found by halving, and recorded as malformed on its own."""
    if not items:
        return []
    try:
        async with conn.transaction():
            return await _merge(conn, items)
    except (OperationalError, InterfaceError):
        raise  # the database's trouble, not the payload's
    except Exception as error:
        if len(items) == 1:
            fact, payload, name = items[0].fact, items[0].payload, type(error).__name__
            log.warning("receipt_unusable", payload_id=payload.id, error=name)
            return [Receipt(payload, Result.MALFORMED, fact.kind, fact.batch_id, fact.seq, detail=name)]
    middle = len(items) // 2
    return await _merge_apart(conn, items[:middle]) + await _merge_apart(conn, items[middle:])


async def _merge(conn: Connection, items: Sequence[_Item]) -> list[Receipt]:
    told: list[Receipt] = []
    for batch_id, group in groupby(items, key=lambda item: item.fact.batch_id):
        told += await _merge_batch(conn, batch_id, list(group))
    return told


async def _merge_batch(conn: Connection, batch_id: UUID, items: Sequence[_Item]) -> list[Receipt]:
    known = await receipts.lock_messages(conn, batch_id, sorted({item.fact.seq for item in items}))
    told: list[Receipt] = []
    heard: list[Fact] = []
    earliest: dict[tuple[int, FactKind], datetime] = {}
    for item in items:
        fact = item.fact
        result, detail = _judge(known.get(fact.seq), fact, earliest)
        if result is Result.APPLIED:
            earliest[fact.seq, fact.kind] = fact.at
        if result in (Result.APPLIED, Result.REPEATED):
            heard.append(fact)
        told.append(item.receipt(result, detail))
    # Repeated ones as well: what a fact says beside its kind and time is for the merge to judge.
    await merge_facts(conn, batch_id, heard)
    return told


def _judge(
    known: Known | None, fact: Fact, earliest: dict[tuple[int, FactKind], datetime]
) -> tuple[Result, str | None]:
    """What one fact is to its message, given the earlier ones of this transaction in `earliest`."""
    if known is None:
        return Result.ORPHAN, "no such message"
    if known.status == MessageState.UNSENT:
        return Result.LATE, None
    if not known.claimed:
        return Result.ORPHAN, "never claimed"
    before = earliest.get((fact.seq, fact.kind)) or known.at.get(fact.kind)
    return (Result.APPLIED if before is None or fact.at < before else Result.REPEATED), None


def _place(item: _Item) -> tuple[UUID, int, int]:
    """The order of locks, then the order of arrival."""
    return item.fact.batch_id, item.fact.seq, item.payload.id


def _cleaned(fact: Fact) -> Fact:
    if not fact.provider_id and not fact.code:
        return fact
    provider_id, code = _clean(fact.provider_id), _clean(fact.code)
    return Fact(fact.batch_id, fact.seq, fact.kind, fact.at, provider_id, code, fact.failure)


def _clean(text: str | None) -> str | None:
    """Foreign text as Postgres can hold it: no NUL, no half of a surrogate pair, not endless."""
    if text is None:
        return None
    return text[:DETAIL_MAX].replace("\0", "\N{REPLACEMENT CHARACTER}").encode(errors="replace").decode()
