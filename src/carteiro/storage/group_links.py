"""Group links and reminders as rows: what they have beside their batch of one, and how they are."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection
from psycopg.rows import args_row

from carteiro.storage.batches import HIGHEST_ID, LOWEST_ID
from carteiro.storage.statements import load

SQL = load("group_links")


@dataclass(frozen=True, slots=True)
class LinkRow:
    """A link with its batch and its only message."""

    id: UUID
    door: str
    flow: str
    service_id: str
    reference: str | None
    template_name: str
    template_language: str
    batch_status: str
    reason: str | None
    error_code: str | None
    message_status: str
    code: str | None
    attempts: int
    """Calls that certainly did not send."""
    max_attempts: int | None
    created_at: datetime
    available_at: datetime | None
    """When it is next due; None while it is being sent, and once it is over."""
    sent_at: datetime | None


async def add(conn: AsyncConnection[Any], batch_id: UUID, account_id: str, flow: str) -> None:
    await conn.execute(SQL.add, {"batch_id": batch_id, "account_id": account_id, "flow": flow})


async def read_page(
    conn: AsyncConnection[Any],
    account_id: str,
    *,
    first_id: UUID = LOWEST_ID,
    last_id: UUID = HIGHEST_ID,
    limit: int = 1,
) -> list[LinkRow]:
    """The account's links with ids from `first_id` to `last_id`, newest first."""
    async with conn.cursor(row_factory=args_row(LinkRow)) as cursor:
        await cursor.execute(
            SQL.page, {"account_id": account_id, "first_id": first_id, "last_id": last_id, "limit": limit}
        )
        return await cursor.fetchall()


async def was_link(conn: AsyncConnection[Any], account_id: str, batch_id: UUID) -> bool:
    """Whether the account had a link or reminder of this id, kept or not."""
    cursor = await conn.execute(SQL.was_link, {"account_id": account_id, "batch_id": batch_id})
    row = await cursor.fetchone()
    return bool(row and row[0])


async def end_reminder(conn: AsyncConnection[Any], batch_id: UUID) -> None:
    """Let nobody claim it any more."""
    await conn.execute(SQL.end_reminder, {"batch_id": batch_id})
