"""Finalisation: totals once, refunds by rule, holds released, the client told; and what comes before it."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from carteiro.domain.outcomes import Fact, FactKind
from carteiro.services.finalise import TALL_TALLY, assume_delivered, assume_found_late, finalise_due, fold_tallies
from carteiro.settings import Settings
from carteiro.storage.facts import merge_facts
from carteiro.storage.pool import Pool, transact
from tests.support.batches import ACCOUNT, BM, SENT_AT, Connection, add_batch, add_service, one, status_of

SETTINGS = Settings()

CHARGED_EITHER_WAY = ["delivered", "seen", "assumed"]
CHARGED_IN_FULL = ["failed", "guarded", "gave_up"]
NEVER_CHARGED = ["unsent", "dropped"]
ALL_PASTS = CHARGED_EITHER_WAY + CHARGED_IN_FULL + NEVER_CHARGED
OPEN_PASTS = ["pending", "given_back", "pending_send", "unknown", "sent"]


@pytest.fixture
async def db(pool: Pool) -> AsyncIterator[Connection]:
    async with pool.connection() as conn:
        await add_service(conn)
        yield conn


async def money(db: Connection, batch_id: UUID) -> tuple[int, int, int]:
    """(debited, charged, refunded)"""
    found: tuple[int, int, int] = await one(db, "SELECT debited, charged, refunded FROM batch WHERE id = %s", batch_id)
    return found


async def charged_by_messages(db: Connection, batch_id: UUID) -> int:
    """What the rows say: as frozen where they changed after the settlement, else as their state says."""
    return int(
        await one(
            db,
            "SELECT count(*) FILTER (WHERE coalesce(m.charged, b.debited > 0 AND (m.status IN ('delivered', 'seen')"
            " OR (b.charge_rule = 'full' AND m.status = 'failed'))))"
            " FROM message m JOIN batch b ON b.id = m.batch_id WHERE b.id = %s",
            batch_id,
        )
    )


# What is settled, and what is not


@pytest.mark.parametrize(("rule", "charged"), [("sent_only", 3), ("full", 6)])
async def test_each_outcome_is_charged_or_refunded_by_the_rule(
    pool: Pool, db: Connection, rule: str, charged: int
) -> None:
    batch = await add_batch(db, ALL_PASTS, charge_rule=rule)
    assert await finalise_due(pool, SETTINGS) == [batch]
    assert await money(db, batch) == (8, charged, 8 - charged)
    assert await charged_by_messages(db, batch) == charged
    entry = await one(db, "SELECT account_id, kind, amount, balance_after, cause, actor FROM ledger_entry")
    assert entry == (ACCOUNT, "refund", 8 - charged, 8 - charged, "settled", "finalise")
    status, event, settled, ended = await one(
        db, "SELECT status, event, settled_at IS NOT NULL, ended_at IS NOT NULL FROM batch"
    )
    assert (status, event, settled, ended) == ("completed", "completed", True, True)
    assert await one(db, "SELECT to_status FROM batch_event WHERE event = 'completed'") == "completed"


async def test_nothing_to_refund_leaves_no_ledger_entry(pool: Pool, db: Connection) -> None:
    batch = await add_batch(db, ["delivered", "seen"])
    assert await finalise_due(pool, SETTINGS) == [batch]
    assert await money(db, batch) == (2, 2, 0)
    assert await one(db, "SELECT count(*) FROM ledger_entry") == 0


async def test_a_batch_that_cost_nothing_is_settled_for_nothing(pool: Pool, db: Connection) -> None:
    batch = await add_batch(db, ["delivered", "failed"], debited=0)
    assert await finalise_due(pool, SETTINGS) == [batch]
    assert await money(db, batch) == (0, 0, 0)


async def test_what_was_refunded_before_is_not_refunded_again(pool: Pool, db: Connection) -> None:
    batch = await add_batch(db, ["unsent", "unsent", "failed", "seen"], refunded=2)
    await finalise_due(pool, SETTINGS)
    assert await money(db, batch) == (4, 1, 3)
    assert await one(db, "SELECT amount FROM ledger_entry") == 1


@pytest.mark.parametrize(
    ("events", "status"),
    [
        (["opened", "started", "paused"], "completed"),
        (["opened", "cancelled"], "cancelled"),
        (["moderated", "rejected"], "cancelled"),
        (["opened", "started", "cancelled"], "cancelled"),
        (["opened", "erred"], "error"),
    ],
)
async def test_an_ended_batch_keeps_its_state_and_an_open_one_is_completed(
    pool: Pool, db: Connection, events: list[str], status: str
) -> None:
    batch = await add_batch(db, ["unsent", "delivered"], events=events)
    await db.execute("UPDATE batch SET reason = 'asked for', error_code = 'CODE', blocked_by = 'capacity'")
    assert await finalise_due(pool, SETTINGS) == [batch]
    assert await money(db, batch) == (2, 1, 1)
    found = await one(db, "SELECT status, reason, error_code, blocked_by FROM batch")
    assert found == (status, None if status == "completed" else "asked for", "CODE", None)


async def test_a_paused_batch_that_follows_up_is_not_completed_before_it_goes_on(pool: Pool, db: Connection) -> None:
    """Completed, it would follow up, although whoever paused it was told that no call starts."""
    batch = await add_batch(db, ["delivered"], events=["opened", "started", "paused"])
    await db.execute("""UPDATE batch SET follow_up = '{"text": "more"}'""")
    assert await finalise_due(pool, SETTINGS) == []
    assert await one(db, "SELECT status FROM batch") == "paused"
    await db.execute("UPDATE batch SET status = 'processing', event = 'resumed'")
    assert await finalise_due(pool, SETTINGS) == [batch]


@pytest.mark.parametrize("past", OPEN_PASTS)
@pytest.mark.parametrize("events", [["opened", "started"], ["opened", "started", "cancelled"]])
async def test_an_open_outcome_keeps_the_batch_open(pool: Pool, db: Connection, past: str, events: list[str]) -> None:
    await add_batch(db, ["delivered", past], events=events)
    assert await finalise_due(pool, SETTINGS) == []
    assert await one(db, "SELECT settled_at FROM batch") is None


@pytest.mark.parametrize("events", [[], ["opened"], ["moderated"]])
async def test_a_batch_that_has_not_begun_is_not_settled(pool: Pool, db: Connection, events: list[str]) -> None:
    await add_batch(db, ["unsent"], events=events)
    assert await finalise_due(pool, SETTINGS) == []


async def test_ten_at_once_settle_each_batch_once(pool: Pool, db: Connection) -> None:
    batches = {await add_batch(db, ["failed", "delivered"], callback_url="https://example.com/") for _ in range(4)}
    settled = await asyncio.gather(*(finalise_due(pool, SETTINGS) for _ in range(10)))
    assert sorted(batch for each in settled for batch in each) == sorted(batches)
    assert await one(db, "SELECT count(*), sum(amount)::int FROM ledger_entry") == (4, 4)
    assert await one(db, "SELECT balance FROM account") == 4
    assert await one(db, "SELECT count(*) FROM callback") == 4


async def test_a_batch_whose_money_does_not_add_up_is_left_and_holds_up_no_other(pool: Pool, db: Connection) -> None:
    await add_batch(db, ["delivered"], debited=9)
    await add_batch(db, ["delivered"] * 3, debited=2)
    sound = await add_batch(db, ["delivered"])
    assert await finalise_due(pool, SETTINGS) == [sound]
    assert await one(db, "SELECT count(*) FROM batch WHERE settled_at IS NULL") == 2


# Capacity


async def test_what_is_still_held_is_released_and_wakes_who_waits_for_it(pool: Pool, db: Connection) -> None:
    batch = await add_batch(db, ["unsent", "failed"], held=2)
    waiting = await add_batch(db, ["pending"])
    throttled = await add_batch(db, ["pending"])
    others = await add_batch(db, ["pending"], held=1)
    later = datetime.now(UTC) + timedelta(hours=1)
    for each, reason in ((waiting, "capacity"), (throttled, "pacing"), (others, "capacity")):
        await db.execute("UPDATE batch SET blocked_by = %s, next_attempt_at = %s WHERE id = %s", (reason, later, each))
    await db.execute("INSERT INTO account (id, callback_secret) VALUES ('globex', '')")
    await db.execute("ALTER TABLE batch DISABLE TRIGGER batch_identity")
    await db.execute("UPDATE batch SET account_id = 'globex' WHERE id = %s", [others])

    assert await finalise_due(pool, SETTINGS) == [batch]

    assert await one(db, "SELECT batch_id, held FROM capacity_hold") == (others, 1)
    assert await one(db, "SELECT held FROM capacity_meter WHERE kind = 'bm' AND owner = %s", BM) == 1
    cursor = await db.execute("SELECT id FROM batch WHERE next_attempt_at IS NOT NULL ORDER BY id")
    assert await cursor.fetchall() == [(throttled,), (others,)]


# The callback


async def test_the_callback_is_queued_with_the_totals(pool: Pool, db: Connection) -> None:
    batch = await add_batch(
        db,
        ["unsent", "seen", "delivered", "failed"],
        events=["opened", "started", "cancelled"],
        callback_url="https://example.com/hook",
        reference="nov-1",
    )
    await finalise_due(pool, SETTINGS)
    event, url, body = await one(db, "SELECT event, url, body FROM callback")
    assert (event, url) == ("batch.cancelled", "https://example.com/hook")
    assert body["type"] == "batch.cancelled"
    assert datetime.fromisoformat(body["timestamp"]) == await one(db, "SELECT settled_at FROM batch")
    assert body["data"] == {
        "batch_id": str(batch),
        "reference": "nov-1",
        "status": "cancelled",
        "total": 4,
        "counts": {
            "pending": 0,
            "pending_send": 0,
            "unknown": 0,
            "sent": 0,
            "delivered": 1,
            "seen": 1,
            "failed": 1,
            "unsent": 1,
        },
        "money": {"debited": 4, "charged": 2, "refunded": 2},
        "error_code": None,
    }


async def test_without_an_address_there_is_no_callback(pool: Pool, db: Connection) -> None:
    await add_batch(db, ["delivered"])
    await finalise_due(pool, SETTINGS)
    assert await one(db, "SELECT count(*) FROM callback") == 0


# After the settlement


@pytest.mark.parametrize("rule", ["sent_only", "full", "free"])
@pytest.mark.parametrize(
    ("past", "kind", "status"),
    [
        ("failed", FactKind.DELIVERED, "delivered"),
        ("gave_up", FactKind.SENT, "sent"),
        ("gave_up", FactKind.SEEN, "seen"),
        ("assumed", FactKind.FAILED, "failed"),
        ("delivered", FactKind.SEEN, "seen"),
        ("dropped", FactKind.DELIVERED, "unsent"),
    ],
)
async def test_a_late_receipt_moves_the_message_and_never_the_money(
    pool: Pool, db: Connection, rule: str, past: str, kind: FactKind, status: str
) -> None:
    batch = await add_batch(db, [past, "delivered"], charge_rule=rule, debited=0 if rule == "free" else None)
    await finalise_due(pool, SETTINGS)
    before = await money(db, batch), await one(db, "SELECT balance FROM account")
    for _ in range(2):
        async with transact(pool) as conn:
            await merge_facts(conn, batch, [Fact(batch, 1, kind, SENT_AT + timedelta(days=3))])
        assert await finalise_due(pool, SETTINGS) == []
    assert await status_of(db, batch) == status
    assert (await money(db, batch), await one(db, "SELECT balance FROM account")) == before
    # What was found to have gone has no outcome yet: a day later it is taken for delivered, at the price of before.
    assert await assume_found_late(pool, replace(SETTINGS, assume_delivered_after_s=1e9)) == 0
    assert await assume_found_late(pool, SETTINGS) == (status == "sent")
    assert await status_of(db, batch) == ("delivered" if status == "sent" else status)
    assert (await money(db, batch), await one(db, "SELECT balance FROM account")) == before
    assert await charged_by_messages(db, batch) == (await money(db, batch))[1]


async def test_receipts_and_settlement_at_once_agree_on_what_was_charged(pool: Pool, db: Connection) -> None:
    """Whichever comes first at each row, the batch's total is the sum of what its rows say."""
    batches = [await add_batch(db, ["failed", "assumed", "gave_up"] * 8) for _ in range(6)]

    async def tell(batch: UUID, seq: int) -> None:
        async with transact(pool) as conn:
            await conn.execute("SELECT FROM batch WHERE id = %s FOR KEY SHARE", [batch])
            kind = FactKind.FAILED if seq % 3 == 2 else FactKind.DELIVERED
            await merge_facts(conn, batch, [Fact(batch, seq, kind, SENT_AT + timedelta(hours=1))])

    async def tell_all(batch: UUID) -> None:
        for seq in range(1, 25):
            await tell(batch, seq)

    await asyncio.gather(*(tell_all(batch) for batch in batches), *(finalise_due(pool, SETTINGS) for _ in range(2)))
    await finalise_due(pool, SETTINGS)
    for batch in batches:
        debited, charged, refunded = await money(db, batch)
        assert debited == charged + refunded == 24
        assert await charged_by_messages(db, batch) == charged


# Assumed delivered


async def test_what_got_no_receipt_in_time_is_taken_for_delivered(pool: Pool, db: Connection) -> None:
    batch = await add_batch(db, ["sent", "sent", "failed", "unknown"])
    assert await assume_delivered(pool, SETTINGS) == 2
    cursor = await db.execute("SELECT seq, status, event, assumed_at IS NOT NULL FROM message ORDER BY seq")
    assert await cursor.fetchall() == [
        (1, "delivered", "assumed", True),
        (2, "delivered", "assumed", True),
        (3, "failed", "failed", False),
        (4, "unknown", "lost", False),
    ]
    assert await one(db, "SELECT seqs FROM message_event WHERE event = 'assumed'") == [1, 2]
    assert await assume_delivered(pool, SETTINGS) == 0
    assert await status_of(db, batch, 4) == "unknown"


async def test_what_was_sent_lately_keeps_waiting(pool: Pool, db: Connection) -> None:
    now = datetime.now(UTC)
    young = await add_batch(db, ["sent"], at=now - timedelta(hours=23))
    mixed = await add_batch(db, ["sent", "sent"])
    await db.execute("UPDATE message SET sent_at = %s WHERE batch_id = %s AND seq = 2", (now, mixed))
    still_claimed = await add_batch(db, ["sent"])
    await db.execute("UPDATE batch SET turn_at = %s WHERE id = %s", (now, still_claimed))
    assert await assume_delivered(pool, SETTINGS) == 1
    assert await status_of(db, mixed) == "delivered"
    assert await status_of(db, young) == "sent"
    assert await status_of(db, still_claimed) == "sent"


async def test_assuming_goes_in_slices_up_to_the_limit(
    pool: Pool, db: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("carteiro.services.finalise.ASSUME_SLICE", 4)
    await add_batch(db, ["sent", "seen"] * 10)
    assert await assume_delivered(pool, SETTINGS, limit=5) == 6
    assert await assume_delivered(pool, SETTINGS, limit=5) == 4
    assert await one(db, "SELECT count(*) FROM message WHERE status = 'delivered'") == 10


async def test_assumptions_and_receipts_at_once_give_what_the_receipts_say(pool: Pool, db: Connection) -> None:
    batch = await add_batch(db, ["sent"] * 60)

    async def tell() -> None:
        for seq in range(60, 0, -1):
            async with transact(pool) as conn:
                await conn.execute("SELECT FROM batch WHERE id = %s FOR KEY SHARE", [batch])
                await merge_facts(conn, batch, [Fact(batch, seq, FactKind.FAILED, SENT_AT)])

    await asyncio.gather(tell(), *(assume_delivered(pool, SETTINGS) for _ in range(3)))
    assert await one(db, "SELECT count(*) FROM message WHERE status = 'failed'") == 60


# Tallies


async def grow_tally(db: Connection, batch: UUID, rows: int) -> None:
    """Deltas that cancel each other out, as receipts leave them."""
    await db.execute(
        "INSERT INTO batch_tally (batch_id, sent, delivered)"
        " SELECT %s, CASE WHEN n %% 2 = 0 THEN 1 ELSE -1 END, CASE WHEN n %% 2 = 0 THEN -1 ELSE 1 END"
        " FROM generate_series(1, %s) AS n",
        (batch, rows),
    )


async def test_a_tall_tally_is_folded_into_its_sum(pool: Pool, db: Connection) -> None:
    tall = await add_batch(db, ["sent", "seen", "pending"])
    short = await add_batch(db, ["sent"])
    await grow_tally(db, tall, TALL_TALLY + 2)
    before = await one(db, "SELECT count(*) FROM batch_tally WHERE batch_id = %s", short)
    assert await fold_tallies(pool) == 1
    assert await fold_tallies(pool) == 0
    cursor = await db.execute("SELECT pending, sent, seen, delivered FROM batch_tally WHERE batch_id = %s", [tall])
    assert await cursor.fetchall() == [(1, 1, 1, 0)]
    assert await one(db, "SELECT count(*) FROM batch_tally WHERE batch_id = %s", short) == before


async def test_folds_at_once_lose_nothing_in_any_snapshot(pool: Pool, db: Connection) -> None:
    batch = await add_batch(db, ["sent"] * 5)
    seen: set[tuple[int, int]] = set()
    done = asyncio.Event()

    async def watch() -> None:
        async with pool.connection() as conn:
            while not done.is_set():
                seen.add(await one(conn, "SELECT sum(sent)::int, sum(delivered)::int FROM batch_tally"))

    async def write() -> None:
        async with pool.connection() as conn:
            for _ in range(40):
                await grow_tally(conn, batch, TALL_TALLY + 2)

    async def fold() -> None:
        for _ in range(40):
            await fold_tallies(pool)

    watching = asyncio.create_task(watch())
    await asyncio.gather(write(), fold(), fold())
    done.set()
    await watching
    assert seen == {(5, 0)}


async def test_a_settled_batch_has_one_row_of_counts(pool: Pool, db: Connection) -> None:
    await add_batch(db, ALL_PASTS)
    await finalise_due(pool, SETTINGS)
    assert await one(db, "SELECT delivered, seen, failed, unsent FROM batch_tally") == (2, 1, 3, 2)
