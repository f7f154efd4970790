"""Batches of long ago, made by the product today."""

import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch
from uuid import UUID

from carteiro.domain.outcomes import Accepted, Fact, FactKind
from carteiro.services.finalise import finalise_due
from carteiro.storage.facts import merge_facts
from carteiro.storage.pool import Pool, transact
from tests.support.dispatching import LIFTED, Bench
from tests.support.factories import add_batch, value


def id_of(days_ago: float) -> UUID:
    """A UUIDv7 of that time."""
    at_ms = int((time.time() - days_ago * 86_400) * 1000)
    return UUID(int=at_ms << 80 | 7 << 76 | secrets.randbits(12) << 64 | 2 << 62 | secrets.randbits(62))


@contextmanager
def posted(days_ago: float) -> Iterator[None]:
    """What is posted inside has an id of that time."""
    with patch("carteiro.services.create.order.uuid7", lambda: id_of(days_ago)):
        yield


async def make_partitions(pool: Pool, weeks_back: int) -> None:
    async with pool.connection() as conn:
        await conn.execute("SELECT ensure_partitions(%s, 8)", (weeks_back,))


async def age(pool: Pool, batch_id: UUID, days: float) -> None:
    """Shift when the batch was posted, and settled if it was."""
    async with transact(pool) as conn:
        await conn.execute(
            "UPDATE batch SET created_at = created_at - make_interval(secs => %(s)s),"
            " settled_at = settled_at - make_interval(secs => %(s)s) WHERE id = %(id)s",
            {"s": days * 86_400, "id": batch_id},
        )


async def add_old_batch(pool: Pool, n: int, days: float, *, start: int = 0, **fields: Any) -> UUID:
    """A batch that was posted so long ago, whose messages wait."""
    with posted(days):
        batch_id = await add_batch(pool, n, start=start, **fields)
    await age(pool, batch_id, days)
    return batch_id


async def settle(pool: Pool, station: Bench, batch_id: UUID, days: float) -> None:
    """Send everything of it, let it be delivered and settled, so long ago."""
    await station.work_off(Accepted("theirs"))
    async with transact(pool) as conn:
        await conn.execute("SELECT id FROM batch WHERE id = %s FOR KEY SHARE", (batch_id,))
        cursor = await conn.execute("SELECT seq, sent_at FROM message WHERE batch_id = %s ORDER BY seq", (batch_id,))
        facts = [Fact(batch_id, seq, FactKind.DELIVERED, at) for seq, at in await cursor.fetchall()]
        await merge_facts(conn, batch_id, facts)
    assert batch_id in await finalise_due(pool, LIFTED)
    shift = {"s": days * 86_400, "id": batch_id}
    async with transact(pool) as conn:
        await conn.execute(
            "UPDATE batch SET settled_at = clock_timestamp() - make_interval(secs => %(s)s) WHERE id = %(id)s", shift
        )
        await conn.execute(
            "UPDATE message SET slot_at = slot_at - make_interval(secs => %(s)s),"
            " bucket_at = bucket_at - make_interval(secs => %(s)s) WHERE batch_id = %(id)s",
            shift,
        )
        await conn.execute(
            "UPDATE capacity_bucket SET bucket_at = bucket_at - make_interval(secs => %(s)s)"
            " WHERE bucket_at > clock_timestamp() - interval '1 hour'",
            shift,
        )


async def add_settled_batch(
    pool: Pool, station: Bench, n: int, days: float, *, settled_days: float | None = None, start: int = 0
) -> UUID:
    batch_id = await add_old_batch(pool, n, days, start=start)
    await settle(pool, station, batch_id, settled_days if settled_days is not None else days)
    return batch_id


async def tables(pool: Pool, parent: str) -> list[str]:
    """The partitions of a table, and what was detached from it and is still there."""
    found: list[str] | None = await value(
        pool,
        "SELECT array_agg(relname::text ORDER BY relname) FROM pg_class WHERE relkind = 'r' AND relname ~ %s",
        f"^{parent}_p[0-9]{{8}}$",
    )
    return found or []


async def partition_of(pool: Pool, parent: str, days_ago: float) -> str:
    name: str = await value(
        pool,
        "SELECT %s || '_p' || to_char(date_trunc('week', clock_timestamp() - make_interval(secs => %s), 'UTC')"
        " AT TIME ZONE 'UTC', 'YYYYMMDD')",
        parent,
        days_ago * 86_400,
    )
    return name
