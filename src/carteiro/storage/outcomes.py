"""What a claim's calls came to, set by set and fenced by the claim; leases; what dispatch learns about a service."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection
from psycopg.rows import args_row

from carteiro.domain.lifecycle import SENDING
from carteiro.storage.capacity import Unit
from carteiro.storage.statements import load

SQL = load("outcomes")


@dataclass(frozen=True, slots=True)
class Move:
    """A row that leaves `pending_send` without evidence that it was sent or refused."""

    seq: int
    event: str
    """A lifecycle event: given_back, dropped, lost or exhausted."""
    code: str | None = None
    attempts: int = 0
    """1 where the call counts against `max_attempts`."""
    delay_s: float = 0.0
    """How long a given-back row waits before it may be claimed again."""
    duplicate: bool = False
    together: int | None = None
    """Most messages in its next request; None: any."""
    tries_max: int | None = None
    """How often the message is tried at most, where that is fewer than its batch allows."""


@dataclass(frozen=True, slots=True)
class Shared:
    """What a record has to know of its batch."""

    status: str
    max_attempts: int | None
    retry_base_s: float | None
    """See domain/retries.py."""

    @property
    def sends(self) -> bool:
        """What is given back to it can go again."""
        return self.status in SENDING


@dataclass(frozen=True, slots=True)
class Moved:
    seq: int
    event: str
    unit: Unit


async def begin_flush(conn: AsyncConnection[Any], claim_id: int, flush: int, n: int) -> bool:
    """Take flush number `flush` of the claim for `n` of its rows. False: it was recorded before, and nothing is to be
    done.
    """
    cursor = await conn.execute(SQL.begin_flush, {"claim_id": claim_id, "flush": flush, "n": n})
    return await cursor.fetchone() is not None


async def share_batch(conn: AsyncConnection[Any], batch_id: UUID) -> Shared:
    """The batch, locked FOR KEY SHARE: it cannot be settled or cancelled meanwhile."""
    async with conn.cursor(row_factory=args_row(Shared)) as cursor:
        await cursor.execute(SQL.share_batch, {"batch_id": batch_id})
        shared = await cursor.fetchone()
    if shared is None:
        raise LookupError(f"batch {batch_id} is gone")
    return shared


async def read_clock(conn: AsyncConnection[Any]) -> datetime:
    """The database's clock now (not the transaction's start)."""
    cursor = await conn.execute(SQL.clock)
    row = await cursor.fetchone()
    assert row is not None
    now: datetime = row[0]
    return now


async def move_claimed(
    conn: AsyncConnection[Any], batch_id: UUID, claim_id: int, moves: Sequence[Move], *, look_after_s: float
) -> list[Moved]:
    """Make the moves of rows that are still `pending_send` under this claim; the others are left as evidence has put
    them.

    Locks message rows in order of seq. Given-back rows become claimable again, lost ones are noted for look-up after
    `look_after_s`.
    """
    if not moves:
        return []
    cursor = await conn.execute(
        SQL.move_claimed,
        {
            "batch_id": batch_id,
            "claim_id": claim_id,
            "seqs": [move.seq for move in moves],
            "events": [move.event for move in moves],
            "attempts": [move.attempts for move in moves],
            "codes": [move.code for move in moves],
            "delays": [move.delay_s for move in moves],
            "duplicates": [move.duplicate for move in moves],
            "together": [move.together for move in moves],
            "look_after_s": look_after_s,
        },
    )
    return [Moved(seq, event, Unit(bm, sender, bucket)) for seq, event, sender, bm, bucket in await cursor.fetchall()]


async def note_duplicates(conn: AsyncConnection[Any], batch_id: UUID, claim_id: int, seqs: Sequence[int]) -> None:
    """Rows whose id the provider knew already are never proven absent, whether or not this claim still holds them."""
    if seqs:
        await conn.execute(SQL.note_duplicates, {"batch_id": batch_id, "claim_id": claim_id, "seqs": list(seqs)})


async def lock_lapsed_claim(conn: AsyncConnection[Any], *, grace_s: float) -> tuple[int, UUID, list[int], bool] | None:
    """An open claim whose lease is over: (claim, batch, seqs, whether of follow-ups). None while the database is up
    for less than `grace_s`: after an outage of the database itself the workers get time to renew.
    """
    cursor = await conn.execute(SQL.lapsed_claim, {"grace_s": grace_s})
    return await cursor.fetchone()


async def close_claim(conn: AsyncConnection[Any], claim_id: int) -> None:
    await conn.execute(SQL.close_claim, {"claim_id": claim_id})


async def renew_leases(conn: AsyncConnection[Any], claim_ids: Iterable[int], *, lease_s: float) -> dict[int, datetime]:
    """Renew those of the claims that are open and have not lapsed: claim id -> lease until."""
    cursor = await conn.execute(SQL.renew_leases, {"claim_ids": list(claim_ids), "lease_s": lease_s})
    return dict(await cursor.fetchall())


async def note_health(
    conn: AsyncConnection[Any], service_id: str, *, latency_s: float | None, answered: bool, failures: int
) -> int:
    """Note what the calls told about the service; answers the infrastructure failures in a row."""
    cursor = await conn.execute(
        SQL.note_health, {"service_id": service_id, "latency_s": latency_s, "answered": answered, "failures": failures}
    )
    row = await cursor.fetchone()
    return int(row[0]) if row else 0


async def wait_service(conn: AsyncConnection[Any], service_id: str, *, wait_s: float, reason: str) -> None:
    await conn.execute(SQL.wait_service, {"service_id": service_id, "wait_s": wait_s, "reason": reason})


async def black_out(conn: AsyncConnection[Any], service_id: str, *, first_s: float, longest_s: float) -> None:
    """Suspend the service: `first_s`, then twice as long after each probe that failed, up to `longest_s`."""
    await conn.execute(SQL.black_out, {"service_id": service_id, "first_s": first_s, "longest_s": longest_s})


async def wait_senders(conn: AsyncConnection[Any], waits_s: Mapping[str, float], *, reason: str) -> None:
    """Nothing is sent with these senders for so long; a longer wait that they have already stays."""
    senders = sorted(waits_s)
    waits = [waits_s[sender] for sender in senders]
    await conn.execute(SQL.wait_senders, {"senders": senders, "waits_s": waits, "reason": reason})


async def note_pair_waits(conn: AsyncConnection[Any], batch_id: UUID, seqs: Sequence[int]) -> dict[int, int]:
    """Count one more answer that these rows' contacts get too many from their sender: seq -> how many so far."""
    if not seqs:
        return {}
    cursor = await conn.execute(SQL.note_pair_waits, {"batch_id": batch_id, "seqs": list(seqs)})
    return dict(await cursor.fetchall())


async def note_code(conn: AsyncConnection[Any], batch_id: UUID, claim_id: int, seqs: Sequence[int], code: str) -> None:
    """Show a code on messages of this claim that are `sent`, until more is known of them."""
    await conn.execute(SQL.note_code, {"batch_id": batch_id, "claim_id": claim_id, "seqs": list(seqs), "code": code})


async def stop_senders(conn: AsyncConnection[Any], senders: Sequence[str]) -> None:
    await conn.execute(SQL.stop_sender, {"senders": list(senders)})


async def stop_submissions(conn: AsyncConnection[Any], batch_id: UUID, bms: Sequence[str]) -> None:
    await conn.execute(SQL.stop_submission, {"batch_id": batch_id, "bms": list(bms)})
