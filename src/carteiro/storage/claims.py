"""A slice of one batch, claimed by one worker: the reads and writes of the claim transaction."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection
from psycopg.rows import args_row

from carteiro.storage.capacity import Unit
from carteiro.storage.statements import load

SQL = load("claims")


@dataclass(frozen=True, slots=True)
class Service:
    """The service as the claim finds it under its lock. `now` is the database's clock, read after the lock."""

    now: datetime
    provider: str
    messages_per_second: int
    max_inflight: int | None
    messages_per_request: int
    rotation: str
    webhook_token: str
    active: bool
    latency_s: float
    failures_in_a_row: int
    wait_until: datetime | None
    wait_reason: str | None
    in_flight: int
    """Rows of open claims, all workers together."""


@dataclass(frozen=True, slots=True)
class Turn:
    """The batch whose turn it is."""

    batch_id: UUID
    account_id: str
    status: str
    total: int
    cursor_seq: int
    template_name: str
    template_language: str
    template_signature: bytes
    template_content: dict[str, Any]
    header: dict[str, str] | None
    max_attempts: int | None


@dataclass(slots=True)  # not frozen, which costs four times as much to make: there is one a message
class Row:
    """A message that could go: `fresh` when the cursor reaches it for the first time."""

    seq: int
    fresh: bool
    attempt: int
    phone_key: int = field(repr=False)
    address: str
    placeholders: list[str]
    extra: dict[str, Any] | None
    together: int | None
    """Most messages in its next request; None: any."""


@dataclass(slots=True)  # not frozen, which costs four times as much to make: there is one a message
class Assigned:
    """A row with its sender, its slot and its unit of capacity."""

    seq: int
    slot_at: datetime
    unit: Unit


async def lock_service(conn: AsyncConnection[Any], service_id: str) -> None:
    await conn.execute(SQL.lock_service, {"service_id": service_id})


async def read_service(conn: AsyncConnection[Any], service_id: str) -> Service | None:
    """Call it after `lock_service`, in a statement of its own."""
    async with conn.cursor(row_factory=args_row(Service)) as cursor:
        await cursor.execute(SQL.service, {"service_id": service_id})
        return await cursor.fetchone()


async def next_turn(conn: AsyncConnection[Any], service_id: str) -> Turn | None:
    """The batch that waits longest, among those with rows to send that are due. Not locked yet."""
    async with conn.cursor(row_factory=args_row(Turn)) as cursor:
        await cursor.execute(SQL.next_batch, {"service_id": service_id})
        return await cursor.fetchone()


async def one_turn(conn: AsyncConnection[Any], batch_id: UUID) -> Turn | None:
    """This batch, if its rows may go now. Not locked yet."""
    async with conn.cursor(row_factory=args_row(Turn)) as cursor:
        await cursor.execute(SQL.one_batch, {"batch_id": batch_id})
        return await cursor.fetchone()


async def one_due_s(conn: AsyncConnection[Any], batch_id: UUID) -> float | None:
    """Seconds until this batch may be tried again; None when nothing of it waits."""
    cursor = await conn.execute(SQL.one_due, {"batch_id": batch_id})
    row = await cursor.fetchone()
    return row[0] if row else None


async def next_due_s(conn: AsyncConnection[Any], service_id: str) -> float | None:
    """Seconds until the next batch that waits may be tried again; None when none waits."""
    cursor = await conn.execute(SQL.next_due, {"service_id": service_id})
    row = await cursor.fetchone()
    return row[0] if row else None


async def lock_batch(conn: AsyncConnection[Any], batch_id: UUID) -> tuple[str, int, int] | None:
    """(status, cursor, pending rows) under the row's lock; None when the batch stopped sending meanwhile."""
    cursor = await conn.execute(SQL.lock_batch, {"batch_id": batch_id})
    return await cursor.fetchone()


async def take_rows(
    conn: AsyncConnection[Any], batch_id: UUID, cursor_seq: int, n: int, *, reach: int, probing: bool
) -> list[Row]:
    """Lock up to `n` pending rows: those given back, then the cursor's next ones, looking at most `reach` rows
    ahead. A probe takes whichever failed least.
    """
    async with conn.cursor(row_factory=args_row(Row)) as cursor:
        await cursor.execute(
            SQL.take_rows,
            {"batch_id": batch_id, "cursor_seq": cursor_seq, "n": n, "reach": reach, "probing": probing},
        )
        return await cursor.fetchall()


async def open_claim(
    conn: AsyncConnection[Any],
    *,
    batch_id: UUID,
    service_id: str,
    worker_id: str,
    rows: Sequence[Assigned],
    lease_s: float,
) -> tuple[int, datetime]:
    """Move the locked rows to `pending_send` under a new claim: (claim id, lease until)."""
    cursor = await conn.execute(
        SQL.open_claim,
        {
            "batch_id": batch_id,
            "service_id": service_id,
            "worker_id": worker_id,
            "seqs": [row.seq for row in rows],
            "senders": [row.unit.sender for row in rows],
            "bms": [row.unit.business_manager for row in rows],
            "slots": [row.slot_at for row in rows],
            "buckets": [row.unit.bucket_at for row in rows],
            "size": len(rows),
            "last_slot_at": max(row.slot_at for row in rows),
            "lease_s": lease_s,
        },
    )
    opened = await cursor.fetchone()
    if opened is None or opened[2] != len(rows):
        raise RuntimeError("rows locked by this transaction did not move")
    return opened[0], opened[1]


async def fail_guarded(conn: AsyncConnection[Any], batch_id: UUID, codes: Mapping[int, str]) -> None:
    """Rows that cannot be rendered fail by the guard, without capacity."""
    if codes:
        await conn.execute(SQL.fail_guarded, {"batch_id": batch_id, "seqs": list(codes), "codes": list(codes.values())})


async def note_gaps(
    conn: AsyncConnection[Any], batch_id: UUID, cursor_seq: int, reached_seq: int, handled: Sequence[int]
) -> None:
    """Pending rows in (cursor_seq, reached_seq] that this claim did not handle, because somebody else had them
    locked, are kept where returned rows are kept."""
    await conn.execute(
        SQL.note_gaps,
        {"batch_id": batch_id, "cursor_seq": cursor_seq, "reached_seq": reached_seq, "handled": list(handled)},
    )


async def drop_stale_returns(conn: AsyncConnection[Any], batch_id: UUID) -> None:
    """Forget returned rows that left `pending` without a claim: they would wake pumps for nothing."""
    await conn.execute(SQL.drop_stale_returns, {"batch_id": batch_id})


async def start_batch(conn: AsyncConnection[Any], batch_id: UUID) -> None:
    await conn.execute(SQL.start_batch, {"batch_id": batch_id})


async def advance_batch(conn: AsyncConnection[Any], batch_id: UUID, cursor_seq: int) -> None:
    await conn.execute(SQL.advance_batch, {"batch_id": batch_id, "cursor_seq": cursor_seq})


async def block_batch(
    conn: AsyncConnection[Any], batch_id: UUID, *, blocked_by: str | None, next_attempt_at: datetime
) -> None:
    await conn.execute(
        SQL.block_batch, {"batch_id": batch_id, "blocked_by": blocked_by, "next_attempt_at": next_attempt_at}
    )


async def block_service(
    conn: AsyncConnection[Any], service_id: str, *, blocked_by: str, quiet_s: float, retry_s: float
) -> None:
    """Block all batches of the service that could be sent, unless one of them had its turn within `quiet_s`. Locks them
    by id.
    """
    await conn.execute(
        SQL.block_service,
        {"service_id": service_id, "blocked_by": blocked_by, "quiet_s": quiet_s, "retry_s": retry_s},
    )


async def fail_batch(conn: AsyncConnection[Any], batch_id: UUID, *, code: str, reason: str) -> bool:
    """End the batch in `error`, if nothing of it was ever claimed. False: it was, so it can only be blocked."""
    cursor = await conn.execute(SQL.fail_batch, {"batch_id": batch_id, "code": code, "reason": reason})
    return await cursor.fetchone() is not None


PaceId = tuple[str, str]
"""(kind, owner) with kind "service", "bm" or "sender"."""


async def lock_pace(conn: AsyncConnection[Any], ids: Sequence[PaceId]) -> dict[PaceId, tuple[list[int], list[int]]]:
    """The calendars as (instants in epoch microseconds, calls at each), locked in order. After the capacity meters."""
    arrays = {"kinds": [kind for kind, _ in sorted(ids)], "owners": [owner for _, owner in sorted(ids)]}
    cursor = await conn.execute(SQL.read_pace, arrays)
    if cursor.rowcount < len(ids):
        await conn.execute(SQL.ensure_pace, arrays)
        cursor = await conn.execute(SQL.read_pace, arrays)
    return {(kind, owner): (slots, counts) for kind, owner, slots, counts in await cursor.fetchall()}


async def write_pace(conn: AsyncConnection[Any], calendars: Mapping[PaceId, tuple[list[int], list[int]]]) -> None:
    async with conn.cursor() as cursor:
        await cursor.executemany(
            SQL.write_pace,
            [
                {"kind": kind, "owner": owner, "slots_us": slots, "counts": counts}
                for (kind, owner), (slots, counts) in calendars.items()
            ],
        )
