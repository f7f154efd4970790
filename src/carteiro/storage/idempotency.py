"""Idempotency keys, which clients choose, and request signatures, which need no client's help."""

from typing import Any
from uuid import UUID

from psycopg import AsyncConnection

from carteiro.storage.statements import load

SQL = load("idempotency")


async def lock_key(conn: AsyncConnection[Any], account_id: str, key: str) -> None:
    """Wait for any other request of the account under this key, until this transaction ends. Read after it."""
    await conn.execute(SQL.lock_key, {"account_id": account_id, "key": key})


async def find_key(conn: AsyncConnection[Any], account_id: str, key: str) -> tuple[bytes, UUID] | None:
    """(request hash, batch) of an earlier request under this key."""
    cursor = await conn.execute(SQL.find_key, {"account_id": account_id, "key": key})
    return await cursor.fetchone()


async def put_key(conn: AsyncConnection[Any], account_id: str, key: str, request_hash: bytes, batch_id: UUID) -> None:
    await conn.execute(
        SQL.put_key, {"account_id": account_id, "key": key, "request_hash": request_hash, "batch_id": batch_id}
    )


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
