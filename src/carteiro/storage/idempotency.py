"""Idempotency keys, which clients choose, and request signatures, which need no client's help."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection

from carteiro.storage.statements import load

SQL = load("idempotency")


@dataclass(frozen=True, slots=True)
class Key:
    """A client's Idempotency-Key, and the SHA-256 of the body that came with it."""

    key: str
    request_hash: bytes
    scope: str = ""
    """Whose keys they are within the account; keys of different scopes never meet. Empty: of its batches."""


async def lock_key(conn: AsyncConnection[Any], account_id: str, key: Key) -> None:
    """Wait for any other request of the account under this key, until this transaction ends. Read after it."""
    await conn.execute(SQL.lock_key, {"account_id": account_id, "scope": key.scope, "key": key.key})


async def find_key(conn: AsyncConnection[Any], account_id: str, key: Key) -> tuple[bytes, UUID] | None:
    """(request hash, batch) of an earlier request under this key."""
    cursor = await conn.execute(SQL.find_key, {"account_id": account_id, "scope": key.scope, "key": key.key})
    return await cursor.fetchone()


async def put_key(conn: AsyncConnection[Any], account_id: str, key: Key, batch_id: UUID) -> None:
    names = {"account_id": account_id, "scope": key.scope, "key": key.key}
    await conn.execute(SQL.put_key, {**names, "request_hash": key.request_hash, "batch_id": batch_id})


async def drop_key(conn: AsyncConnection[Any], account_id: str, key: Key, batch_id: UUID) -> None:
    """Forget the key, if it is still this batch's."""
    names = {"account_id": account_id, "scope": key.scope, "key": key.key}
    await conn.execute(SQL.drop_key, {**names, "batch_id": batch_id})


async def claim_signature(
    conn: AsyncConnection[Any], account_id: str, signature: bytes, batch_id: UUID, *, ttl_s: float
) -> UUID:
    """Claim the signature for `batch_id`; the batch that has it now, which is another one while that one's time runs.

    Waits for a transaction that is claiming the same signature.
    """
    names = {"account_id": account_id, "signature": signature}
    cursor = await conn.execute(SQL.claim_signature, {**names, "batch_id": batch_id, "ttl_s": ttl_s})
    row = await cursor.fetchone()
    if row is None:
        cursor = await conn.execute(SQL.find_signature, names)
        row = await cursor.fetchone()
    assert row is not None
    owner: UUID = row[0]
    return owner
