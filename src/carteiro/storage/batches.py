"""Batches as rows: drafts, their opening, and reports."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection
from psycopg.rows import args_row
from psycopg.types.json import Jsonb

from carteiro.domain import money
from carteiro.storage.later import Later
from carteiro.storage.statements import load

SQL = load("batches")

LOWEST_ID, HIGHEST_ID = UUID(int=0), UUID(int=2**128 - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A batch as it is inserted; the names are those of the columns."""

    id: UUID
    account_id: str
    billing_account_id: str
    service_id: str
    total: int
    charge_rule: str
    template_name: str
    template_language: str
    template_signature: bytes
    template_content: Mapping[str, Any]
    request_signature: bytes
    header: Mapping[str, str] | None = None
    reference: str | None = None
    callback_url: str | None = None
    on_capacity: str = "reject"
    skipped: Mapping[str, Any] | None = None
    max_attempts: int | None = None
    scheduled_at: datetime | None = None
    expires_at: datetime | None = None
    priority: int = 0
    door: str = "batch"
    parent_batch_id: UUID | None = None
    retry_base_s: float | None = None
    follow_up: Mapping[str, Any] | None = None

    @property
    def price(self) -> int:
        """Credits to take for it."""
        return money.price(self.charge_rule, self.total)


@dataclass(frozen=True, slots=True)
class Report:
    """A batch with its counts, all of one instant (`read_at`)."""

    id: UUID
    service_id: str
    status: str
    reason: str | None
    error_code: str | None
    blocked_by: str | None
    next_attempt_at: datetime | None
    total: int
    debited: int
    charged: int
    refunded: int
    template_name: str
    template_language: str
    reference: str | None
    callback_url: str | None
    on_capacity: str
    skipped: dict[str, Any] | None
    max_attempts: int | None
    follow_up: dict[str, Any] | None
    created_at: datetime
    scheduled_at: datetime | None
    expires_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    settled_at: datetime | None
    pending: int
    pending_send: int
    unknown: int
    sent: int
    delivered: int
    seen: int
    failed: int
    unsent: int
    suppressed: int
    """Of the unsent ones, those withdrawn because their contact was suppressed."""
    answered: int
    """Calls that got their answer in the minute before `read_at`."""
    parent_batch_id: UUID | None
    retried_as: UUID | None
    """The batch that sends its failed messages again."""
    read_at: datetime


async def set_actor(conn: AsyncConnection[Any], actor: str) -> None:
    """Who acts in this transaction, for the audit rows."""
    await conn.execute(SQL.set_actor, {"actor": actor})


async def add_draft(conn: AsyncConnection[Any], draft: Draft) -> None:
    """Insert a batch that neither clients nor pumps see."""
    values = {name: getattr(draft, name) for name in Draft.__dataclass_fields__}
    for name in ("template_content", "header", "skipped", "follow_up"):
        values[name] = None if values[name] is None else Jsonb(values[name])
    await conn.execute(SQL.add_draft, values)


async def hold_draft(conn: AsyncConnection[Any], batch_id: UUID) -> bool:
    """Keep the draft from being deleted while this transaction adds to it. False: it is gone."""
    cursor = await conn.execute(SQL.hold_draft, {"batch_id": batch_id})
    return await cursor.fetchone() is not None


async def complete_draft(conn: AsyncConnection[Any], draft: Draft) -> None:
    """What is known of a draft only when its last row was loaded: how many there are, their signature, and what was
    left out.
    """
    await conn.execute(
        SQL.complete_draft,
        {
            "id": draft.id,
            "total": draft.total,
            "request_signature": draft.request_signature,
            "skipped": None if draft.skipped is None else Jsonb(draft.skipped),
        },
    )


async def open_draft(conn: AsyncConnection[Any], batch_id: UUID, *, event: str, debited: int) -> Later[bool]:
    """Make the draft visible by `event` (opened or moderated). False: it is gone, or no draft any more."""
    cursor = await conn.execute(SQL.open, {"batch_id": batch_id, "event": event, "debited": debited})

    async def read() -> bool:
        return await cursor.fetchone() is not None

    return Later(read)


async def unlock_early(conn: AsyncConnection[Any]) -> None:
    """Let this transaction's commit release its locks before it is on disk. Whoever reads what it wrote and commits
    something himself has it on disk by then; the caller tells nobody of it before `reach_disk`.
    """
    await conn.execute(SQL.unlock_early)


async def reach_disk(conn: AsyncConnection[Any]) -> None:
    """Wait until all that was committed before is on disk: now, or in a transaction at its commit."""
    await conn.execute(SQL.reach_disk)


async def drop_draft(conn: AsyncConnection[Any], batch_id: UUID) -> bool:
    """Delete a draft with its rows. False: it was opened meanwhile, or is being opened."""
    cursor = await conn.execute(SQL.lock_draft, {"batch_id": batch_id})
    if await cursor.fetchone() is None:
        return False
    await conn.execute(SQL.drop_draft, {"batch_id": batch_id})
    return True


async def abandoned_drafts(conn: AsyncConnection[Any], *, older_than_s: float) -> list[UUID]:
    cursor = await conn.execute(SQL.abandoned_drafts, {"older_than_s": older_than_s})
    return [batch_id for (batch_id,) in await cursor.fetchall()]


async def read_owner(conn: AsyncConnection[Any], batch_id: UUID) -> str | None:
    """The account of a batch that is not a draft."""
    cursor = await conn.execute(SQL.owner, {"batch_id": batch_id})
    row = await cursor.fetchone()
    return row[0] if row else None


async def read_reports(
    conn: AsyncConnection[Any],
    account_id: str,
    *,
    first_id: UUID = LOWEST_ID,
    last_id: UUID = HIGHEST_ID,
    status: str | None = None,
    limit: int = 1,
) -> list[Report]:
    """The account's batches with ids from `first_id` to `last_id`, newest first. Drafts are left out."""
    async with conn.cursor(row_factory=args_row(Report)) as cursor:
        await cursor.execute(
            SQL.report,
            {
                "account_id": account_id,
                "first_id": first_id,
                "last_id": last_id,
                "status": status,
                "limit": limit,
            },
        )
        return await cursor.fetchall()
