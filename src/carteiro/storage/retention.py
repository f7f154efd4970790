"""What goes by age. Partitions are dropped whole and without long locks, small tables pruned in slices."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection
from psycopg.sql import SQL as Statement
from psycopg.sql import Identifier, Literal

from carteiro.storage.statements import load

SQL = load("retention")


@dataclass(frozen=True, slots=True)
class Partition:
    """A week of one table."""

    parent: str
    name: str
    from_at: datetime
    until_at: datetime
    """Not included."""


@dataclass(frozen=True, slots=True)
class Leftover:
    """What is left of a partition that is to go: `attached`, `pending` (half detached), `detached` or `gone`."""

    partition: Partition
    state: str


async def try_lock(conn: AsyncConnection[Any]) -> bool:
    """Whether nobody else is at it; the session's lock, until `unlock` or its end."""
    cursor = await conn.execute(SQL.try_lock)
    row = await cursor.fetchone()
    return bool(row and row[0])


async def unlock(conn: AsyncConnection[Any]) -> None:
    await conn.execute(SQL.unlock)


async def read_partitions(conn: AsyncConnection[Any], parents: Sequence[str], *, keep_s: float) -> list[Partition]:
    """Partitions of these tables that ended `keep_s` ago or earlier, oldest first, without those decided upon."""
    cursor = await conn.execute(SQL.partitions, {"parents": list(parents), "keep_s": keep_s})
    return [Partition(*row) for row in await cursor.fetchall()]


async def read_obstacle(
    conn: AsyncConnection[Any], kind: str, partition: Partition, *, keep_s: float
) -> tuple[int, UUID | None]:
    """How many batches keep a partition of messages, events or receipts from going, and one of them.

    Those that are not settled, or were less than `keep_s` ago, and have rows in it.
    """
    statement = {
        "messages": SQL.batches_of_messages,
        "events": SQL.batches_of_events,
        "receipts": SQL.batches_of_receipts,
    }[kind]
    cursor = await conn.execute(
        statement, {"from_at": partition.from_at, "until_at": partition.until_at, "keep_s": keep_s}
    )
    row = await cursor.fetchone()
    assert row is not None
    return row[0], row[1]


async def count_waiting(conn: AsyncConnection[Any], partition: Partition) -> int:
    """Payloads of the partition's time that are not merged yet."""
    cursor = await conn.execute(SQL.waiting_payloads, {"from_at": partition.from_at, "until_at": partition.until_at})
    row = await cursor.fetchone()
    assert row is not None
    return int(row[0])


async def decide(conn: AsyncConnection[Any], parents: Sequence[str], partition: Partition) -> None:
    """From now on the rows of this week count as gone, in all these tables."""
    await conn.execute(
        SQL.decide, {"parents": list(parents), "from_at": partition.from_at, "until_at": partition.until_at}
    )


async def read_decided(conn: AsyncConnection[Any]) -> list[Leftover]:
    """What is decided and not done: half detached ones first, without which no other of their table can be, then the
    oldest.
    """
    cursor = await conn.execute(SQL.decided)
    return [Leftover(Partition(*row[:4]), row[4]) for row in await cursor.fetchall()]


async def drop(conn: AsyncConnection[Any], leftover: Leftover, *, lock_timeout_s: float) -> None:
    """Detach, then drop; begun anywhere in between. On an autocommit connection, outside any transaction.

    Detached concurrently: statements on the parent go on meanwhile, and nobody queues behind the wait. Raises
    LockNotAvailable when the wait for those that were under way took longer than `lock_timeout_s`.
    """
    partition = leftover.partition
    parent, child = Identifier(partition.parent), Identifier(partition.name)
    await conn.execute(Statement("SET lock_timeout = {}").format(Literal(f"{lock_timeout_s * 1000:.0f}ms")))
    try:
        if leftover.state == "attached":
            await conn.execute(Statement("ALTER TABLE {} DETACH PARTITION {} CONCURRENTLY").format(parent, child))
        if leftover.state == "pending":
            await conn.execute(Statement("ALTER TABLE {} DETACH PARTITION {} FINALIZE").format(parent, child))
        if leftover.state != "gone":
            await conn.execute(Statement("DROP TABLE {}").format(child))
    finally:
        if not conn.broken:
            await conn.execute("RESET lock_timeout")
    await conn.execute(SQL.note_dropped, {"parent": partition.parent, "from_at": partition.from_at})


async def is_dropped(conn: AsyncConnection[Any], batch_id: UUID) -> bool:
    """Whether the batch's messages are gone, or about to be."""
    cursor = await conn.execute(SQL.is_dropped, {"batch_id": batch_id})
    row = await cursor.fetchone()
    return bool(row and row[0])


PRUNED = (
    "claims",
    "returns",
    "aliases",
    "pair_waits",
    "group_links",
    "follow_ups",
    "follow_up_events",
    "idempotency_keys",
    "signatures",
    "callbacks",
    "jobs",
)
"""What `prune` knows, in the order in which it goes."""


async def prune(conn: AsyncConnection[Any], what: str, *, keep_s: float, n: int) -> int:
    """Delete up to `n` old rows of one kind (see PRUNED); how many there were."""
    statement = getattr(SQL, f"prune_{what}")
    cursor = await conn.execute(statement, {"keep_s": keep_s, "n": n})
    return cursor.rowcount
