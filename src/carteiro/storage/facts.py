"""Evidence merged into messages: from our own calls, from receipts and from the provider's log alike."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection

from carteiro.domain.outcomes import Fact, FactKind, message_key
from carteiro.storage import capacity
from carteiro.storage.statements import load

SQL = load("facts")


@dataclass(frozen=True, slots=True)
class Merged:
    """What became of one row. Equal statuses: nothing moved. `news`: a fact was new, or earlier than the known one."""

    seq: int
    from_status: str
    to_status: str
    news: bool
    unit: capacity.Unit | None
    """The capacity that the row had charged before the merge, if any."""

    @property
    def moved(self) -> bool:
        return self.from_status != self.to_status


async def merge_facts(
    conn: AsyncConnection[Any], batch_id: UUID, facts: Sequence[Fact], *, claim_id: int | None = None
) -> list[Merged]:
    """Merge facts of one batch's messages; one answer a row found, in order of seq. Ids that are not answered do not
    exist.

    Locks: the caller holds the batch FOR KEY SHARE; message rows are locked in order of seq; capacity meters only for
    the rare late evidence on a row that had been given back, whose unit is charged again. With `claim_id` only rows
    whose last claim it is are touched: the fence of a worker's own evidence.
    """
    if not facts:
        return []
    rows = _combined(batch_id, facts)
    cursor = await conn.execute(
        SQL.merge,
        {
            "batch_id": batch_id,
            "claim_id": claim_id,
            "seqs": list(rows),
            **{_COLUMN[kind]: [row.at.get(kind) for row in rows.values()] for kind in FactKind},
            "provider_ids": [row.provider_id for row in rows.values()],
            "codes": [row.code for row in rows.values()],
        },
    )
    merged = [_merged(*row) for row in await cursor.fetchall()]
    late = [row for row in merged if row.moved and row.from_status == "pending"]
    if late:
        await capacity.charge_again(conn, batch_id, [row.seq for row in late])
    return merged


_COLUMN = {
    FactKind.SENT: "sent",
    FactKind.DELIVERED: "delivered",
    FactKind.SEEN: "seen",
    FactKind.FAILED: "failed",
    FactKind.ASSUMED: "assumed",
    FactKind.GIVEN_UP: "gave_up",
}


@dataclass(slots=True)
class _Row:
    at: dict[FactKind, datetime]
    provider_id: str | None = None
    code: str | None = None


def _combined(batch_id: UUID, facts: Iterable[Fact]) -> dict[int, _Row]:
    """One row a message: the earliest time of each kind, and the code of the earliest failure."""
    rows: dict[int, _Row] = {}
    for fact in facts:
        row = rows.setdefault(fact.seq, _Row({}))
        known = row.at.get(fact.kind)
        if known is None or fact.at < known:
            row.at[fact.kind] = fact.at
            if fact.kind in (FactKind.FAILED, FactKind.GIVEN_UP):
                row.code = fact.code
        if fact.provider_id and fact.provider_id != message_key(batch_id, fact.seq):
            row.provider_id = fact.provider_id
    return rows


def _merged(
    seq: int,
    from_status: str,
    to_status: str,
    news: bool,
    sender: str | None,
    bm: str | None,
    bucket_at: datetime | None,
) -> Merged:
    unit = capacity.Unit(bm, sender, bucket_at) if sender and bm and bucket_at else None
    return Merged(seq, from_status, to_status, news, unit)
