"""Follow-ups as rows: made by the first answer, claimed and settled apart from the messages that they follow."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection
from psycopg.rows import args_row

from carteiro.domain.facts import Known, code_of, known_of, merge, strongest
from carteiro.domain.follow_ups import WINDOW_CLOSED
from carteiro.domain.lifecycle import MessageState
from carteiro.domain.outcomes import Fact, FactKind, followup_key
from carteiro.storage import aliases, suppression
from carteiro.storage.outcomes import Move
from carteiro.storage.statements import load

SQL = load("follow_ups")

SLACK_S = 5.0
"""How much earlier than our call an answer to it may be dated: providers round, and clocks differ."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a contact wrote, as far as it says which message it answers."""

    account_id: str
    at: datetime
    named: tuple[UUID, int] | None
    """(batch, seq) where it names the message."""
    phone_key: int | None = field(default=None, repr=False)
    """Phone identity of whoever wrote; None: not known."""
    sender: str | None = None
    """Which of our numbers it was written to, as the provider names it; None: not told."""


@dataclass(frozen=True, slots=True)
class Found:
    """The message that an answer is about. `due`: something is to follow, and the answer came in time."""

    answered_by: str
    """context: the answer names it; phone: by who wrote."""
    batch_id: UUID
    seq: int
    service_id: str
    sender_id: str
    business_manager_id: str
    slot_at: datetime
    """When its call was to start."""
    due: bool


@dataclass(frozen=True, slots=True)
class Turn:
    """The batch whose follow-ups go next."""

    batch_id: UUID
    account_id: str
    content: dict[str, Any] = field(repr=False)
    """What is sent: {"text": ...} or {"media": {...}}."""
    template_content: dict[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Carrier:
    """A sender of follow-ups and what paces it. None: not paced."""

    sender_id: str
    name: str
    """What the provider calls it."""
    business_manager_id: str
    messages_per_second: int | None
    bm_messages_per_minute: int | None


@dataclass(frozen=True, slots=True)
class Row:
    """A follow-up that could go."""

    seq: int
    attempt: int
    sender_id: str
    phone_key: int = field(repr=False)
    """Below 0: the contact was erased."""
    address: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Stored:
    """A follow-up under its lock."""

    status: str
    claim_id: int | None
    number: str | None
    """The provider's own name of its sender, where it has one."""
    known: Known


@dataclass(frozen=True, slots=True)
class Unknown:
    """One to be looked up. `is_over`: given up unless it is found now."""

    service_id: str
    batch_id: UUID
    seq: int
    is_over: bool


async def find_answered(conn: AsyncConnection[Any], answers: Sequence[Answer], *, window_s: float) -> dict[int, Found]:
    """The message that each answer is about, by the answer's place; those about none are left out.

    One that names a message is about no other. Takes no locks.
    """
    found: dict[int, Found] = {}
    named = [(n, answer) for n, answer in enumerate(answers) if answer.named is not None]
    if named:
        cursor = await conn.execute(
            SQL.by_context,
            {
                **_arrays(named),
                "batch_ids": [answer.named[0] for _, answer in named if answer.named],
                "seqs": [answer.named[1] for _, answer in named if answer.named],
                "window_s": window_s,
            },
        )
        found |= {n: Found("context", *rest) for n, *rest in await cursor.fetchall()}
    others = [(n, answer) for n, answer in enumerate(answers) if answer.named is None and answer.phone_key is not None]
    if others:
        cursor = await conn.execute(
            SQL.by_phone,
            {
                **_arrays(others),
                "phones": [answer.phone_key for _, answer in others],
                "senders": [answer.sender for _, answer in others],
                "window_s": window_s,
                "slack_s": SLACK_S,
            },
        )
        found |= {n: Found("phone", *rest) for n, *rest in await cursor.fetchall()}
    return found


async def note_answers(
    conn: AsyncConnection[Any], answered: Sequence[tuple[Answer, Found]], *, window_s: float
) -> set[tuple[UUID, int]]:
    """Make a follow-up for each message that has none yet, by its earliest answer; (batch, seq) of those made.

    Rows are made in order of key: who else makes one of them at this moment is waited for.
    """
    first: dict[tuple[UUID, int], tuple[Answer, Found]] = {}
    for answer, found in sorted(answered, key=lambda pair: pair[0].at):
        first.setdefault((found.batch_id, found.seq), (answer, found))
    if not first:
        return set()
    cursor = await conn.execute(
        SQL.note,
        {
            "batch_ids": [batch_id for batch_id, _ in first],
            "seqs": [seq for _, seq in first],
            "accounts": [answer.account_id for answer, _ in first.values()],
            "services": [found.service_id for _, found in first.values()],
            "senders": [found.sender_id for _, found in first.values()],
            "bms": [found.business_manager_id for _, found in first.values()],
            "ats": [answer.at for answer, _ in first.values()],
            "bys": [found.answered_by for _, found in first.values()],
            "window_s": window_s,
        },
    )
    return {(batch_id, seq) for batch_id, seq in await cursor.fetchall()}


async def any_claimable(conn: AsyncConnection[Any], service_id: str, *, margin_s: float) -> bool:
    """Whether the service has one that may go now, with its window open for `margin_s` more."""
    cursor = await conn.execute(SQL.any_claimable, {"service_id": service_id, "margin_s": margin_s})
    row = await cursor.fetchone()
    return bool(row and row[0])


async def next_turn(conn: AsyncConnection[Any], service_id: str, *, margin_s: float) -> Turn | None:
    async with conn.cursor(row_factory=args_row(Turn)) as cursor:
        await cursor.execute(SQL.next_turn, {"service_id": service_id, "margin_s": margin_s})
        return await cursor.fetchone()


async def read_carriers(conn: AsyncConnection[Any], batch_id: UUID, n: int, *, margin_s: float) -> list[Carrier]:
    """The senders of the batch's first `n` follow-ups, in order of id. Takes no locks."""
    async with conn.cursor(row_factory=args_row(Carrier)) as cursor:
        await cursor.execute(SQL.lanes, {"batch_id": batch_id, "n": n, "margin_s": margin_s})
        return await cursor.fetchall()


async def take_rows(
    conn: AsyncConnection[Any], batch_id: UUID, n: int, *, senders: Collection[str], margin_s: float
) -> list[Row]:
    """Lock up to `n` pending follow-ups of these senders. The caller holds the batch FOR KEY SHARE."""
    async with conn.cursor(row_factory=args_row(Row)) as cursor:
        await cursor.execute(SQL.take, {"batch_id": batch_id, "n": n, "senders": list(senders), "margin_s": margin_s})
        return await cursor.fetchall()


async def open_claim(
    conn: AsyncConnection[Any],
    *,
    batch_id: UUID,
    service_id: str,
    worker_id: str,
    slots: Mapping[int, tuple[str, datetime]],
    lease_s: float,
) -> tuple[int, datetime]:
    """Move the locked rows to `pending_send` under a new claim. `slots`: seq -> (business manager, instant).

    Answers (claim id, lease until).
    """
    cursor = await conn.execute(
        SQL.open_claim,
        {
            "batch_id": batch_id,
            "service_id": service_id,
            "worker_id": worker_id,
            "seqs": list(slots),
            "bms": [bm for bm, _ in slots.values()],
            "slots": [slot_at for _, slot_at in slots.values()],
            "size": len(slots),
            "last_slot_at": max(slot_at for _, slot_at in slots.values()),
            "lease_s": lease_s,
        },
    )
    opened = await cursor.fetchone()
    if opened is None or opened[2] != len(slots):
        raise RuntimeError("rows locked by this transaction did not move")
    return opened[0], opened[1]


async def postpone(conn: AsyncConnection[Any], batch_id: UUID, until: Mapping[int, datetime]) -> None:
    """Locked rows that got no slot are not looked at before these instants."""
    if until:
        await conn.execute(SQL.postpone, {"batch_id": batch_id, "seqs": list(until), "ats": list(until.values())})


async def withdraw(conn: AsyncConnection[Any], batch_id: UUID, codes: Mapping[int, str]) -> int:
    """Pending rows that will not be sent become `unsent`, each with its code; how many."""
    if not codes:
        return 0
    cursor = await conn.execute(
        SQL.withdraw, {"batch_id": batch_id, "seqs": list(codes), "codes": list(codes.values())}
    )
    return cursor.rowcount


async def withdraw_ended(conn: AsyncConnection[Any], *, n: int) -> int:
    """The same for up to `n` rows of any batch that was cancelled or ended in error, or whose window has closed."""
    cursor = await conn.execute(SQL.withdraw_ended, {"n": n, "closed": WINDOW_CLOSED})
    return cursor.rowcount


async def move_claimed(
    conn: AsyncConnection[Any], batch_id: UUID, claim_id: int, moves: Sequence[Move], *, look_after_s: float
) -> int:
    """Make the moves of rows that are still `pending_send` under this claim; how many.

    What is given back to a batch that no longer sends, or would have to wait until its window is closed, is dropped.
    Locks the rows in order of seq; the caller holds the batch FOR KEY SHARE.
    """
    if not moves:
        return 0
    cursor = await conn.execute(
        SQL.move_claimed,
        {
            "batch_id": batch_id,
            "claim_id": claim_id,
            "seqs": [move.seq for move in moves],
            "events": [move.event for move in moves],
            "attempts": [move.attempts for move in moves],
            "codes": [move.code for move in moves],
            "delays": [move.delay_s for move in moves],
            "look_after_s": look_after_s,
            "closed": WINDOW_CLOSED,
        },
    )
    return cursor.rowcount


async def lock(conn: AsyncConnection[Any], batch_id: UUID, seqs: Collection[int]) -> dict[int, Stored]:
    """Lock follow-ups of one batch in order of seq and read what is known; those that do not exist are left out."""
    cursor = await conn.execute(SQL.lock, {"batch_id": batch_id, "seqs": list(seqs)})
    return {
        seq: Stored(
            status,
            claim_id,
            number,
            Known(seen_at, delivered_at, failed_at, None, sent_at, gave_up_at, code if failed_at else None, theirs),
        )
        for (
            seq, status, claim_id, number, seen_at, delivered_at, failed_at, sent_at, gave_up_at, code, theirs,
        ) in await cursor.fetchall()
    }  # fmt: skip


async def merge_facts(
    conn: AsyncConnection[Any], batch_id: UUID, facts: Sequence[Fact], *, claim_id: int | None = None
) -> None:
    """Merge facts into the batch's follow-ups, by the rule of domain/facts.py. A new refusal that speaks of its
    contact also suppresses that. Ids of the provider's own are kept as aliases.

    An unsent one and one that was never claimed stay as they are. With `claim_id` only rows whose last claim it is are
    touched. Locks the rows in order of seq.
    """
    told: dict[int, list[Fact]] = {}
    for fact in facts:
        if fact.kind is not FactKind.ASSUMED:  # nothing waits for a follow-up's end, so none is ever assumed
            told.setdefault(fact.seq, []).append(fact)
    if not told:
        return
    stored = await lock(conn, batch_id, sorted(told))
    changed: dict[int, tuple[str, Known]] = {}
    for seq, row in stored.items():
        if row.status == MessageState.UNSENT or row.claim_id is None or claim_id not in (None, row.claim_id):
            continue
        merged = merge(row.known, known_of(told[seq]))
        if merged != row.known:
            changed[seq] = row.status, merged
    if not changed:
        return
    known = [merged for _, merged in changed.values()]
    await conn.execute(
        SQL.put_known,
        {
            "batch_id": batch_id,
            "seqs": list(changed),
            "statuses": [status for status, _ in changed.values()],
            "events": [_event(merged) for merged in known],
            "sent": [merged.sent_at for merged in known],
            "delivered": [merged.delivered_at for merged in known],
            "seen": [merged.seen_at for merged in known],
            "failed": [merged.failed_at for merged in known],
            "gave_up": [merged.gave_up_at for merged in known],
            "provider_ids": [_theirs(batch_id, seq, merged.provider_id) for seq, (_, merged) in changed.items()],
            "codes": [code_of(merged) for merged in known],
        },
    )
    named = {_theirs(batch_id, seq, merged.provider_id): seq for seq, (_, merged) in changed.items()}
    await aliases.note(conn, batch_id, {key: seq for key, seq in named.items() if key}, followup=True)
    await suppression.note_refusals(conn, batch_id, [fact for seq in changed for fact in told[seq]])


async def take_unknown(conn: AsyncConnection[Any], *, n: int, again_s: float, give_up_s: float) -> list[Unknown]:
    """Take up to `n` whose outcome is to be looked up; nobody else gets them for `again_s`."""
    async with conn.cursor(row_factory=args_row(Unknown)) as cursor:
        await cursor.execute(SQL.take_unknown, {"n": n, "again_s": again_s, "give_up_s": give_up_s})
        return await cursor.fetchall()


async def forget_contact(conn: AsyncConnection[Any], batch_id: UUID, seq: int) -> None:
    """Take out of a follow-up what may tell who it was for. One that has not left is not sent: its claim sees to it."""
    await conn.execute(SQL.forget, {"batch_id": batch_id, "seq": seq})


def _arrays(numbered: Sequence[tuple[int, Answer]]) -> dict[str, Any]:
    return {
        "ns": [n for n, _ in numbered],
        "accounts": [answer.account_id for _, answer in numbered],
        "ats": [answer.at for _, answer in numbered],
    }


def _event(known: Known) -> str | None:
    """The lifecycle event of the strongest fact."""
    kind = strongest(known)
    return "gave_up" if kind is FactKind.GIVEN_UP else kind


def _theirs(batch_id: UUID, seq: int, provider_id: str | None) -> str | None:
    """The provider's own id; ours is not stored once more."""
    return None if provider_id == followup_key(batch_id, seq) else provider_id
