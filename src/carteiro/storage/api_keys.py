"""API keys: only the SHA-256 of a key's secret is stored."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg import AsyncConnection
from psycopg.rows import args_row

from carteiro.storage.statements import load

SQL = load("api_keys")

TOUCH_AFTER_S = 60
"""`last_used_at` is as exact as this, so that a busy key is not a hot row."""


@dataclass(frozen=True, slots=True)
class StoredKey:
    """A key as authentication needs it. `valid`: neither revoked nor expired. `stale`: `last_used_at` is due."""

    id: str
    account_id: str
    billing_account_id: str
    secret_hash: bytes
    scopes: list[str]
    valid: bool
    stale: bool
    owner_id: str | None


@dataclass(frozen=True, slots=True)
class ListedKey:
    id: str
    account_id: str
    name: str
    scopes: list[str]
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None
    owner_id: str | None


async def add(
    conn: AsyncConnection[Any],
    *,
    id: str,
    account_id: str,
    name: str,
    secret_hash: bytes,
    scopes: Sequence[str],
    expires_at: datetime | None,
    owner_id: str | None = None,
) -> None:
    await conn.execute(
        SQL.add,
        {
            "id": id,
            "account_id": account_id,
            "name": name,
            "secret_hash": secret_hash,
            "scopes": list(scopes),
            "expires_at": expires_at,
            "owner_id": owner_id,
        },
    )


async def find(conn: AsyncConnection[Any], id: str) -> StoredKey | None:
    async with conn.cursor(row_factory=args_row(StoredKey)) as cursor:
        await cursor.execute(SQL.find, {"id": id, "touch_after_s": TOUCH_AFTER_S})
        return await cursor.fetchone()


async def touch(conn: AsyncConnection[Any], id: str) -> None:
    """Note the use, once per TOUCH_AFTER_S however many requests there are."""
    await conn.execute(SQL.touch, {"id": id, "touch_after_s": TOUCH_AFTER_S})


async def revoke(conn: AsyncConnection[Any], id: str) -> bool:
    """False: there is no such key, or it was revoked before."""
    cursor = await conn.execute(SQL.revoke, {"id": id})
    return await cursor.fetchone() is not None


async def read_list(conn: AsyncConnection[Any], account_id: str | None) -> list[ListedKey]:
    """The keys of one account, or of all."""
    async with conn.cursor(row_factory=args_row(ListedKey)) as cursor:
        await cursor.execute(SQL.list, {"account_id": account_id})
        return await cursor.fetchall()
