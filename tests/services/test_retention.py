"""Retention: whole weeks go when all of their batches were settled long enough ago; what batches came to stays."""

import asyncio
import json
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest
from psycopg import AsyncConnection

from carteiro.domain.errors import Gone
from carteiro.domain.outcomes import Fact, FactKind, Parsed
from carteiro.services import reading
from carteiro.services.audit import EVERYTHING, violations
from carteiro.services.receive import apply_payloads
from carteiro.services.retention import RetentionReport, retain
from carteiro.settings import Settings
from carteiro.storage import retention
from carteiro.storage.pool import Pool, session_dsn, transact
from tests.support.ages import add_old_batch, add_settled_batch, make_partitions, partition_of, posted, settle, tables
from tests.support.dispatching import LIFTED, Bench, FakeProvider, counts, running_bench
from tests.support.factories import ACCOUNT, add_account, add_batch, value
from tests.support.posting import store_payload
from tests.support.waiting import until

FAST = {"messages_per_second": 10_000, "bm_limit": 10_000}


def bench(pool: Pool) -> Bench:
    built = Bench(pool, LIFTED, FakeProvider())
    built.spacing.rate_per_s = 20_000.0
    return built


async def run(pool: Pool, **settings: float) -> RetentionReport:
    report = await retain(pool, replace(Settings(), **settings))
    assert report is not None
    return report


async def settled(pool: Pool, days: float, n: int = 5, **more: float) -> UUID:
    await make_partitions(pool, weeks_back=1 + int(days / 7))
    await add_account(pool, credits=1_000, **FAST)
    return await add_settled_batch(pool, bench(pool), n, days, **more)


async def test_an_old_week_goes_whole_and_what_its_batches_came_to_stays(pool: Pool) -> None:
    batch_id = await settled(pool, 100)
    before = await reading.read_batch(pool, ACCOUNT, batch_id)
    report = await run(pool)
    assert report.kept == report.busy == []
    for parent in ("message", "message_content"):
        assert await partition_of(pool, parent, 100) in report.dropped
        assert await partition_of(pool, parent, 100) not in await tables(pool, parent)
    assert await counts(pool) == {}
    after = await reading.read_batch(pool, ACCOUNT, batch_id)
    assert after.counts == before.counts
    assert after.counts["delivered"] == 5
    assert (after.report.charged, after.report.refunded, after.held) == (5, 0, 0)
    assert await value(pool, "SELECT status FROM audit.batch_counts WHERE batch_id = %s", batch_id) == "completed"
    with pytest.raises(Gone):
        await reading.read_messages(pool, ACCOUNT, batch_id, after_seq=0, status=None, limit=10)
    assert await violations(pool, lookback=EVERYTHING) == {}


async def test_nothing_of_the_last_weeks_goes(pool: Pool) -> None:
    batch_id = await settled(pool, 60)
    await make_partitions(pool, weeks_back=16)
    before = [await tables(pool, parent) for parent in ("message", "message_event", "receipt")]
    report = await run(pool)
    assert len(before[0]) - len(await tables(pool, "message")) == sum("message_p" in name for name in report.dropped)
    assert await counts(pool, batch_id) == {"delivered": 5}
    assert await partition_of(pool, "message", 85) in await tables(pool, "message")


async def test_a_batch_that_is_not_settled_keeps_its_week_and_is_reported(pool: Pool) -> None:
    old = await settled(pool, 100)
    with posted(100):
        open_batch = await add_batch(pool, 3, start=500, scheduled_at=None)
    report = await run(pool)
    week = await partition_of(pool, "message", 100)
    assert [line for line in report.kept if line.startswith(f"{week}:")] == [
        f"{week}: 1 batches not settled, or not for long enough, such as {open_batch}"
    ]
    assert await counts(pool, old) == {"delivered": 5}
    await settle(pool, bench(pool), open_batch, 91)
    assert week in (await run(pool)).dropped
    assert await violations(pool, lookback=EVERYTHING) == {}


async def test_a_batch_that_was_settled_lately_keeps_its_week(pool: Pool) -> None:
    batch_id = await settled(pool, 100, settled_days=10)
    report = await run(pool)
    assert [line.split(":")[0] for line in report.kept] == [await partition_of(pool, "message", 100)]
    assert len(await reading.read_messages(pool, ACCOUNT, batch_id, after_seq=0, status=None, limit=10)) == 5


async def test_a_dry_run_tells_and_touches_nothing(pool: Pool) -> None:
    await settled(pool, 100)
    before = await tables(pool, "message_content")
    report = await retain(pool, Settings(), dry_run=True)
    assert report is not None
    assert await partition_of(pool, "message_content", 100) in report.dropped
    assert await tables(pool, "message_content") == before
    assert await value(pool, "SELECT count(*) FROM partition_drop") == 0


async def test_each_kind_has_its_own_time(pool: Pool) -> None:
    await settled(pool, 120)
    report = await run(pool, retention_messages_days=100.0, retention_receipts_days=30.0, retention_audit_days=60.0)
    assert await partition_of(pool, "message", 95) not in report.dropped
    assert await partition_of(pool, "message", 120) in report.dropped
    assert await partition_of(pool, "message_event", 100) in report.dropped
    assert await partition_of(pool, "message_event", 50) not in report.dropped
    for parent in ("receipt", "receipt_payload"):
        assert await partition_of(pool, parent, 50) in report.dropped
        assert await partition_of(pool, parent, 20) not in report.dropped


# History and receipts


async def add_event(pool: Pool, batch_id: UUID, days_ago: float) -> None:
    async with transact(pool) as conn:
        await conn.execute(
            "INSERT INTO message_event (at, batch_id, event, from_status, to_status, actor, attempt, seqs)"
            " VALUES (clock_timestamp() - make_interval(secs => %s), %s, 'claimed', 'pending', 'pending_send', 'x', 0,"
            " '{1}')",
            (days_ago * 86_400, batch_id),
        )


async def add_payload(pool: Pool, batch_id: UUID | None, days_ago: float, *, merged: bool = True) -> None:
    async with transact(pool) as conn:
        await conn.execute(
            "WITH stored AS ("
            " INSERT INTO receipt_payload (received_at, service_id, body)"
            " VALUES (clock_timestamp() - make_interval(secs => %(s)s), 'acme-utility', '[]') RETURNING id, received_at"
            "), waiting AS ("
            " INSERT INTO receipt_inbox SELECT id, received_at FROM stored WHERE NOT %(merged)s"
            ") INSERT INTO receipt (received_at, payload_id, batch_id, seq, kind, result)"
            " SELECT received_at, id, %(batch_id)s, 1, 'delivered', 'repeated' FROM stored WHERE %(merged)s",
            {"s": days_ago * 86_400, "batch_id": batch_id, "merged": merged},
        )


async def test_history_goes_by_its_own_age_but_not_that_of_an_open_batch(pool: Pool) -> None:
    old = await settled(pool, 120)
    open_batch = await add_old_batch(pool, 3, 120, start=500)
    await add_event(pool, old, 110)
    await add_event(pool, open_batch, 96)
    report = await run(pool, retention_messages_days=1_000.0)
    assert await partition_of(pool, "message_event", 110) in report.dropped
    assert [line.split(":")[0] for line in report.kept] == [await partition_of(pool, "message_event", 96)]
    assert str(open_batch) in report.kept[0]


async def test_a_batch_without_its_history_is_not_judged_by_it(pool: Pool) -> None:
    batch_id = await settled(pool, 100)
    query = "SELECT count(*) FROM audit.judged_batches"
    lookback = "SET carteiro.audit_lookback = '36500 days'"
    async with pool.connection() as conn:
        await conn.execute(lookback.encode())
        assert await (await conn.execute(query.encode())).fetchone() == (1,)
    await run(pool, retention_messages_days=1_000.0)
    async with pool.connection() as conn:
        await conn.execute(lookback.encode())
        assert await (await conn.execute(query.encode())).fetchone() == (0,)
        await conn.execute("RESET carteiro.audit_lookback")
    assert await counts(pool, batch_id) == {"delivered": 5}


async def test_receipts_go_by_their_own_age_but_not_before_they_are_merged_nor_those_of_an_open_batch(
    pool: Pool,
) -> None:
    old = await settled(pool, 120)
    open_batch = await add_old_batch(pool, 3, 120, start=500)
    await add_payload(pool, old, 110)
    await add_payload(pool, None, 96, merged=False)
    await add_payload(pool, open_batch, 103)
    report = await run(pool, retention_messages_days=1_000.0)
    assert await partition_of(pool, "receipt_payload", 110) in report.dropped
    assert sorted(line.split(":")[0] for line in report.kept) == sorted(
        {await partition_of(pool, "receipt", 96), await partition_of(pool, "receipt", 103)}
    )


async def test_a_receipt_for_a_message_that_is_gone_is_an_orphan(pool: Pool) -> None:
    batch_id = await settled(pool, 100)
    await run(pool)
    token = await value(pool, "SELECT webhook_token FROM service")
    at = await value(pool, "SELECT clock_timestamp()")
    assert await store_payload(pool, "infobip", token, json.dumps({}).encode())
    fact = Fact(batch_id, 1, FactKind.SEEN, at)
    assert (await apply_payloads(pool, lambda _: lambda _: Parsed((fact,)))).taken == 1
    assert await value(pool, "SELECT result || ': ' || detail FROM audit.orphan_receipts") == "orphan: no such message"
    assert (await reading.read_batch(pool, ACCOUNT, batch_id)).counts["delivered"] == 5


# While everything else runs


async def test_weeks_go_while_batches_run(pool: Pool) -> None:
    await make_partitions(pool, weeks_back=20)
    await add_account(pool, credits=10_000, **FAST)
    station = bench(pool)
    for at, days in enumerate((95, 103, 110, 117, 131)):
        await add_settled_batch(pool, station, 5, days, start=10 * at)
    provider = FakeProvider()
    async with running_bench(pool, provider, lateness_s=60.0, pump_s=2.0) as running:
        batches = [await add_batch(pool, 200, start=1_000 * (at + 1)) for at in range(3)]
        pumping = asyncio.gather(*(running.pump() for _ in range(3)))
        slowest_s = 0.0
        loop = asyncio.get_running_loop()

        async def post_and_read() -> None:
            nonlocal slowest_s
            at = 0
            while not pumping.done():
                began_s = loop.time()
                batch_id = await add_batch(pool, 5, start=50_000 + 10 * at)
                await reading.read_messages(pool, ACCOUNT, batch_id, after_seq=0, status=None, limit=10)
                slowest_s = max(slowest_s, loop.time() - began_s)
                at += 1

        report, _, _ = await asyncio.gather(run(pool), pumping, post_and_read())
        while await value(pool, "SELECT sum(pending)::int FROM batch_tally"):
            await running.pump()
    assert report.kept == report.busy == []
    assert len([name for name in report.dropped if name.startswith("message_p")]) >= 5
    for batch_id in batches:
        assert await counts(pool, batch_id) == {"sent": 200}
    assert provider.most_calls_for_one_message == 1
    assert slowest_s < 5
    assert await violations(pool, lookback=EVERYTHING) == {}


async def test_a_long_transaction_makes_it_wait_and_nobody_else(
    pool: Pool, postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("carteiro.services.retention.LOCK_TIMEOUT_S", 0.2)
    monkeypatch.setattr("carteiro.services.retention.PAUSE_S", 0.01)
    batch_id = await settled(pool, 100)
    async with await AsyncConnection.connect(session_dsn(postgres_dsn, "long")) as long:
        await long.execute("SELECT count(*) FROM message")
        retaining = asyncio.create_task(run(pool))

        async def detaching() -> bool:
            return bool(await value(pool, "SELECT count(*) FROM partition_drop WHERE dropped_at IS NULL"))

        await until(detaching, 10, "weeks are decided upon")
        async with asyncio.timeout(10):
            while not retaining.done():
                await add_batch(pool, 2, start=int(await value(pool, "SELECT nextval('batch_event_id_seq')")) * 10)
        report = await retaining
        week = await partition_of(pool, "message", 100)
        assert week in report.busy
        with pytest.raises(Gone):
            await reading.read_messages(pool, ACCOUNT, batch_id, after_seq=0, status=None, limit=10)
        assert await violations(pool, lookback=EVERYTHING) == {}
    report = await run(pool)
    assert week in report.dropped
    assert week not in await tables(pool, "message")
    assert report.busy == []


@pytest.mark.parametrize("stage", ["decided", "pending", "detached", "dropped"])
async def test_it_goes_on_wherever_it_was_cut_short(pool: Pool, postgres_dsn: str, stage: str) -> None:
    await settled(pool, 100)
    week = await partition_of(pool, "message", 100)
    async with pool.connection() as conn:
        (partition,) = [
            found
            for found in await retention.read_partitions(conn, ["message"], keep_s=90 * 86_400)
            if found.name == week
        ]
        await retention.decide(conn, ["message", "message_content"], partition)
        if stage == "pending":
            async with await AsyncConnection.connect(session_dsn(postgres_dsn, "long")) as long:
                await long.execute("SELECT count(*) FROM message")
                await conn.execute("SET lock_timeout = '100ms'")
                with pytest.raises(Exception, match="lock timeout"):
                    await conn.execute(f"ALTER TABLE message DETACH PARTITION {week} CONCURRENTLY".encode())
                await conn.execute("RESET lock_timeout")
        if stage in ("detached", "dropped"):
            await conn.execute(f"ALTER TABLE message DETACH PARTITION {week} CONCURRENTLY".encode())
        if stage == "dropped":
            await conn.execute(f"DROP TABLE {week}".encode())
        await conn.execute("SELECT ensure_partitions(1, 12)")
        states = {left.partition.name: left.state for left in await retention.read_decided(conn)}
    assert states[week] == {"decided": "attached", "dropped": "gone"}.get(stage, stage)
    report = await run(pool)
    assert week in report.dropped
    assert week not in await tables(pool, "message")
    assert await value(pool, "SELECT count(*) FROM partition_drop WHERE dropped_at IS NULL") == 0
    assert (await run(pool)).dropped == []


async def test_one_process_at_a_time_is_at_it(pool: Pool) -> None:
    await settled(pool, 100)
    async with pool.connection() as conn:
        assert await retention.try_lock(conn)
        assert await retain(pool, Settings()) is None
        await retention.unlock(conn)
    assert (await run(pool)).dropped


async def test_partitions_of_the_weeks_to_come_are_made_as_before(pool: Pool) -> None:
    await settled(pool, 100)
    await run(pool, retention_messages_days=7.0, retention_audit_days=7.0, retention_receipts_days=7.0)
    left = {parent: len(await tables(pool, parent)) for parent in ("message", "message_content", "receipt_payload")}
    async with pool.connection() as conn:
        await conn.execute("SELECT ensure_partitions(1, 8)")
    assert left == {parent: len(await tables(pool, parent)) for parent in left}, "what was dropped is not made anew"
    assert 10 <= left["message"] <= 11


# Small tables


async def test_what_lies_beside_goes_in_slices(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("carteiro.services.retention.SLICE_ROWS", 2)
    batch_id = await settled(pool, 100)
    recent = await add_batch(pool, 2, start=700)
    async with transact(pool) as conn:
        for days in (100, 80):
            age = timedelta(days=days)
            for at in range(5):
                await conn.execute(
                    "INSERT INTO idempotency_key (account_id, key, request_hash, batch_id, created_at)"
                    " VALUES ('acme', %s, '', %s, clock_timestamp() - %s)",
                    (f"{days} {at}", batch_id, age),
                )
            await conn.execute(
                "WITH queued AS ("
                " INSERT INTO callback (id, batch_id, event, url, body, created_at, delivered_at)"
                " VALUES (gen_random_uuid(), %(id)s, %(event)s, '', '{}', clock_timestamp() - %(age)s, now())"
                " RETURNING id"
                ") INSERT INTO callback_attempt (callback_id) SELECT id FROM queued",
                {"id": batch_id, "event": f"{days}", "age": age},
            )
        await conn.execute(
            "INSERT INTO callback (id, batch_id, event, url, body, created_at)"
            " VALUES (gen_random_uuid(), %s, 'waits', '', '{}', clock_timestamp() - interval '200 days')",
            (batch_id,),
        )
        await conn.execute(
            "INSERT INTO batch_signature VALUES ('acme', 'old', %s, clock_timestamp() - interval '2 hours')", (recent,)
        )
        await conn.execute("INSERT INTO message_return (batch_id, seq) VALUES (%s, 1)", (batch_id,))
        await conn.execute("INSERT INTO pair_wait (batch_id, seq, waits) VALUES (%s, 1, 3)", (batch_id,))
        for of in (batch_id, recent):
            await conn.execute(
                "INSERT INTO follow_up (batch_id, seq, account_id, service_id, sender_id, business_manager_id,"
                " answered_at, answered_by, window_until)"
                " SELECT id, 1, account_id, service_id, '', '', created_at, 'phone', created_at"
                " FROM batch WHERE id = %s",
                (of,),
            )
        await conn.execute(
            "INSERT INTO follow_up_event (at, batch_id, seq, event, to_status, actor, attempt)"
            " SELECT created_at, id, 1, 'answered', 'pending', '', 0 FROM batch WHERE id = %s",
            (batch_id,),
        )
        for job_status, days in (("doing", 2), ("doing", 0), ("todo", 2), ("failed", 2)):
            await conn.execute(
                "INSERT INTO procrastinate_jobs (queue_name, task_name, status)"
                " VALUES (%s, 'pump', %s::procrastinate_job_status)",
                (f"{job_status} {days}", job_status),
            )
        await conn.execute(
            "INSERT INTO procrastinate_events (job_id, type)"
            " SELECT id, 'deferred' FROM procrastinate_jobs j WHERE queue_name ~ '^(doing|todo|failed) [02]$'"
            " AND NOT EXISTS (SELECT FROM procrastinate_events e WHERE e.job_id = j.id)"
        )
        await conn.execute(
            "UPDATE procrastinate_events e SET at = clock_timestamp() - split_part(j.queue_name, ' ', 2)::int"
            " * interval '1 day' FROM procrastinate_jobs j"
            " WHERE j.id = e.job_id AND j.queue_name ~ '^(doing|todo|failed) [02]$'"
        )
    claims = await value(pool, "SELECT count(*) FROM claim WHERE batch_id = %s", batch_id)
    assert claims > 0
    report = await run(pool)
    assert report.pruned == {
        "claims": claims,
        "returns": 1,
        "aliases": 1,
        "pair_waits": 1,
        "group_links": 0,
        "follow_ups": 1,
        "follow_up_events": 1,
        "idempotency_keys": 5,
        "signatures": 1,
        "callbacks": 1,
        "jobs": 2,
    }
    assert await value(pool, "SELECT count(*) FROM idempotency_key WHERE key LIKE '80 %%'") == 5
    assert await value(pool, "SELECT count(*) FROM idempotency_key WHERE key LIKE '100 %%'") == 0
    assert await value(pool, "SELECT array_agg(event ORDER BY event) FROM callback") == ["80", "waits"]
    assert await value(pool, "SELECT array_agg(batch_id) FROM follow_up") == [recent]
    assert await value(pool, "SELECT count(*) FROM follow_up_event") == 2
    async with transact(pool) as conn:
        await conn.execute("DELETE FROM follow_up")
    jobs = "SELECT array_agg(queue_name ORDER BY 1) FROM procrastinate_jobs WHERE queue_name ~ ' [02]$'"
    assert await value(pool, jobs) == ["doing 0", "todo 2"]
    assert await violations(pool, lookback=EVERYTHING) == {}
