"""Payloads as providers post them, the inbox of those not yet merged, and what became of each item."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection

from carteiro.domain.outcomes import FactKind
from carteiro.storage.statements import load

SQL = load("receipts")


@dataclass(frozen=True, slots=True)
class Posted:
    """A request body as it came. `token` is of the service's address that it came to; None: everybody's address."""

    provider: str
    token: str | None
    body: bytes


@dataclass(frozen=True, slots=True)
class Payload:
    """One stored request body. `provider` is None when its service is gone, `account_id` also when it came to an
    address that is everybody's.
    """

    id: int
    received_at: datetime
    provider: str | None
    account_id: str | None
    body: bytes


class Result(StrEnum):
    """What became of one item of a payload."""

    APPLIED = "applied"
    REPEATED = "repeated"
    """It told nothing new."""
    ORPHAN = "orphan"
    """It names no message that we could have sent."""
    MALFORMED = "malformed"
    IGNORED = "ignored"
    """Well-formed, of a kind that we do not act on."""
    LATE = "late"
    """Its message is `unsent`: noted here, and nowhere else."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """One row of the append-only record of items. `kind` is the fact's, else "item", or "payload" for a whole body."""

    payload: Payload
    result: Result
    kind: str
    batch_id: UUID | None = None
    seq: int | None = None
    at: datetime | None = None
    code: str | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class Known:
    """A message before a merge: its earliest time per kind of fact."""

    status: str
    claimed: bool
    """It was in a claim at least once: only then can it have been sent."""
    at: Mapping[FactKind, datetime]
    number: str | None = None
    """The provider's own name of the sender that it was claimed for last, where it has one."""


async def store_payloads(conn: AsyncConnection[Any], posted: Sequence[Posted]) -> set[int]:
    """Keep bodies and put them into the inbox, in the given order; answers the places of those that were stored. Of the
    others no service of the provider has the token.
    """
    cursor = await conn.execute(
        SQL.store_payloads,
        {
            "providers": [one.provider for one in posted],
            "tokens": [one.token for one in posted],
            "bodies": [one.body for one in posted],
        },
    )
    return {place - 1 for (place,) in await cursor.fetchall()}


async def read_numbers(conn: AsyncConnection[Any], numbers: Sequence[str]) -> dict[str, list[str]]:
    """The accounts that send from each of these numbers, which the provider names; unknown ones are left out."""
    if not numbers:
        return {}
    cursor = await conn.execute(SQL.numbers, {"numbers": list(numbers)})
    return dict(await cursor.fetchall())


async def take_payloads(conn: AsyncConnection[Any], *, limit: int, bytes_max: int) -> list[Payload]:
    """The oldest payloads of the inbox, locked; those locked by others are left out. `bytes_max` of them together,
    or the one that exceeds it.
    """
    cursor = await conn.execute(SQL.take_payloads, {"limit": limit, "bytes_max": bytes_max})
    return [Payload(*row) for row in await cursor.fetchall()]


async def share_batches(conn: AsyncConnection[Any], batch_ids: Sequence[UUID]) -> dict[UUID, str]:
    """Lock the batches FOR KEY SHARE, in order of id; answers those that exist, each with its account."""
    cursor = await conn.execute(SQL.share_batches, {"batch_ids": list(batch_ids)})
    return dict(await cursor.fetchall())


async def lock_messages(conn: AsyncConnection[Any], batch_id: UUID, seqs: Sequence[int]) -> dict[int, Known]:
    """Lock messages of one batch in order of seq and read what is known; seqs that do not exist are left out."""
    cursor = await conn.execute(SQL.lock_messages, {"batch_id": batch_id, "seqs": list(seqs)})
    return {
        seq: Known(
            status, claimed, {kind: at for kind, at in zip(FactKind, times, strict=True) if at is not None}, number
        )
        for seq, status, claimed, number, *times in await cursor.fetchall()
    }


async def record_receipts(conn: AsyncConnection[Any], receipts: Sequence[Receipt]) -> None:
    """Append the rows, in the given order."""
    if receipts:
        await conn.execute(
            SQL.record_receipts,
            {
                "received_at": [receipt.payload.received_at for receipt in receipts],
                "payload_ids": [receipt.payload.id for receipt in receipts],
                "batch_ids": [receipt.batch_id for receipt in receipts],
                "seqs": [receipt.seq for receipt in receipts],
                "kinds": [receipt.kind for receipt in receipts],
                "at": [receipt.at for receipt in receipts],
                "codes": [receipt.code for receipt in receipts],
                "results": [receipt.result for receipt in receipts],
                "details": [receipt.detail for receipt in receipts],
            },
        )


async def clear_inbox(conn: AsyncConnection[Any], payloads: Sequence[Payload]) -> None:
    await conn.execute(SQL.clear_inbox, {"payload_ids": [payload.id for payload in payloads]})
