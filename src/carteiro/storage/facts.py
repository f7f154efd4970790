"""Evidence merged into messages: from our own calls, from receipts and from the provider's log alike."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection

from carteiro.domain.facts import Known, code_of, known_of
from carteiro.domain.lifecycle import MessageState
from carteiro.domain.outcomes import Fact, message_key
from carteiro.storage import aliases, capacity, suppression
from carteiro.storage.statements import load

SQL = load("facts")


@dataclass(slots=True)  # not frozen, which costs four times as much to make: there is one a message
class Merged:
    """What became of one row. Equal statuses: nothing moved. `news`: a fact was new, or earlier than the known one."""

    seq: int
    from_status: str
    to_status: str
    news: bool
    is_owed: bool
    """Its unit had been given back, and it had gone after all: the unit was charged again."""
    unit: capacity.Unit | None
    """The capacity that the row had charged before the merge, if any."""

    @property
    def moved(self) -> bool:
        return self.from_status != self.to_status


async def note_returned(conn: AsyncConnection[Any], batch_id: UUID, seqs: Sequence[int]) -> None:
    """Note that the units of these refused rows go back, in case the provider takes its word back."""
    if seqs:
        await conn.execute(SQL.note_returned, {"batch_id": batch_id, "seqs": list(seqs)})


async def merge_facts(
    conn: AsyncConnection[Any], batch_id: UUID, facts: Sequence[Fact], *, claim_id: int | None = None
) -> list[Merged]:
    """Merge facts of one batch's messages; one answer a row found, in order of seq. Ids that are not answered do not
    exist. A new refusal that speaks of its contact also suppresses that. Ids of the provider's own are kept as aliases.

    Locks: the caller holds the batch FOR KEY SHARE; message rows are locked in order of seq; capacity meters only for
    the rare late evidence on a row that had been given back, whose unit is charged again. With `claim_id` only rows
    whose last claim it is are touched: the fence of a worker's own evidence.
    """
    if not facts:
        return []
    rows = _combined(facts)
    provider_ids = [_theirs(batch_id, seq, known.provider_id) for seq, known in rows.items()]
    cursor = await conn.execute(
        SQL.merge,
        {
            "batch_id": batch_id,
            "claim_id": claim_id,
            "seqs": list(rows),
            "sent": [known.sent_at for known in rows.values()],
            "delivered": [known.delivered_at for known in rows.values()],
            "seen": [known.seen_at for known in rows.values()],
            "failed": [known.failed_at for known in rows.values()],
            "assumed": [known.assumed_at for known in rows.values()],
            "gave_up": [known.gave_up_at for known in rows.values()],
            "provider_ids": provider_ids,
            "codes": [
                known.code if known.failed_at or not known.gave_up_at else code_of(known) for known in rows.values()
            ],
        },
    )
    merged = [_merged(*row) for row in await cursor.fetchall()]
    owed = [row.seq for row in merged if row.is_owed]
    if owed:
        unsent = [row.seq for row in merged if row.is_owed and row.from_status == MessageState.UNSENT]
        if unsent:  # the statement above leaves them as they are: they keep their state, and take their unit
            await conn.execute(SQL.note_gone, {"batch_id": batch_id, "seqs": unsent})
        await capacity.charge_again(conn, batch_id, owed)
    found = {row.seq for row in merged}
    named = {_theirs(batch_id, fact.seq, fact.provider_id): fact.seq for fact in facts if fact.seq in found}
    await aliases.note(conn, batch_id, {provider_id: seq for provider_id, seq in named.items() if provider_id})
    news = {row.seq for row in merged if row.news}
    await suppression.note_refusals(conn, batch_id, [fact for fact in facts if fact.seq in news])
    return merged


def _combined(facts: Iterable[Fact]) -> dict[int, Known]:
    """One row a message, merged by the rule of domain/facts.py before the statement merges it with what is stored."""
    told: dict[int, list[Fact]] = {}
    for fact in facts:
        told.setdefault(fact.seq, []).append(fact)
    return {seq: known_of(of_one) for seq, of_one in told.items()}


def _theirs(batch_id: UUID, seq: int, provider_id: str | None) -> str | None:
    """The provider's own id; ours is not stored once more."""
    return None if provider_id == message_key(batch_id, seq) else provider_id


def _merged(
    seq: int,
    from_status: str,
    to_status: str,
    news: bool,
    is_owed: bool,
    sender: str | None,
    bm: str | None,
    bucket_at: datetime | None,
) -> Merged:
    unit = capacity.Unit(bm, sender, bucket_at) if sender and bm and bucket_at else None
    return Merged(seq, from_status, to_status, news, is_owed, unit)
