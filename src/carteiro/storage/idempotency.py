"""Idempotency keys, which clients choose, and request signatures, which need no client's help."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection

from carteiro.storage.later import Later
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
    """As `ask_key`, and wait for it."""
    return await (await ask_key(conn, account_id, key))


async def ask_key(conn: AsyncConnection[Any], account_id: str, key: Key) -> Later[tuple[bytes, UUID] | None]:
    """(request hash, batch) of an earlier request under this key."""
    cursor = await conn.execute(SQL.find_key, {"account_id": account_id, "scope": key.scope, "key": key.key})
    return Later(cursor.fetchone)


async def put_key(conn: AsyncConnection[Any], account_id: str, key: Key, batch_id: UUID) -> None:
    names = {"account_id": account_id, "scope": key.scope, "key": key.key}
    await conn.execute(SQL.put_key, {**names, "request_hash": key.request_hash, "batch_id": batch_id})


async def drop_key(conn: AsyncConnection[Any], account_id: str, key: Key, batch_id: UUID) -> None:
    """Forget the key, if it is still this batch's."""
    names = {"account_id": account_id, "scope": key.scope, "key": key.key}
    await conn.execute(SQL.drop_key, {**names, "batch_id": batch_id})


async def claim_signature(
    conn: AsyncConnection[Any], account_id: str, signature: bytes, batch_id: UUID, *, ttl_s: float
) -> Later[UUID]:
    """Claim the signature for `batch_id`; the batch that has it now, which is another one while that one's time runs.

    Waits for a transaction that is claiming the same signature.
    """
    names = {"account_id": account_id, "signature": signature}
    cursor = await conn.execute(SQL.claim_signature, {**names, "batch_id": batch_id, "ttl_s": ttl_s})

    async def read() -> UUID:
        row = await cursor.fetchone()
        if row is None:
            found = await conn.execute(SQL.find_signature, names)
            row = await found.fetchone()
        assert row is not None
        owner: UUID = row[0]
        return owner

    return Later(read)
