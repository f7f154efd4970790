"""What a sweep asks of the tables."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection
from psycopg.rows import args_row

from carteiro.storage.statements import load

SQL = load("sweep")


@dataclass(frozen=True, slots=True)
class Due:
    """Which chores have something to do."""

    receipts: bool
    callbacks: bool
    lapsed: bool
    unsettled: bool
    unknown: bool
    follow_ups: bool
    """Some that will not be sent any more are still pending."""
    sync: bool


async def services_to_pump(conn: AsyncConnection[Any]) -> set[str]:
    """Services with a batch, or with follow-ups, that could be sent now."""
    cursor = await conn.execute(SQL.services_to_pump)
    return {service_id for (service_id,) in await cursor.fetchall()}


async def try_lead(conn: AsyncConnection[Any], worker_id: str, *, lease_s: float) -> bool:
    """Lead the sweep for `lease_s`, unless another worker does. No lock is held: two leaders would do things twice,
    harmlessly.
    """
    cursor = await conn.execute(SQL.try_lead, {"worker_id": worker_id, "lease_s": lease_s})
    return await cursor.fetchone() is not None


async def read_due(conn: AsyncConnection[Any]) -> Due:
    async with conn.cursor(row_factory=args_row(Due)) as cursor:
        await cursor.execute(SQL.due)
        due = await cursor.fetchone()
    assert due is not None
    return due


async def see_worker(conn: AsyncConnection[Any], worker_id: str) -> None:
    await conn.execute(SQL.see_worker, {"worker_id": worker_id})


async def forget_silent_workers(conn: AsyncConnection[Any], *, silent_s: float) -> None:
    """Forget workers unseen for so long, and the jobs in the queues that only they read."""
    await conn.execute(SQL.forget_workers, {"silent_s": silent_s})


async def batches_to_withdraw(conn: AsyncConnection[Any]) -> list[UUID]:
    """Batches that no longer send, or have expired, with rows still pending."""
    cursor = await conn.execute(SQL.batches_to_withdraw)
    return [batch_id for (batch_id,) in await cursor.fetchall()]


async def withdraw_rows(
    conn: AsyncConnection[Any], batch_id: UUID, *, after_seq: int | None, n: int
) -> tuple[int, int | None]:
    """Move the pending rows among the `n` after `after_seq`, of a batch that ended or expired, to `unsent`: (how many,
    after which to go on; None: that was the end of the batch).

    `after_seq` None: from where nothing was claimed yet; a batch of up to `n` rows whole. Locks the batch FOR UPDATE,
    then the rows in order of seq.
    """
    await conn.execute(SQL.lock_batch, {"batch_id": batch_id})
    await conn.execute(SQL.expire_batch, {"batch_id": batch_id})
    cursor = await conn.execute(SQL.withdraw_rows, {"batch_id": batch_id, "after_seq": after_seq, "n": n})
    row = await cursor.fetchone()
    assert row is not None
    return row[0], row[1]


async def ensure_partitions(conn: AsyncConnection[Any]) -> None:
    """Make the partitions of the weeks to come. Locks: an advisory lock of its own."""
    await conn.execute(SQL.ensure_partitions)
