"""What the database does for a message, from its creation to its receipt."""

import time
from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass
from uuid import UUID

import psycopg
from psycopg.rows import namedtuple_row

from tests.benchmarks.bed import DATABASE, Bed, contacts, wait_until
from tests.benchmarks.cpu import tree_s
from tests.benchmarks.receipts import Posting, receipt_payload

MESSAGES = 100_000
TOGETHER = 100
"""Receipts in one request; the last phase has one in each."""
SINGLES = 5_000
FLUSHED_S = 11.0
"""Sessions tell the statistics what they did within ten seconds."""
LONGEST_S = 180.0
POLL_S = 0.5
"""Each look is a commit too."""
LISTED = 12
"""Tables shown, the largest first."""


@dataclass(frozen=True)
class Counters:
    """What has been counted since the database was made."""

    commits: int
    statements: int
    wal_bytes: int
    wal_images: int
    """Bytes of it that are whole pages, written because they are the first change after a checkpoint."""
    inserted: int
    updated: int
    in_place: int
    """Of those, the ones that no index had to be told of (HOT)."""
    deleted: int
    cpu_us: int


@dataclass(frozen=True)
class Phase:
    """One part of a message's life; all counts are per message."""

    name: str
    messages: int
    spent: Counters

    def each(self, count: str) -> float:
        return float(getattr(self.spent, count)) / self.messages

    @property
    def dead(self) -> float:
        return (self.spent.updated + self.spent.deleted) / self.messages

    @property
    def share_in_place(self) -> float:
        return self.spent.in_place / self.spent.updated if self.spent.updated else 1.0


@dataclass(frozen=True)
class Table:
    """Bytes per message, partitions together."""

    name: str
    heap: float
    indexes: float
    dead: float
    """Dead rows made per message."""
    in_place: float
    """Share of its updates that were HOT."""


@dataclass(frozen=True)
class Load:
    messages: int
    phases: list[Phase]
    tables: list[Table]
    bytes_each: float
    """Of all tables and indexes together."""


def measure_database(bed: Bed) -> Load:
    """The whole path, one phase after the other: created in one request, sent by two workers, every one delivered."""
    bed.simulator("POST", "reset")
    bed.simulator("POST", "settings", {"latency_ms": 20.0})
    bed.execute("UPDATE service SET messages_per_request = 1")
    bed.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
    bed.execute(f"ALTER DATABASE {DATABASE} SET pg_stat_statements.track = 'top'")
    url = f"{bed.api_url}/webhooks/infobip/{bed.scalar('SELECT webhook_token FROM service')}"
    size_before = _size(bed)
    # Its sessions are counted from their beginning on.
    bed.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'carteiro-api'")
    made: list[UUID] = []

    def create() -> None:
        made.append(bed.post_batch(contacts(MESSAGES, bed.take(MESSAGES)))[0])

    def send() -> None:
        bed.start_workers(2)
        wait_until(lambda: bed.sent(made) == MESSAGES, "all messages are sent", LONGEST_S, POLL_S)

    def receive(seqs: Iterable[list[int]], n: int) -> None:
        merged = f"SELECT sum(delivered) FROM batch_tally WHERE batch_id = '{made[0]}'"
        with Posting(url, [receipt_payload(made[0], piece) for piece in seqs]) as posting:
            posting.wait()
            wait_until(lambda: bed.scalar(merged) == n, "all receipts are merged", LONGEST_S, POLL_S)

    many = [list(range(first, first + TOGETHER)) for first in range(1, MESSAGES - SINGLES + 1, TOGETHER)]
    single = [[seq] for seq in range(MESSAGES - SINGLES + 1, MESSAGES + 1)]
    settled = MESSAGES - SINGLES
    phases = [
        _phase(bed, "created in one request", MESSAGES, create),
        _phase(bed, "sent", MESSAGES, send),
        _phase(bed, f"receipt, {TOGETHER} a request", settled, lambda: receive(many, settled)),
        _phase(bed, "receipt, 1 a request", SINGLES, lambda: receive(single, MESSAGES)),
    ]
    bed.stop_workers()
    bed.execute(f"ALTER DATABASE {DATABASE} RESET pg_stat_statements.track")
    return Load(MESSAGES, phases, _tables(bed), (_size(bed) - size_before) / MESSAGES)


def _phase(bed: Bed, name: str, messages: int, work: Callable[[], None]) -> Phase:
    before = _count(bed)
    work()
    time.sleep(FLUSHED_S)
    after = _count(bed)
    return Phase(
        name,
        messages,
        Counters(*(b - a for a, b in zip(astuple(before), astuple(after), strict=True))),
    )


def _count(bed: Bed) -> Counters:
    with psycopg.connect(bed.dsn, autocommit=True, row_factory=namedtuple_row) as conn:
        row = conn.execute(COUNTERS).fetchone()
        assert row is not None
        return Counters(**row._asdict(), cpu_us=round(tree_s(bed.postgres_pid) * 1e6))


def _tables(bed: Bed) -> list[Table]:
    with psycopg.connect(bed.dsn, autocommit=True) as conn:
        rows = conn.execute(TABLES, (LISTED,)).fetchall()
    return [
        Table(name, heap / MESSAGES, indexes / MESSAGES, dead / MESSAGES, float(in_place))
        for name, heap, indexes, dead, in_place in rows
    ]


def _size(bed: Bed) -> int:
    return int(bed.scalar("SELECT pg_database_size(current_database())"))


# Statements of this process are not counted: all of theirs name a statistics view or are the waiting's own.
COUNTERS = """
SELECT d.xact_commit AS commits,
    (SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_statements
     WHERE toplevel AND dbid = d.datid AND query NOT LIKE '%pg_stat_%' AND query NOT LIKE 'SELECT coalesce(sum(sent%'
        AND query NOT LIKE 'SELECT sum(delivered)%') AS statements,
    (SELECT wal_bytes::bigint FROM pg_stat_wal) AS wal_bytes,
    (SELECT wal_fpi * current_setting('block_size')::bigint FROM pg_stat_wal) AS wal_images,
    t.inserted, t.updated, t.in_place, t.deleted
FROM pg_stat_database d, (
    SELECT sum(n_tup_ins)::bigint AS inserted, sum(n_tup_upd)::bigint AS updated,
        sum(n_tup_hot_upd)::bigint AS in_place, sum(n_tup_del)::bigint AS deleted
    FROM pg_stat_user_tables
) t
WHERE d.datname = current_database()
"""

# A partition counts to its table.
TABLES = """
SELECT coalesce(i.inhparent, s.relid)::regclass::text AS name,
    sum(pg_table_size(s.relid))::bigint, sum(pg_indexes_size(s.relid))::bigint,
    sum(s.n_tup_upd + s.n_tup_del)::bigint,
    coalesce(sum(s.n_tup_hot_upd)::float / nullif(sum(s.n_tup_upd), 0), 1)
FROM pg_stat_user_tables s LEFT JOIN pg_inherits i ON i.inhrelid = s.relid
GROUP BY 1
ORDER BY sum(pg_total_relation_size(s.relid)) DESC
LIMIT %s
"""
