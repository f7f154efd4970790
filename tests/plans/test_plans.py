"""What the statements of the hot paths touch: the slice that they work on, however much lies beside it."""

from typing import Any

import psycopg
import pytest

from carteiro.storage.pool import open_pool
from tests.plans.life import LARGE, Life
from tests.support.databases import running_server
from tests.support.factories import add_account
from tests.support.history import History, load_history
from tests.support.plans import Ran, Watch, parent_of, planned_scans, statement_names, watched_pool

SMALL = History(messages=150_000, batch_rows=20, suppressed=15_000)
MILLIONS = History(messages=5_000_000, batch_rows=1_000, suppressed=500_000)

HOT = (
    "aliases",
    "batches",
    "capacity",
    "claims",
    "facts",
    "messages",
    "outcomes",
    "receipts",
    "settlement",
    "sweep",
    "unknowns",
)
NOT_PLANNED = {"messages.copy_content", "messages.copy_messages"}
"""COPY has no plan; what its table's triggers do has."""

ROWS, BUFFERS = 100, 40
"""What one row of a slice may cost: rows that pass through the nodes of its plan, and pages."""
BASE = 4_000
"""Rows that a statement may touch whatever its slice: what is under way, the meters, the edges of the lifecycle."""
SLICES = {
    # Whole batches, at their creation.
    "suppression.in_batch": LARGE,
    "messages.copy_messages": LARGE,
    # All messages of one state are looked for among those of their batch.
    "messages.page": LARGE,
    # What was used of the window is counted by the minute, for every sender and its business manager.
    "catalog.account_capacity": 10 * 2 * 1_440,
}
SMALL_PAGES = 16
"""A table of so few pages is rightly read from end to end."""
LISTS = {"batches.report", "settlement.settleable"}
"""They wait for the first ANALYZE, a minute after a table began to grow."""
ONCE_AN_HOUR = {"sweep.ensure_partitions", "sweep.forget_workers", "suppression.forget_lapsed"}
ONCE_AN_HOUR |= {"settlement.settled_with_sent"}  # all tallies: one row a batch


async def lived(dsn: str, modes: tuple[str, ...]) -> list[Ran]:
    """The statements of one life for each way to choose plans: for the parameters given, or once for all."""
    ran: list[Ran] = []
    for number, mode in enumerate(modes):
        watch = Watch()
        async with watched_pool(dsn, watch, plan_cache_mode=mode) as pool:
            await Life(pool, start=number * 1_000_000).live()
        ran += watch.ran
    return [one for one in ran if one.name and one.name not in ONCE_AN_HOUR]


async def prepare(dsn: str, history: History) -> None:
    async with open_pool(dsn, min_size=1, max_size=2, application_name="plans") as pool:
        await add_account(pool, credits=10_000_000, bms=10, bm_limit=1_000_000, messages_per_second=20_000)
    load_history(dsn, history)


def scans(dsn: str, ran: list[Ran]) -> set[tuple[str, str]]:
    """(statement, table) of every table that is not small and was read from end to end."""
    with psycopg.connect(dsn) as conn:
        rows = conn.execute("SELECT relname, pg_relation_size(oid) / 8192 FROM pg_class WHERE relkind = 'r'").fetchall()
    pages = dict(rows)
    grown = {parent_of(table) for table, n in pages.items() if n > SMALL_PAGES}
    assert grown >= {"batch", "batch_event", "batch_tally", "claim", "message", "message_content", "message_event"}
    assert grown >= {
        "receipt",
        "receipt_payload",
        "ledger_entry",
        "message_alias",
        "callback",
        "suppression",
        "capacity_bucket",
    }
    found = {(one.name, table) for one in ran for table in one.scans}
    seen = {one.name for one in ran} | NOT_PLANNED | ONCE_AN_HOUR
    with psycopg.connect(dsn, autocommit=True) as conn:
        if conn.info.server_version >= 160000:
            # What `Life` does not come by is not run, but planned at least.
            for statement, name in statement_names().items():
                if name.partition(".")[0] in HOT and name not in seen:
                    found |= {(name, table) for table in planned_scans(conn, statement)}
    assert seen >= {
        "claims.open_claim",
        "outcomes.move_claimed",
        "facts.merge",
        "receipts.take_payloads",
        "unknowns.take",
    }
    assert len(seen) > 90
    return {(name, table) for name, table in found if pages.get(table, 0) > SMALL_PAGES}


def too_much(ran: list[Ran]) -> list[Any]:
    """Executions that touched more than their slice allows, the worst of each statement first."""
    found: dict[str, Ran] = {}
    for one in ran:
        allowed = SLICES.get(one.name, one.slice)
        beyond = one.rows > BASE + ROWS * allowed or one.buffers > BASE + BUFFERS * allowed
        if beyond and (one.name not in found or found[one.name].rows < one.rows):
            found[one.name] = one
    return [(one.name, one.slice, one.rows, one.buffers, one.text) for one in found.values()]


async def test_a_statement_touches_its_slice_and_reads_no_table_that_grows(postgres_dsn: str) -> None:
    await prepare(postgres_dsn, SMALL)
    with psycopg.connect(postgres_dsn, autocommit=True) as conn:
        conn.execute("ANALYZE")
    ran = await lived(postgres_dsn, ("force_custom_plan", "force_generic_plan"))
    assert scans(postgres_dsn, ran) == set()
    assert too_much(ran) == []


async def test_nor_does_it_before_the_tables_were_ever_analysed(postgres_dsn: str) -> None:
    await prepare(postgres_dsn, SMALL)
    ran = await lived(postgres_dsn, ("force_custom_plan",))
    ran = [one for one in ran if one.name.partition(".")[0] in HOT and one.name not in LISTS]
    assert scans(postgres_dsn, ran) == set()
    assert too_much(ran) == []


@pytest.mark.plans
async def test_with_five_million_old_messages() -> None:
    """On a server of its own, on disk: it takes some gigabytes."""
    with running_server() as server, server.fresh_database() as dsn:
        await prepare(dsn, MILLIONS)
        with psycopg.connect(dsn, autocommit=True) as conn:
            conn.execute("ANALYZE")
        ran = await lived(dsn, ("force_custom_plan", "force_generic_plan"))
        assert scans(dsn, ran) == set()
        assert too_much(ran) == []
