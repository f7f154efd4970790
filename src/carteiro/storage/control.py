"""Batches as clients steer them, the signal that halts them in running workers, and the holds that they do not need."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection
from psycopg.rows import args_row

from carteiro.domain.lifecycle import ENDED, BatchState
from carteiro.storage.statements import load

SQL = load("control")

UNSTARTED = (BatchState.PENDING_MODERATION, BatchState.PENDING)
"""States of a batch of which nothing was ever claimed."""
_ENDED = [str(state) for state in ENDED]
_UNSTARTED = [str(state) for state in UNSTARTED]


@dataclass(frozen=True, slots=True)
class Steered:
    """A batch under its lock. `now` is the database's clock."""

    now: datetime
    service_id: str
    status: str
    scheduled_at: datetime | None
    expires_at: datetime | None
    approved: bool
    """It came through moderation."""


async def lock_batch(conn: AsyncConnection[Any], account_id: str, batch_id: UUID) -> Steered | None:
    """The batch, locked FOR UPDATE; None when the account has no such batch. After the capacity meters, if any."""
    async with conn.cursor(row_factory=args_row(Steered)) as cursor:
        await cursor.execute(SQL.lock_batch, {"account_id": account_id, "batch_id": batch_id})
        return await cursor.fetchone()


async def move_batch(conn: AsyncConnection[Any], batch_id: UUID, *, event: str, reason: str | None) -> str | None:
    """Move the batch by a lifecycle event: its new state, or None where the event is illegal in the present one."""
    cursor = await conn.execute(
        SQL.move_batch, {"batch_id": batch_id, "event": event, "reason": reason, "ended": _ENDED}
    )
    row = await cursor.fetchone()
    return row[0] if row else None


async def reschedule(conn: AsyncConnection[Any], batch_id: UUID, scheduled_at: datetime | None) -> None:
    """Set when dispatch of a locked, UNSTARTED batch begins; None: at once. Leaves any other batch as it is."""
    await conn.execute(SQL.reschedule, {"batch_id": batch_id, "scheduled_at": scheduled_at, "unstarted": _UNSTARTED})


async def tell_workers(conn: AsyncConnection[Any], batch_id: UUID) -> None:
    """Let every listening worker know that the batch was halted, once this transaction commits."""
    await conn.execute(SQL.tell_workers, {"batch_id": batch_id})


async def listen(conn: AsyncConnection[Any]) -> None:
    """Hear of halted batches on this connection: an autocommit one, direct to Postgres."""
    await conn.execute(SQL.listen)


async def heard(conn: AsyncConnection[Any], *, timeout_s: float) -> AsyncIterator[UUID]:
    """The batches that are halted within the next `timeout_s`; then asks Postgres whether it is still there."""
    async for notify in conn.notifies(timeout=timeout_s):
        yield UUID(notify.payload)
    await conn.execute(SQL.still_there)


async def until_last_slot_s(conn: AsyncConnection[Any], service_id: str, batch_id: UUID) -> float | None:
    """Seconds until the last slot of the batch's open claims, negative once it is past; None without an open claim."""
    cursor = await conn.execute(SQL.until_last_slot, {"service_id": service_id, "batch_id": batch_id})
    row = await cursor.fetchone()
    return row[0] if row else None


async def idle_holders(conn: AsyncConnection[Any], *, keep_s: float, batch_id: UUID | None = None) -> list[UUID]:
    """Batches (or whether this one) that hold capacity which they will not use soon: ended, expired, or paused for
    longer than `keep_s`.
    """
    cursor = await conn.execute(SQL.idle_holders, {"keep_s": keep_s, "batch_id": batch_id, "ended": _ENDED})
    return [found for (found,) in await cursor.fetchall()]
