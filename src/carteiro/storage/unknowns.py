"""Messages whose outcome is unknown: taken for look-up, proven absent."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection
from psycopg.rows import args_row

from carteiro.storage.capacity import Unit
from carteiro.storage.statements import load

SQL = load("unknowns")


@dataclass(frozen=True, slots=True)
class Unknown:
    """A message to be looked up. `is_over`: unknown for so long that it is given up unless it is found now."""

    service_id: str
    batch_id: UUID
    seq: int
    look_at: datetime
    """The lease: changed, somebody else looks after the row."""
    is_over: bool


async def take(conn: AsyncConnection[Any], *, n: int, again_s: float, give_up_s: float) -> list[Unknown]:
    """Take up to `n` due rows; nobody else gets them for `again_s`."""
    async with conn.cursor(row_factory=args_row(Unknown)) as cursor:
        await cursor.execute(SQL.take, {"n": n, "again_s": again_s, "give_up_s": give_up_s})
        return await cursor.fetchall()


async def hold(conn: AsyncConnection[Any], batch_id: UUID, rows: Sequence[Unknown]) -> set[int]:
    """Lock those of the batch's rows that are still in the look-up's hands; their seqs."""
    cursor = await conn.execute(
        SQL.hold,
        {"batch_id": batch_id, "seqs": [row.seq for row in rows], "look_ats": [row.look_at for row in rows]},
    )
    return {seq for (seq,) in await cursor.fetchall()}


async def note_absent(conn: AsyncConnection[Any], batch_id: UUID, seqs: Sequence[int], *, proof: int) -> list[int]:
    """Note that the log does not have these rows; answers those that are proven absent by now: missed `proof` times,
    and their id never called a duplicate by the provider."""
    cursor = await conn.execute(SQL.note_absent, {"batch_id": batch_id, "seqs": list(seqs), "proof": proof})
    return [seq for seq, proven in await cursor.fetchall() if proven]


async def read_units(conn: AsyncConnection[Any], batch_id: UUID, seqs: Sequence[int]) -> dict[int, Unit]:
    """The charged units of the rows that are still unknown, by seq. Not locked: read to lock their meters first."""
    cursor = await conn.execute(SQL.units, {"batch_id": batch_id, "seqs": list(seqs)})
    return {seq: Unit(bm, sender, bucket_at) for seq, bm, sender, bucket_at in await cursor.fetchall()}


async def return_absent(conn: AsyncConnection[Any], batch_id: UUID, seqs: Sequence[int], *, event: str) -> list[int]:
    """Move rows that are still unknown by `absent` (claimable again) or `absent_dropped`; answers those that moved.

    Locks the messages in order of seq; the caller holds the batch FOR KEY SHARE.
    """
    cursor = await conn.execute(SQL.return_absent, {"batch_id": batch_id, "seqs": list(seqs), "event": event})
    return [seq for (seq,) in await cursor.fetchall()]
