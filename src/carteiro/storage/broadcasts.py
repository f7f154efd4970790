"""What a broadcast has beside its batch, and its recipients."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection
from psycopg.rows import args_row
from psycopg.types.json import Jsonb

from carteiro.storage.statements import load

SQL = load("broadcasts")


@dataclass(frozen=True, slots=True)
class Broadcast:
    """A row of its own table; the names are those of the columns."""

    batch_id: UUID
    public_id: str
    owner_id: str
    group_id: str
    variables: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Found:
    batch_id: UUID
    public_id: str
    group_id: str
    total: int


@dataclass(frozen=True, slots=True)
class Recipient:
    seq: int
    address: str
    """Digits; empty: the contact was erased."""
    status: str
    """State of the message."""
    attempts: int
    code: str | None
    sent_at: datetime | None
    delivered_at: datetime | None
    read_at: datetime | None
    failed_at: datetime | None


async def add(conn: AsyncConnection[Any], broadcast: Broadcast) -> None:
    """Its batch is there already."""
    await conn.execute(
        SQL.add,
        {
            "batch_id": broadcast.batch_id,
            "public_id": broadcast.public_id,
            "owner_id": broadcast.owner_id,
            "group_id": broadcast.group_id,
            "variables": Jsonb(broadcast.variables),
        },
    )


async def find(
    conn: AsyncConnection[Any],
    account_id: str,
    owner_id: str | None,
    *,
    batch_id: UUID | None = None,
    public_id: str | None = None,
) -> Found | None:
    """The owner's broadcast by one of its two ids; another's is not found."""
    async with conn.cursor(row_factory=args_row(Found)) as cursor:
        await cursor.execute(
            SQL.find,
            {"account_id": account_id, "owner_id": owner_id, "batch_id": batch_id, "public_id": public_id},
        )
        return await cursor.fetchone()


async def read_recipients(
    conn: AsyncConnection[Any], batch_id: UUID, *, after_seq: int, states: Sequence[str] | None, limit: int
) -> list[Recipient]:
    """In order of seq, after `after_seq`, of some states of messages or all."""
    async with conn.cursor(row_factory=args_row(Recipient)) as cursor:
        await cursor.execute(
            SQL.recipients,
            {
                "batch_id": batch_id,
                "after_seq": after_seq,
                "states": None if states is None else list(states),
                "limit": limit,
            },
        )
        return await cursor.fetchall()
