"""Receipts that were stored raw and answered (`intake.py`), merged into their messages."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import groupby
from uuid import UUID

import structlog
from psycopg import InterfaceError, OperationalError

from carteiro.domain.lifecycle import MessageState
from carteiro.domain.outcomes import Fact, FactKind, ForeignFact, Parsed, message_key
from carteiro.domain.suppression import StopWords
from carteiro.services.aftermath import STALE_AFTER, Aftermath
from carteiro.services.answers import SEQ_MAX, Written, lock_known, note_answers
from carteiro.services.dispatch.waking import SENDERS, wake_waiting
from carteiro.services.finalise import fold_tallies
from carteiro.services.owners import Owners, find_owners
from carteiro.services.suppression import Heard, hear, note_heard
from carteiro.services.sync import ask_soon, note_accounts, note_notices
from carteiro.storage import aliases, follow_ups, receipts
from carteiro.storage.aliases import Alias, Waiting
from carteiro.storage.facts import merge_facts
from carteiro.storage.pool import Connection, Pool, retry_serialization, transact
from carteiro.storage.receipts import Known, Payload, Receipt, Result

log = structlog.get_logger(__name__)

Parse = Callable[[bytes], Parsed]
"""Reads one provider's webhook body. Raises only when the body as a whole is unreadable."""

NO_STOP_WORDS = StopWords()
DAY_S = 86_400.0
ALIAS_WAIT_S = 3600.0
"""How long a receipt waits for its message to become known (the sweep looks by the same time)."""
AT_ONCE = 200
"""Payloads that one transaction merges at most."""
BYTES_AT_ONCE = 4 * 2**20
"""Of bodies that one transaction merges, or little more: about ten thousand facts. Postgres ends one in which we think
for too long between two statements (`IDLE_TRANSACTION_S`), and would do so each time.
"""
DETAIL_MAX = 200
"""Characters of foreign text that a row keeps; the whole body is kept beside it."""


@dataclass(frozen=True, slots=True)
class Applied:
    """What one transaction merged."""

    taken: int
    """Payloads, and receipts that had waited for their message to become known."""
    more: bool
    """It took as much as it may: there may be more."""


async def apply_payloads(
    pool: Pool,
    parser_of: Callable[[str], Parse],
    *,
    stop_words: StopWords = NO_STOP_WORDS,
    window_s: float = DAY_S,
    limit: int = AT_ONCE,
) -> Applied:
    """Merge up to `limit` waiting payloads, oldest first, in one transaction. Large ones are taken in smaller numbers.

    With them goes what had waited for its message to become known. `parser_of` gives the reader of a provider's bodies,
    or raises LookupError. What a contact writes within `window_s` of a message counts as its answer. Any number of
    appliers may run at once.
    Locks: inbox and waiting rows (skipping locked ones), batches in order of id (FOR KEY SHARE), messages and then
    their follow-ups in order of seq, follow-ups that are made, rows of the suppression list, templates' copies,
    senders.
    """

    async def attempt() -> tuple[Applied, set[UUID], set[str]]:
        async with transact(pool) as conn:
            payloads = await receipts.take_payloads(conn, limit=limit, bytes_max=BYTES_AT_ONCE)
            waiting = await aliases.take_waiting(conn, wait_s=ALIAS_WAIT_S, limit=limit)
            if not payloads and not waiting:
                return Applied(0, more=False), set(), set()
            told, freed = await _apply(conn, payloads, waiting, parser_of, stop_words, window_s)
            await receipts.record_receipts(conn, told)
            await receipts.clear_inbox(conn, payloads)
        touched = {row.batch_id for row in told if row.batch_id and row.result is Result.APPLIED}
        full = max(len(payloads), len(waiting)) == limit or sum(len(one.body) for one in payloads) >= BYTES_AT_ONCE
        return Applied(len(payloads) + len(waiting), more=full), touched, freed

    applied, touched, freed = await retry_serialization(attempt)
    if freed:
        await wake_waiting(pool, freed, SENDERS)
    if touched:
        # Settled batches still get receipts, and the sweep folds only the unsettled ones.
        await fold_tallies(pool, sorted(touched))
    return applied


async def apply_all(
    pool: Pool,
    parser_of: Callable[[str], Parse],
    *,
    stop_words: StopWords = NO_STOP_WORDS,
    window_s: float = DAY_S,
) -> int:
    """Merge until no more is left than does not fill a transaction; how many were taken.

    What comes meanwhile waits for the next call: a transaction of twenty payloads costs each of them three times what
    one of two hundred does, and what it takes of the processors, dispatch has not.
    """
    applied = Applied(0, more=True)
    while applied.more:
        latest = await apply_payloads(pool, parser_of, stop_words=stop_words, window_s=window_s)
        applied = Applied(applied.taken + latest.taken, more=latest.more)
    return applied.taken


@dataclass(frozen=True, slots=True)
class _Item:
    """One fact and the payload that told it."""

    payload: Payload
    fact: Fact

    @property
    def kind(self) -> str:
        """As the record of receipts names it."""
        return f"follow_up_{self.fact.kind}" if self.fact.followup else self.fact.kind

    def receipt(self, result: Result, detail: str | None = None) -> Receipt:
        fact = self.fact
        return Receipt(self.payload, result, self.kind, fact.batch_id, fact.seq, fact.at, fact.code, detail)


@dataclass(frozen=True, slots=True)
class _Whose:
    """Whose the batches of this transaction are, and whose the numbers that things were told under; and what follows
    from it all.
    """

    batches: Mapping[UUID, str]
    owners: Owners
    aftermath: Aftermath

    def may_tell(self, fact: Fact, known: Known) -> bool:
        """Whether the message may be spoken of under that number: its sender's, or another of its account's.

        Another, because a refusal that was none may have been followed by a second call, by another sender.
        """
        if fact.via is None or fact.via == known.number:
            return True
        return self.batches[fact.batch_id] in self.owners.numbers.get(fact.via, ())


async def _apply(
    conn: Connection,
    payloads: Iterable[Payload],
    waiting: Sequence[Waiting],
    parser_of: Callable[[str], Parse],
    stop_words: StopWords,
    window_s: float,
) -> tuple[list[Receipt], set[str]]:
    """What became of each item, and the business managers through which more may be sent now."""
    told: list[Receipt] = []
    read: list[tuple[Payload, Parsed]] = []
    for payload in payloads:
        try:
            read.append((payload, _parse(payload, parser_of)))
        except Exception as error:
            log.warning("payload_unreadable", payload_id=payload.id, error=type(error).__name__)
            told.append(Receipt(payload, Result.MALFORMED, "payload", detail=type(error).__name__))
    resolved = await _resolve(conn, read, waiting, told)
    owners = await find_owners(conn, [*(parsed for _, parsed in read), Parsed(facts=tuple(i.fact for i in resolved))])
    items: list[_Item] = []
    heard: list[Heard] = []
    written: list[Written] = []
    for payload, parsed in read:
        told += [Receipt(payload, Result.ORPHAN, "item", detail=_clean(key)) for key in parsed.orphans]
        told += [Receipt(payload, Result.MALFORMED, "item")] * parsed.malformed
        told += [Receipt(payload, Result.IGNORED, "item")] * parsed.ignored
        of_contacts = list(hear(partial(owners.accounts_of, payload), payload.received_at, parsed, stop_words))
        told += [_receipt_of(payload, one) for one in of_contacts if one.answer is None]
        written += [
            Written(payload, tuple(owners.accounts_of(payload, one.answer.sender)), one.answer)
            for one in of_contacts
            if one.answer is not None
        ]
        heard += of_contacts
        items += [_Item(payload, _cleaned(fact)) for fact in parsed.facts]
    placed: list[_Item] = []
    for item in [*items, *resolved]:
        if 0 < item.fact.seq <= SEQ_MAX:
            placed.append(item)
        else:
            key = message_key(item.fact.batch_id, item.fact.seq)
            told.append(Receipt(item.payload, Result.ORPHAN, item.kind, item.fact.batch_id, detail=key))
    placed.sort(key=_place)
    batches = await receipts.share_batches(conn, sorted({item.fact.batch_id for item in placed}))
    whose = _Whose(batches, owners, Aftermath())
    told += [item.receipt(Result.ORPHAN, "no such batch") for item in placed if item.fact.batch_id not in batches]
    told += await _merge_apart(conn, [item for item in placed if item.fact.batch_id in batches], whose)
    told += await note_answers(conn, written, window_s=window_s)
    await note_heard(conn, heard)
    await whose.aftermath.write(conn)
    freed: set[str] = set()
    for payload, parsed in sorted(read, key=lambda one: (one[0].account_id or "", one[0].id)):
        told += await _note_standing(conn, payload, parsed, owners, freed)
    return told, freed


async def _resolve(
    conn: Connection, read: Sequence[tuple[Payload, Parsed]], waiting: Sequence[Waiting], told: list[Receipt]
) -> list[_Item]:
    """The facts that name their message by the provider's id. What is not known yet waits; what has waited too long is
    told as an orphan.
    """
    fresh = [(payload, _cleaned_foreign(fact)) for payload, parsed in read for fact in parsed.foreign]
    again = [(Payload(one.payload_id, one.received_at, None, None, b""), one.fact) for one in waiting]
    known = await aliases.find(conn, sorted({fact.provider_id for _, fact in [*fresh, *again]}))
    await aliases.keep_waiting(
        conn,
        [Waiting(fact, payload.received_at, payload.id) for payload, fact in fresh if fact.provider_id not in known],
    )
    told += [
        Receipt(payload, Result.ORPHAN, fact.kind, at=fact.at, code=fact.code, detail="no message has that id")
        for payload, fact in again
        if fact.provider_id not in known
    ]
    return [
        _Item(payload, _named(fact, known[fact.provider_id]))
        for payload, fact in [*fresh, *again]
        if fact.provider_id in known
    ]


def _named(fact: ForeignFact, alias: Alias) -> Fact:
    return Fact(
        alias.batch_id,
        alias.seq,
        fact.kind,
        fact.at,
        fact.provider_id,
        fact.code,
        fact.failure,
        followup=alias.followup,
        via=fact.via,
        wait_s=fact.wait_s,
    )


async def _note_standing(
    conn: Connection, payload: Payload, parsed: Parsed, owners: Owners, freed: set[str]
) -> list[Receipt]:
    """Apply what a payload says of templates and accounts; of those that are none of ours it is told as an orphan.
    `freed` takes the business managers through which more may be sent than before.
    """

    def is_ours(account: str | None) -> bool:
        return payload.account_id is not None or account in owners.managers

    templates = [state for state in parsed.templates if is_ours(state.account)]
    accounts = [state for state in parsed.accounts if is_ours(state.account)]
    notices = [notice for notice in parsed.notices if is_ours(notice.account)]
    told = [Receipt(payload, Result.APPLIED, "template", at=state.at, code=state.word) for state in templates]
    told += [
        Receipt(
            payload, Result.APPLIED if notice.syncs else Result.IGNORED, notice.kind, at=notice.at, code=notice.word
        )
        for notice in notices
    ]
    strangers = [("template", state.at) for state in parsed.templates if state not in templates]
    strangers += [(notice.kind, notice.at) for notice in parsed.notices if notice not in notices]
    told += [Receipt(payload, Result.ORPHAN, kind, at=at, detail="no account of ours") for kind, at in strangers]
    freed |= await note_notices(conn, payload.account_id, templates)
    freed |= await note_accounts(conn, accounts)
    if any(notice.syncs for notice in notices):
        await ask_soon(conn)
    return told


def _receipt_of(payload: Payload, heard: Heard) -> Receipt:
    """That a contact told something, never what or who."""
    if heard.stranger is not None:
        return Receipt(payload, Result.ORPHAN, heard.kind, at=heard.at, detail=heard.stranger)
    return Receipt(payload, Result.APPLIED if heard.words else Result.IGNORED, heard.kind, at=heard.at)


def _parse(payload: Payload, parser_of: Callable[[str], Parse]) -> Parsed:
    if payload.provider is None:
        raise LookupError("the payload's service is gone")
    return parser_of(payload.provider)(payload.body)


async def _merge_apart(conn: Connection, items: Sequence[_Item], whose: _Whose) -> list[Receipt]:
    """Merge; what cannot be written is found by halving, and recorded as malformed on its own."""
    if not items:
        return []
    try:
        async with conn.transaction():
            return await _merge(conn, items, whose)
    except (OperationalError, InterfaceError):
        raise  # the database's trouble, not the payload's
    except Exception as error:
        if len(items) == 1:
            fact, payload, name = items[0].fact, items[0].payload, type(error).__name__
            log.warning("receipt_unusable", payload_id=payload.id, error=name)
            return [Receipt(payload, Result.MALFORMED, items[0].kind, fact.batch_id, fact.seq, detail=name)]
    middle = len(items) // 2
    return await _merge_apart(conn, items[:middle], whose) + await _merge_apart(conn, items[middle:], whose)


async def _merge(conn: Connection, items: Sequence[_Item], whose: _Whose) -> list[Receipt]:
    told: list[Receipt] = []
    for (batch_id, followup), group in groupby(items, key=lambda item: (item.fact.batch_id, item.fact.followup)):
        told += await _merge_batch(conn, batch_id, list(group), whose, followup=followup)
    return told


async def _merge_batch(
    conn: Connection, batch_id: UUID, items: Sequence[_Item], whose: _Whose, *, followup: bool
) -> list[Receipt]:
    """Of the batch's messages, or of what follows them."""
    lock = lock_known if followup else receipts.lock_messages
    known = await lock(conn, batch_id, sorted({item.fact.seq for item in items}))
    told: list[Receipt] = []
    heard: list[Fact] = []
    news: list[Fact] = []
    earliest: dict[tuple[int, FactKind], datetime] = {}
    for item in items:
        fact = item.fact
        result, detail = _judge(known.get(fact.seq), fact, earliest, whose)
        if result is Result.APPLIED:
            earliest[fact.seq, fact.kind] = fact.at
            if item.payload.received_at - fact.at < STALE_AFTER:
                news.append(fact)
        if result in (Result.APPLIED, Result.REPEATED) or (result is Result.LATE and not followup):
            heard.append(fact)
        told.append(item.receipt(result, detail))
    # Repeated ones as well: what a fact says beside its kind and time is for the merge to judge. Late ones move
    # nothing, but a message that went takes its unit of capacity.
    if followup:
        await follow_ups.merge_facts(conn, batch_id, heard)
    else:
        whose.aftermath.note(news, await merge_facts(conn, batch_id, heard))
    return told


def _judge(
    known: Known | None, fact: Fact, earliest: dict[tuple[int, FactKind], datetime], whose: _Whose
) -> tuple[Result, str | None]:
    """What one fact is to its message, given the earlier ones of this transaction in `earliest`."""
    if known is None:
        return Result.ORPHAN, "no such message"
    if not whose.may_tell(fact, known):
        return Result.ORPHAN, "told under a number of another account"
    if known.status == MessageState.UNSENT:
        return Result.LATE, None
    if not known.claimed:
        return Result.ORPHAN, "never claimed"
    before = earliest.get((fact.seq, fact.kind)) or known.at.get(fact.kind)
    return (Result.APPLIED if before is None or fact.at < before else Result.REPEATED), None


def _place(item: _Item) -> tuple[UUID, bool, int, int]:
    """The order of locks, then the order of arrival."""
    return item.fact.batch_id, item.fact.followup, item.fact.seq, item.payload.id


def _cleaned(fact: Fact) -> Fact:
    if not fact.provider_id and not fact.code:
        return fact
    return replace(fact, provider_id=_clean(fact.provider_id), code=_clean(fact.code))


def _cleaned_foreign(fact: ForeignFact) -> ForeignFact:
    return replace(fact, provider_id=_clean(fact.provider_id) or "", code=_clean(fact.code))


def _clean(text: str | None) -> str | None:
    """Foreign text as Postgres can hold it: no NUL, no half of a surrogate pair, not endless."""
    if text is None:
        return None
    return text[:DETAIL_MAX].replace("\0", "\N{REPLACEMENT CHARACTER}").encode(errors="replace").decode()
