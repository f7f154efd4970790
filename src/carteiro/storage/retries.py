"""A batch whose failed messages are sent again, and the one that sends them."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection
from psycopg.rows import args_row

from carteiro.domain.lifecycle import OUTCOME_UNKNOWN
from carteiro.storage.statements import load

SQL = load("retries")


@dataclass(frozen=True, slots=True)
class Parent:
    """What its child takes over, and whether it may have one."""

    id: UUID
    account_id: str
    service_id: str
    door: str
    priority: int
    template_name: str
    template_language: str
    template_signature: bytes
    template_content: dict[str, Any]
    header: dict[str, str] | None
    reference: str | None
    callback_url: str | None
    on_capacity: str
    max_attempts: int | None
    retry_base_s: float | None
    follow_up: dict[str, Any] | None
    status: str
    settled_at: datetime | None
    retried_as: UUID | None
    """Its child, once that is there."""


@dataclass(frozen=True, slots=True)
class Copied:
    """Rows of a child, seq from 1 without gaps."""

    total: int
    guarded: list[int]
    """Seqs of those that the guard refused: they will be refused again, and take no capacity."""
    erasures: int
    """Of the parent, as the copy saw it."""


async def read_parent(conn: AsyncConnection[Any], account_id: str, batch_id: UUID) -> Parent | None:
    async with conn.cursor(row_factory=args_row(Parent)) as cursor:
        await cursor.execute(SQL.parent, {"account_id": account_id, "batch_id": batch_id})
        return await cursor.fetchone()


async def copy_failed(conn: AsyncConnection[Any], parent_id: UUID, batch_id: UUID) -> Copied:
    """Insert the parent's failed messages as rows of `batch_id`, without those whose outcome is unknown or whose
    contact was erased.
    """
    cursor = await conn.execute(
        SQL.copy_failed, {"parent_id": parent_id, "batch_id": batch_id, "outcome_unknown": OUTCOME_UNKNOWN}
    )
    row = await cursor.fetchone()
    assert row is not None
    return Copied(*row)


async def lock_parent(conn: AsyncConnection[Any], parent_id: UUID) -> int:
    """Lock the batch FOR UPDATE; how many erasures there were in it until then."""
    await conn.execute(SQL.lock_parent, {"parent_id": parent_id})
    cursor = await conn.execute(SQL.erasures, {"parent_id": parent_id})
    row = await cursor.fetchone()
    assert row is not None
    return int(row[0])


async def find_child(conn: AsyncConnection[Any], parent_id: UUID) -> UUID | None:
    """Read it after the service's lock, in a statement of its own."""
    cursor = await conn.execute(SQL.child, {"parent_id": parent_id})
    row = await cursor.fetchone()
    return row[0] if row else None
