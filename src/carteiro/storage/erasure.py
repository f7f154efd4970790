"""One person's rows: found by phone identity, emptied, and the fact written down under a salted hash."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection

from carteiro.domain.erasure import ERASED
from carteiro.storage.statements import load

SQL = load("erasure")


@dataclass(frozen=True, slots=True)
class PayloadId:
    """Where a raw receipt is; also the place of a scan."""

    received_at: datetime
    id: int


START = PayloadId(datetime(1970, 1, 1, tzinfo=UTC), 0)


async def find_batches(conn: AsyncConnection[Any], phone_key: int) -> list[UUID]:
    """Every batch, of any account, with a message to this contact."""
    cursor = await conn.execute(SQL.batches, {"phone_key": phone_key})
    return [batch_id for (batch_id,) in await cursor.fetchall()]


async def lock_message(conn: AsyncConnection[Any], batch_id: UUID, phone_key: int) -> tuple[int, str] | None:
    """(seq, status) of the contact's message in the batch. The caller holds the batch row FOR KEY SHARE."""
    cursor = await conn.execute(SQL.lock_message, {"batch_id": batch_id, "phone_key": phone_key})
    return await cursor.fetchone()


async def withdraw(conn: AsyncConnection[Any], batch_id: UUID, seqs: Sequence[int]) -> int:
    """Pending messages of erased contacts become `unsent`; how many. The caller has locked the batch and them."""
    if not seqs:
        return 0
    cursor = await conn.execute(SQL.withdraw, {"batch_id": batch_id, "seqs": list(seqs), "code": ERASED})
    row = await cursor.fetchone()
    return int(row[0]) if row else 0


async def read_provider_ids(conn: AsyncConnection[Any], batch_id: UUID, seq: int) -> list[str]:
    """What the provider calls a message."""
    cursor = await conn.execute(SQL.provider_ids, {"batch_id": batch_id, "seq": seq})
    return [provider_id for (provider_id,) in await cursor.fetchall()]


async def forget_contact(conn: AsyncConnection[Any], batch_id: UUID, seq: int) -> None:
    """Empty the message's content, and put a salted hash in the place of the phone. The caller has locked it."""
    await conn.execute(SQL.forget, {"batch_id": batch_id, "seq": seq})


async def find_payloads(conn: AsyncConnection[Any], batch_id: UUID, seq: int) -> list[PayloadId]:
    """The raw receipts in which something was said of a message."""
    cursor = await conn.execute(SQL.payloads_of, {"batch_id": batch_id, "seq": seq})
    return [PayloadId(*row) for row in await cursor.fetchall()]


async def scan_payloads(
    conn: AsyncConnection[Any], after: PayloadId, spellings: Sequence[str], *, limit: int
) -> tuple[list[PayloadId], PayloadId | None]:
    """Those of the next `limit` raw receipts that mention a spelling, and the last one looked at; None: the end."""
    cursor = await conn.execute(
        SQL.scan_payloads,
        {
            "received_at": after.received_at,
            "id": after.id,
            "spellings": [spelling.encode() for spelling in spellings],
            "limit": limit,
        },
    )
    page = [(PayloadId(received_at, id), mentions) for received_at, id, mentions in await cursor.fetchall()]
    return [payload for payload, mentions in page if mentions], page[-1][0] if page else None


async def lock_payload(conn: AsyncConnection[Any], payload: PayloadId) -> tuple[bytes, bool] | None:
    """(body, whether it still waits to be merged)."""
    cursor = await conn.execute(SQL.lock_payload, {"received_at": payload.received_at, "id": payload.id})
    return await cursor.fetchone()


async def put_payload(conn: AsyncConnection[Any], payload: PayloadId, body: bytes) -> None:
    await conn.execute(SQL.put_payload, {"received_at": payload.received_at, "id": payload.id, "body": body})


async def note(
    conn: AsyncConnection[Any],
    phone_key: int,
    *,
    batch_id: UUID | None = None,
    messages: int = 0,
    payloads: int = 0,
    reason: str | None = None,
) -> None:
    """Write the fact down, in the transaction that makes it one."""
    await conn.execute(
        SQL.note,
        {
            "phone_key": phone_key,
            "batch_id": batch_id,
            "messages": messages,
            "payloads": payloads,
            "reason": reason,
        },
    )
