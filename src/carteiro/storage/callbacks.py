"""Callbacks waiting to be sent, and the record of each attempt."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection
from psycopg.rows import args_row
from psycopg.types.json import Jsonb
from uuid_utils.compat import uuid7

from carteiro.storage.statements import load

SQL = load("callbacks")


@dataclass(frozen=True, slots=True)
class Due:
    """A callback taken for one attempt. `attempt` counts from 1; `secret` is the account's (Standard Webhooks)."""

    id: UUID
    url: str
    body: dict[str, Any]
    attempt: int
    secret: str


async def queue(conn: AsyncConnection[Any], *, batch_id: UUID, event: str, url: str, body: Mapping[str, Any]) -> None:
    """Queue a callback, due at once; nothing when the batch has one of this event already."""
    await conn.execute(
        SQL.queue, {"id": uuid7(), "batch_id": batch_id, "event": event, "url": url, "body": Jsonb(dict(body))}
    )


async def claim_due(conn: AsyncConnection[Any], *, limit: int, lease_s: float) -> list[Due]:
    """Take up to `limit` due callbacks, longest due first; each is due again after `lease_s` unless recorded before."""
    async with conn.cursor(row_factory=args_row(Due)) as cursor:
        await cursor.execute(SQL.claim_due, {"limit": limit, "lease_s": lease_s})
        return await cursor.fetchall()


async def record_delivered(conn: AsyncConnection[Any], callback_id: UUID, *, status: int) -> None:
    await conn.execute(SQL.note_attempt, {"id": callback_id, "status": status, "error": None})
    await conn.execute(SQL.delivered, {"id": callback_id})


async def record_failed(
    conn: AsyncConnection[Any],
    callback_id: UUID,
    *,
    attempt: int,
    status: int | None,
    error: str,
    delay_s: float | None,
) -> None:
    """Note a failure: due again after `delay_s`, or given up when that is None. A later attempt's word is kept."""
    await conn.execute(SQL.note_attempt, {"id": callback_id, "status": status, "error": error})
    await conn.execute(SQL.failed, {"id": callback_id, "attempt": attempt, "delay_s": delay_s})


async def replay(conn: AsyncConnection[Any], callback_id: UUID) -> bool:
    """Queue it anew, whatever became of it, under the same id. False: there is none."""
    cursor = await conn.execute(SQL.replay, {"id": callback_id})
    return cursor.rowcount == 1
