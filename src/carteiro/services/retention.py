"""Retention: what is old enough goes, by the week and by the slice, while everything else runs.

A week of messages, of history or of receipts goes once all of its batches have been settled for long enough. What a
batch came to stays for ever: its state, its counts, its money.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import structlog
from psycopg.errors import DeadlockDetected, LockNotAvailable

from carteiro.settings import Settings
from carteiro.storage import retention
from carteiro.storage.pool import Connection, Pool
from carteiro.storage.retention import PRUNED, Leftover, Partition

log = structlog.get_logger(__name__)

DAY_S = 86_400.0
TABLES = {
    "messages": ("message", "message_content"),
    "events": ("message_event",),
    "receipts": ("receipt", "receipt_payload"),
}
"""What goes together: the first table is the one that is looked at."""
LOCK_TIMEOUT_S = 2.0
"""How long one try waits for transactions that were under way."""
TRIES = 3
PAUSE_S = 1.0
SLICE_ROWS = 2_000
"""Rows that one statement deletes."""
SLICES = 50
"""Of each kind in one run; the next run goes on."""


KEPT_LIKE = {"callbacks": "events", "group_links": "group_links"}
"""Whose age counts for what is pruned: that of messages, unless it stands here."""


@dataclass(slots=True)
class RetentionReport:
    dropped: list[str] = field(default_factory=list)
    """Partitions that are gone, or would go in a dry run."""
    kept: list[str] = field(default_factory=list)
    """Partitions that are old enough, and what keeps them."""
    busy: list[str] = field(default_factory=list)
    """Partitions that could not be detached now: tried again in an hour."""
    pruned: dict[str, int] = field(default_factory=dict)
    """Rows deleted, by kind."""


async def retain_when_free(pool: Pool, settings: Settings) -> None:
    """What a worker does every hour, if no other process is at it."""
    report = await retain(pool, settings)
    if report is None:
        return
    if report.dropped or report.kept:
        log.info("retained", dropped=report.dropped, kept=report.kept)
    if report.busy:
        log.warning("partitions_busy", partitions=report.busy)


async def retain(pool: Pool, settings: Settings, *, dry_run: bool = False) -> RetentionReport | None:
    """Let go of what is old enough. None: another process is at it. Killed anywhere, the next run goes on.

    Holds one connection, and no transaction longer than a statement.
    """
    async with pool.connection() as conn:
        if not await retention.try_lock(conn):
            return None
        try:
            report = RetentionReport()
            for kind, parents in TABLES.items():
                await _decide(conn, kind, parents, _keep_s(settings, kind), report, dry_run=dry_run)
            if not dry_run:
                await _drop_decided(conn, report)
                await _prune(conn, settings, report)
        finally:
            if not conn.broken:
                await retention.unlock(conn)
    return report


async def _decide(
    conn: Connection,
    kind: str,
    parents: Sequence[str],
    keep_s: float,
    report: RetentionReport,
    *,
    dry_run: bool,
) -> None:
    """What is decided is written down before anything is touched: readers learn that it is gone, not that it is
    short.
    """
    for partition in await retention.read_partitions(conn, parents[:1], keep_s=keep_s):
        obstacle = await _obstacle(conn, kind, partition, keep_s)
        if obstacle:
            report.kept.append(f"{partition.name}: {obstacle}")
        elif dry_run:
            report.dropped += [partition.name.replace(parents[0], parent, 1) for parent in parents]
        else:
            await retention.decide(conn, parents, partition)


async def _obstacle(conn: Connection, kind: str, partition: Partition, keep_s: float) -> str | None:
    count, one = await retention.read_obstacle(conn, kind, partition, keep_s=keep_s)
    if count:
        return f"{count} batches not settled, or not for long enough, such as {one}"
    if kind == "receipts" and (waiting := await retention.count_waiting(conn, partition)):
        return f"{waiting} receipts not merged"
    return None


async def _drop_decided(conn: Connection, report: RetentionReport) -> None:
    """What cannot be detached now holds up the others of its table, and of no other."""
    busy: set[str] = set()
    for leftover in await retention.read_decided(conn):
        parent, name = leftover.partition.parent, leftover.partition.name
        if parent not in busy and await _drop(conn, leftover):
            report.dropped.append(name)
        else:
            busy.add(parent)
            report.busy.append(name)


async def _drop(conn: Connection, leftover: Leftover) -> bool:
    """False: transactions that were under way did not end in time."""
    for attempt in range(TRIES):
        if attempt:
            await asyncio.sleep(PAUSE_S)
            leftover = _again(leftover, await retention.read_decided(conn))
        try:
            await retention.drop(conn, leftover, lock_timeout_s=LOCK_TIMEOUT_S)
        except (LockNotAvailable, DeadlockDetected):
            continue
        return True
    return False


def _again(leftover: Leftover, decided: Sequence[Leftover]) -> Leftover:
    """The same one, in the state that the last try left it in."""
    return next((other for other in decided if other.partition == leftover.partition), leftover)


async def _prune(conn: Connection, settings: Settings, report: RetentionReport) -> None:
    for what in PRUNED:
        keep_s = _keep_s(settings, KEPT_LIKE.get(what, "messages"))
        rows = SLICE_ROWS
        for _ in range(SLICES):
            if rows < SLICE_ROWS:
                break
            rows = await retention.prune(conn, what, keep_s=keep_s, n=SLICE_ROWS)
            report.pruned[what] = report.pruned.get(what, 0) + rows


def _keep_s(settings: Settings, kind: str) -> float:
    days = {
        "messages": settings.retention_messages_days,
        "events": settings.retention_audit_days,
        "receipts": settings.retention_receipts_days,
        # A link is shown with its message, and must not outlive it.
        "group_links": min(settings.group_link_retention_days, settings.retention_messages_days),
    }
    return days[kind] * DAY_S
