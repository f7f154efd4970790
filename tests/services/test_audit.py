"""The promises, checked from the program."""

from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection

from carteiro.services.audit import EVERYTHING, examine, publish_settings, violations
from carteiro.settings import Settings
from carteiro.storage.pool import Pool
from tests.support.factories import add_account, add_batch, value
from tests.support.lives import World, live


@pytest.fixture
async def world(pool: Pool) -> World:
    return await live(pool)


async def tamper(pool: Pool, statement: str) -> None:
    async with pool.connection() as conn, conn.transaction():
        await conn.execute("SET LOCAL session_replication_role = replica")
        await conn.execute(statement.encode())


async def test_a_legal_history_has_no_violations(pool: Pool, world: World) -> None:
    assert not await violations(pool)
    assert not await violations(pool, lookback=EVERYTHING)


async def test_every_promise_is_answered_for(pool: Pool) -> None:
    findings = await examine(pool)
    assert [finding.view for finding in findings] == [
        "violation_counts",
        "violation_resend",
        "violation_calls",
        "violation_limits",
        "violation_pacing",
        "violation_money",
        "violation_receipts",
        "violation_control",
        "violation_stalled",
        "violation_stuck",
        "violation_tenants",
        "violation_lifecycle",
        "violation_follow_ups",
    ]
    assert all(finding.count == 0 and finding.promise for finding in findings)


async def test_a_breach_is_told_with_its_first_rows_and_their_number(pool: Pool, world: World) -> None:
    await tamper(pool, "DELETE FROM batch_tally")
    found = await violations(pool)
    assert list(found) == ["violation_counts"]
    assert {row["what"] for row in found["violation_counts"]} == {
        "the counts do not sum to the total",
        "a count is not the number of messages in that state",
    }
    counts = next(finding for finding in await examine(pool, limit=2) if finding.count)
    assert counts.count == len(found["violation_counts"]) > len(counts.rows) == 2


async def test_a_large_batch_is_judged_by_reading_its_history_once(pool: Pool) -> None:
    await add_account(pool, credits=5_000, bm_limit=5_000)
    batch_id = await add_batch(pool, 5_000)
    async with pool.connection() as conn:
        await conn.execute("ANALYZE message")
    events = 200
    for event, source, target, n in (
        ("claimed", "pending", "pending_send", events),
        ("given_back", "pending_send", "pending", events // 10),
        ("claimed", "pending", "pending_send", events // 10),
    ):
        await value(
            pool,
            "WITH told AS ("
            " INSERT INTO message_event (batch_id, event, from_status, to_status, actor, claim_id, attempt, seqs)"
            " SELECT %s, %s, %s, %s, 'worker', k, 0, ARRAY(SELECT generate_series(100 * k, 100 * k + 99))"
            " FROM generate_series(1, %s) AS k RETURNING 1) SELECT count(*) FROM told",
            batch_id,
            event,
            source,
            target,
            n,
        )
    for view in ("resend", "lifecycle"):
        explain = f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) SELECT * FROM audit.violation_{view}"
        (plan,) = await value(pool, explain)
        assert most_rows(plan["Plan"]) < 5 * 100 * events, view


def most_rows(node: dict[str, Any]) -> float:
    """That pass through one node of a plan, those that it drops included."""
    passed = node["Actual Rows"] + sum(n for name, n in node.items() if name.startswith("Rows Removed"))
    return max([passed * node["Actual Loops"], *(most_rows(child) for child in node.get("Plans", []))])


async def test_what_was_settled_before_the_lookback_is_left_out(pool: Pool, world: World) -> None:
    await tamper(pool, "UPDATE batch SET settled_at = now() - interval '9 days' WHERE settled_at IS NOT NULL")
    await tamper(pool, f"UPDATE message SET status = 'unknown' WHERE batch_id = '{world.settled}' AND seq = 1")
    for lookback, judged in ((None, False), (timedelta(days=8), False), (timedelta(days=10), True), (EVERYTHING, True)):
        assert ("violation_lifecycle" in await violations(pool, lookback=lookback)) is judged


async def test_the_views_judge_by_the_window_of_the_running_workers(pool: Pool) -> None:
    await publish_settings(pool, Settings(window_s=20.0, bucket_s=0.2))
    await publish_settings(pool, Settings(window_s=20.0, bucket_s=0.2))
    async with pool.connection() as conn:
        cursor = await conn.execute("SELECT audit.span('window_s'), audit.span('bucket_s')")
        assert await cursor.fetchone() == (timedelta(seconds=20), timedelta(seconds=0.2))


async def test_a_database_without_the_schema_is_no_clean_database(pool: Pool) -> None:
    async with pool.connection() as conn:
        await conn.execute("DROP SCHEMA audit CASCADE")
    with pytest.raises(LookupError, match="carteiro migrate"):
        await violations(pool)


async def test_the_history_of_limits_follows_the_catalog(conn: AsyncConnection[tuple[object, ...]]) -> None:
    await conn.execute("INSERT INTO business_manager (id, daily_limit_synced) VALUES ('bm', 250)")
    await conn.execute("UPDATE business_manager SET daily_limit_override = 100")
    await conn.execute("UPDATE business_manager SET active = false")
    await conn.execute("INSERT INTO sender (id, business_manager_id, daily_limit) VALUES ('s', 'bm', 50)")
    await conn.execute("UPDATE sender SET use_waba_limit = true, messages_per_second = 8")
    cursor = await conn.execute("SELECT kind, daily_limit, pace FROM audit.limit_history ORDER BY since_at")
    assert await cursor.fetchall() == [
        ("bm", 250, None),
        ("bm", 100, None),
        ("sender", 50, None),
        ("sender", None, 8),
    ]


@pytest.mark.parametrize(
    ("since_s", "until_s", "allowed"),
    [(-100, -50, 250), (-50, -50, 250), (-50, 0, 250), (-5, 0, 100), (-5, 50, 100), (-50, 100, None), (95, 100, None)],
)
def test_the_highest_limit_of_an_interval(postgres_dsn: str, since_s: int, until_s: int, allowed: int | None) -> None:
    """250 until ten seconds ago, then 100, none at all from 90 seconds ahead on."""
    with psycopg.connect(postgres_dsn) as session:
        session.execute(
            "INSERT INTO audit.limit_history VALUES ('bm', 'bm', '-infinity', 250, NULL),"
            " ('bm', 'bm', now() - interval '10 seconds', 100, NULL),"
            " ('bm', 'bm', now() + interval '90 seconds', NULL, NULL)"
        )
        row = session.execute(
            "SELECT daily_limit FROM audit.most_allowed('bm', 'bm', now() + %s * interval '1 second',"
            " now() + %s * interval '1 second')",
            (since_s, until_s),
        ).fetchone()
        assert row == (allowed,)
