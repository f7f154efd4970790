"""Settling a batch: finding it, locking it, writing its totals; and the upkeep of the tallies behind its counts."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection
from psycopg.rows import args_row

from carteiro.domain.lifecycle import MessageState
from carteiro.storage.statements import load

SQL = load("settlement")


@dataclass(frozen=True, slots=True)
class Unsettled:
    """A batch under its lock, before its settlement. Money in credits."""

    billing_account_id: str
    status: str
    charge_rule: str
    total: int
    debited: int
    refunded: int
    callback_url: str | None
    reference: str | None
    error_code: str | None


@dataclass(frozen=True, slots=True)
class Settled:
    """What the settlement wrote."""

    status: str
    refunded: int
    settled_at: datetime


async def settleable(conn: AsyncConnection[Any], *, limit: int) -> list[UUID]:
    """Unsettled batches whose messages are all terminal, by the tallies, oldest first. Nothing is locked."""
    cursor = await conn.execute(SQL.settleable, {"limit": limit})
    return [batch_id for (batch_id,) in await cursor.fetchall()]


async def lock_unsettled(conn: AsyncConnection[Any], batch_id: UUID) -> Unsettled | None:
    """Lock the batch FOR UPDATE: nobody moves its messages meanwhile. None when it is settled, or has not begun."""
    async with conn.cursor(row_factory=args_row(Unsettled)) as cursor:
        await cursor.execute(SQL.lock_unsettled, {"batch_id": batch_id})
        return await cursor.fetchone()


async def read_counts(conn: AsyncConnection[Any], batch_id: UUID) -> dict[MessageState, int]:
    """Messages of the batch per state, exact in any snapshot."""
    cursor = await conn.execute(SQL.counts, {"batch_id": batch_id})
    row = await cursor.fetchone()
    assert row is not None
    return dict(zip(MessageState, row, strict=True))


async def settle(conn: AsyncConnection[Any], batch_id: UUID, *, charged: int, refund: int) -> Settled | None:
    """Write the totals once; None when that was done before. The caller has locked the batch FOR UPDATE."""
    async with conn.cursor(row_factory=args_row(Settled)) as cursor:
        await cursor.execute(SQL.settle, {"batch_id": batch_id, "charged": charged, "refund": refund})
        return await cursor.fetchone()


async def release_holds(conn: AsyncConnection[Any], batch_id: UUID) -> list[str]:
    """Give up all that the batch still holds; answers the business managers. The caller has locked their meters."""
    cursor = await conn.execute(SQL.release_holds, {"batch_id": batch_id})
    return [owner for (owner,) in await cursor.fetchall()]


async def wake_waiting(
    conn: AsyncConnection[Any], business_managers: Sequence[str], *, reasons: Sequence[str] = ("capacity",)
) -> int:
    """Let the batches that wait for capacity on these business managers, or for another of the reasons that stand in
    `blocked_by`, try again now; how many. Locks them by id.
    """
    cursor = await conn.execute(
        SQL.wake_waiting, {"business_managers": list(business_managers), "reasons": list(reasons)}
    )
    return cursor.rowcount


async def overdue(conn: AsyncConnection[Any], *, older_than_s: float) -> list[UUID]:
    """Unsettled batches with `sent` messages, of which nothing was claimed for `older_than_s`."""
    cursor = await conn.execute(SQL.overdue, {"older_than_s": older_than_s})
    return [batch_id for (batch_id,) in await cursor.fetchall()]


async def settled_with_sent(conn: AsyncConnection[Any]) -> list[UUID]:
    """Settled batches with `sent` messages. Reads all tallies."""
    cursor = await conn.execute(SQL.settled_with_sent)
    return [batch_id for (batch_id,) in await cursor.fetchall()]


async def assume_delivered(
    conn: AsyncConnection[Any], batch_id: UUID, *, after_seq: int, older_than_s: float, limit: int
) -> tuple[int, int | None]:
    """Of the `limit` messages after `after_seq`, take those that were sent `older_than_s` ago for delivered: (how many,
    after which to go on; None: that was the end of the batch).

    Locks the batch FOR KEY SHARE, then messages in order of seq.
    """
    cursor = await conn.execute(SQL.share_batch, {"batch_id": batch_id})
    batch = await cursor.fetchone()
    assert batch is not None
    cursor = await conn.execute(
        SQL.assume_delivered,
        {"batch_id": batch_id, "after_seq": after_seq, "older_than_s": older_than_s, "limit": limit},
    )
    row = await cursor.fetchone()
    assert row is not None
    return row[0], after_seq + limit if after_seq + limit < batch[0] else None


async def tall_batches(conn: AsyncConnection[Any], *, rows: int, among: Sequence[UUID] | None = None) -> list[UUID]:
    """Batches with more than `rows` tally rows: the unsettled ones, or those among the given."""
    if among is None:
        cursor = await conn.execute(SQL.tall_unsettled, {"rows": rows})
    else:
        cursor = await conn.execute(SQL.tall_among, {"rows": rows, "batch_ids": list(among)})
    return [batch_id for (batch_id,) in await cursor.fetchall()]


async def fold_tally(conn: AsyncConnection[Any], batch_id: UUID) -> None:
    """Replace the batch's tally rows by their sum. Locks the rows that it folds, skipping locked ones."""
    await conn.execute(SQL.fold_tally, {"batch_id": batch_id})
