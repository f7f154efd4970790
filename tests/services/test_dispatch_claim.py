"""The claim: which rows go, from which sender, and what stands in the way."""

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from psycopg.errors import AdminShutdown

from carteiro.domain.contacts import Contact
from carteiro.services.dispatch.model import Nothing
from carteiro.settings import Settings
from carteiro.storage.pool import Pool, transact
from tests.support import factories
from tests.support.dispatching import LIFTED, Bench, FakeProvider, counts, meter, tallied
from tests.support.factories import add_account, add_batch, bm_id, sender_id, value

FAST = {"messages_per_second": 10_000}
"""Pacing out of the way."""


def bench(pool: Pool, settings: Settings = LIFTED) -> Bench:
    built = Bench(pool, settings, FakeProvider())
    built.spacing.rate_per_s = 20_000.0
    return built


async def test_claimed_rows_are_committed_with_claim_sender_slot_and_bucket(pool: Pool) -> None:
    await add_account(pool, credits=10, **FAST)
    batch_id = await add_batch(pool, 3)
    piece = await bench(pool).claimed()

    assert [due.outgoing.seq for due in piece.due] == [1, 2, 3]
    assert await counts(pool) == await tallied(pool) == {"pending_send": 3}
    row = "(status, event, claim_id, sender_id, business_manager_id, slot_at IS NULL, bucket_at IS NULL)::text"
    assert await value(pool, f"SELECT array_agg(DISTINCT {row}) FROM message") == [
        f"(pending_send,claimed,{piece.claim_id},{sender_id(1)},{bm_id(1)},f,f)"
    ]
    assert await value(pool, "SELECT (status, blocked_by, next_attempt_at)::text FROM batch") == "(processing,,)"
    assert await value(pool, "SELECT (seqs, size, open, worker_id, batch_id)::text FROM claim") == (
        f'("{{1,2,3}}",3,3,w1,{batch_id})'
    )
    assert await meter(pool, "bm", bm_id(1)) == (3, 0)
    assert await meter(pool, "sender", sender_id(1)) == (3, 0)


async def test_what_is_sent_is_the_contacts_own(pool: Pool) -> None:
    await add_account(pool, credits=10, bms=2, **FAST)
    contacts = [Contact(phone=factories.phone(n), placeholders=[f"name {n}", f"order {n}"]) for n in range(4)]
    batch_id = await add_batch(pool, contacts=contacts)
    piece = await bench(pool).claimed()

    token = await value(pool, "SELECT webhook_token FROM service")
    for n, due in enumerate(piece.due):
        sent = due.outgoing
        assert (sent.batch_id, sent.seq) == (batch_id, n + 1)
        assert sent.to == factories.phone(n)[1:]
        assert sent.placeholders == (f"name {n}", f"order {n}")
        number = {sender_id(1): 1, sender_id(2): 2}[sent.sender]
        assert sent.template_name == f"{factories.TEMPLATE}_v{number}"
        assert sent.language == "pt_BR"
        assert sent.notify_url == f"http://127.0.0.1:8000/webhooks/infobip/{token}"
    assert {due.outgoing.sender for due in piece.due} == {sender_id(1), sender_id(2)}


async def test_a_hundred_contacts_over_ten_equal_senders_are_ten_each(pool: Pool) -> None:
    await add_account(pool, credits=100, bms=5, senders_per_bm=2, **FAST)
    await add_batch(pool, 100)
    slices = await bench(pool).claim_all()
    per_sender = Counter(due.outgoing.sender for piece in slices for due in piece.due)
    assert sorted(per_sender.values()) == [10] * 10


async def test_the_least_used_sender_goes_first(pool: Pool) -> None:
    await add_account(pool, credits=100, bms=2, **FAST)
    await _use(pool, sender_id(1), bm_id(1), 7)
    await add_batch(pool, 11)
    piece = await bench(pool).claimed()
    assert Counter(due.outgoing.sender for due in piece.due) == {sender_id(1): 2, sender_id(2): 9}


async def test_quality_first_takes_the_better_sender_until_it_is_full(pool: Pool) -> None:
    await add_account(pool, credits=100, senders_per_bm=3, sender_limit=5, rotation="quality_first", **FAST)
    await _set_quality(pool, {sender_id(1, 1): "LOW", sender_id(1, 2): "HIGH", sender_id(1, 3): "MEDIUM"})
    await add_batch(pool, 12)
    piece = await bench(pool).claimed()
    assert [due.outgoing.sender for due in piece.due] == (
        [sender_id(1, 2)] * 5 + [sender_id(1, 3)] * 5 + [sender_id(1, 1)] * 2
    )


async def test_a_sender_without_room_passes_to_the_next(pool: Pool) -> None:
    await add_account(pool, credits=100, senders_per_bm=2, sender_limit=10, **FAST)
    await _use(pool, sender_id(1, 1), bm_id(1), 9)
    await add_batch(pool, 11)
    piece = await bench(pool).claimed()
    assert Counter(due.outgoing.sender for due in piece.due) == {sender_id(1, 1): 1, sender_id(1, 2): 10}


async def test_a_sender_on_the_managers_limit_ignores_its_own(pool: Pool) -> None:
    await add_account(pool, credits=100, sender_limit=3, bm_limit=20, **FAST)
    async with pool.connection() as conn:
        await conn.execute("UPDATE sender SET use_waba_limit = true")
    await add_batch(pool, 20)
    assert len((await bench(pool).claimed()).due) == 20


async def test_stopped_and_foreign_senders_are_left_out(pool: Pool) -> None:
    await add_account(pool, credits=100, bms=6, **FAST)
    async with pool.connection() as conn:
        await conn.execute("UPDATE sender SET active = false WHERE id = %s", (sender_id(1),))
        await conn.execute("UPDATE sender SET status = 'BANNED' WHERE id = %s", (sender_id(2),))
        await conn.execute(
            "UPDATE sender SET stopped_until = clock_timestamp() + interval '1 hour' WHERE id = %s", (sender_id(3),)
        )
        await conn.execute("UPDATE business_manager SET active = false WHERE id = %s", (bm_id(4),))
        await conn.execute("DELETE FROM sender_account WHERE sender_id = %s", (sender_id(5),))
    await add_batch(pool, 12)
    piece = await bench(pool).claimed()
    assert {due.outgoing.sender for due in piece.due} == {sender_id(6)}


async def test_a_submission_that_differs_from_the_frozen_content_is_not_used(pool: Pool) -> None:
    await add_account(pool, credits=100, bms=2, **FAST)
    await add_batch(pool, 4)
    async with pool.connection() as conn:
        await conn.execute("UPDATE submission SET signature = 'other' WHERE business_manager_id = %s", (bm_id(1),))
    piece = await bench(pool).claimed()
    assert {due.outgoing.sender for due in piece.due} == {sender_id(2)}


async def test_rows_that_cannot_be_rendered_fail_by_the_guard_without_capacity(pool: Pool) -> None:
    await add_account(pool, credits=10, **FAST)
    contacts = [Contact(phone=factories.phone(n), placeholders=["Ana"] if n % 2 else ["Ana", str(n)]) for n in range(6)]
    await add_batch(pool, contacts=contacts, on_invalid="skip")
    assert await meter(pool, "bm", bm_id(1)) == (0, 3)
    piece = await bench(pool).claimed()

    assert [due.outgoing.seq for due in piece.due] == [1, 3, 5]
    assert await counts(pool) == await tallied(pool) == {"pending_send": 3, "failed": 3}
    assert await value(pool, "SELECT array_agg(DISTINCT code) FROM message WHERE status = 'failed'") == [
        "PLACEHOLDER_MISSING"
    ]
    assert await meter(pool, "bm", bm_id(1)) == (3, 0)


async def test_a_batch_of_which_nothing_can_be_rendered_fails_row_by_row(pool: Pool) -> None:
    await add_account(pool, credits=10, **FAST)
    contacts = [Contact(phone=factories.phone(n), placeholders=["Ana"]) for n in range(6)]
    await add_batch(pool, contacts=contacts, on_invalid="skip")
    station = bench(pool)
    assert isinstance(await station.claim(), Nothing)
    assert await counts(pool) == {"failed": 6}
    assert await meter(pool, "bm", bm_id(1)) == (0, 0)


async def test_rows_locked_by_somebody_else_are_sent_later(pool: Pool) -> None:
    await add_account(pool, credits=10, **FAST)
    await add_batch(pool, 6)
    station = bench(pool)
    async with transact(pool) as other:
        await other.execute("SELECT FROM message WHERE seq IN (2, 4) FOR UPDATE")
        first = await station.claimed()
    second = await station.claimed()
    assert [due.outgoing.seq for due in first.due] == [1, 3, 5, 6]
    assert [due.outgoing.seq for due in second.due] == [2, 4]
    assert await value(pool, "SELECT count(*) FROM message_return") == 0


async def test_all_rows_locked_are_not_lost_when_the_cursor_passes_them(pool: Pool) -> None:
    await add_account(pool, credits=10, **FAST)
    await add_batch(pool, 6)
    station = bench(pool)
    async with transact(pool) as other:
        await other.execute("SELECT FROM message FOR UPDATE")
        assert isinstance(await station.claim(), Nothing)
    assert sum(len(piece.due) for piece in await station.claim_all()) == 6
    assert await counts(pool) == {"pending_send": 6}


async def test_two_claims_at_once_never_take_the_same_row(pool: Pool) -> None:
    await add_account(pool, credits=400, bms=2, **FAST)
    await add_batch(pool, 400)
    benches = [Bench(pool, LIFTED, FakeProvider(), f"w{n}") for n in range(4)]
    slices = [piece for claimed in await asyncio.gather(*(b.claim_all() for b in benches)) for piece in claimed]
    seqs = [due.outgoing.seq for piece in slices for due in piece.due]
    assert sorted(seqs) == list(range(1, 401))


async def test_batches_of_one_service_take_turns(pool: Pool) -> None:
    await add_account(pool, credits=1_000, messages_per_second=100)
    large, small = await add_batch(pool, 500), await add_batch(pool, 30, start=500)
    station = bench(pool)
    turns = [piece.batch_id for piece in await station.claim_all()]
    assert turns[:2] == [large, small]


async def test_higher_priority_goes_first(pool: Pool) -> None:
    await add_account(pool, credits=100, **FAST)
    await add_batch(pool, 5)
    urgent = await add_batch(pool, 1, start=50)
    async with pool.connection() as conn:
        await conn.execute("UPDATE batch SET priority = 1 WHERE id = %s", (urgent,))
    assert (await bench(pool).claimed()).batch_id == urgent


async def test_max_inflight_counts_the_rows_of_all_workers(pool: Pool) -> None:
    await add_account(pool, credits=100, max_inflight=3, **FAST)
    await add_batch(pool, 10)
    one, other = bench(pool), Bench(pool, LIFTED, FakeProvider(), "w2")
    piece = await one.claimed()
    assert len(piece.due) == 3
    assert await other.claim() == Nothing("in_flight", 0.05)
    await one.record(piece, None)
    assert len((await other.claimed()).due) == 1


async def test_max_inflight_takes_effect_at_the_next_claim(pool: Pool) -> None:
    await add_account(pool, credits=100, max_inflight=1, **FAST)
    await add_batch(pool, 10)
    station = bench(pool)
    assert len((await station.claimed()).due) == 1
    async with pool.connection() as conn:
        await conn.execute("UPDATE service SET max_inflight = 5")
    assert len((await station.claimed()).due) == 4


async def test_a_stopped_service_claims_nothing(pool: Pool) -> None:
    await add_account(pool, credits=100, **FAST)
    await add_batch(pool, 10)
    async with pool.connection() as conn:
        await conn.execute("UPDATE service SET active = false")
    assert await bench(pool).claim() == Nothing("service_stopped")


async def test_scheduled_and_expired_batches_are_not_claimed(pool: Pool) -> None:
    await add_account(pool, credits=100, **FAST)
    await add_batch(pool, 5, scheduled_at=factories.in_an_hour())
    expired = await add_batch(pool, 5, start=50)
    async with pool.connection() as conn:
        await conn.execute("UPDATE batch SET expires_at = clock_timestamp() - interval '1 s' WHERE id = %s", (expired,))
    claimed = await bench(pool).claim()
    assert isinstance(claimed, Nothing)
    assert claimed.reason == "idle"


async def test_without_any_sender_an_unsent_batch_ends_in_error(pool: Pool) -> None:
    await add_account(pool, credits=100, **FAST)
    await add_batch(pool, 5)
    async with pool.connection() as conn:
        await conn.execute("UPDATE submission SET status = 'PAUSED'")
    assert isinstance(await bench(pool).claim(), Nothing)
    assert await value(pool, "SELECT (status, error_code)::text FROM batch") == "(error,NO_ACTIVE_SENDERS)"


async def test_without_any_sender_a_batch_that_began_waits_and_says_why(pool: Pool) -> None:
    await add_account(pool, credits=100, max_inflight=2, **FAST)
    await add_batch(pool, 5)
    station = bench(pool)
    piece = await station.claimed()
    await station.record_all(piece, None)
    async with pool.connection() as conn:
        await conn.execute("UPDATE submission SET status = 'PAUSED'")
    await station.claim()
    assert await value(pool, "SELECT (status, blocked_by, next_attempt_at > clock_timestamp())::text FROM batch") == (
        "(processing,no_active_senders,t)"
    )


async def test_slots_lie_ahead_and_in_order(pool: Pool) -> None:
    await add_account(pool, credits=100, messages_per_second=50)
    await add_batch(pool, 100)
    piece = await bench(pool).claimed()
    slots = [due.slot_us for due in piece.due]
    assert slots == sorted(slots)
    assert slots[0] >= piece.reading.database_us
    assert slots[-1] - slots[0] <= 250_000


async def test_what_a_claim_was_granted_binds_the_next_one(pool: Pool) -> None:
    await add_account(pool, credits=100, messages_per_second=20)
    await add_batch(pool, 100)
    slots = []
    for name in ("w1", "w2", "w3"):
        for piece in await Bench(pool, LIFTED, FakeProvider(), name).claim_all():
            slots += [due.slot_us for due in piece.due]
    for slot in slots:
        assert sum(slot <= other < slot + 1_000_000 for other in slots) <= 20


@pytest.mark.parametrize(("per_minute", "shown"), [(20, "pacing"), (60, "")])
async def test_a_batch_that_waits_for_its_pace_says_so_once_it_is_worth_saying(
    pool: Pool, per_minute: int, shown: str
) -> None:
    await add_account(pool, credits=100)
    async with pool.connection() as conn:
        await conn.execute(f"UPDATE business_manager SET messages_per_minute = {per_minute}")
    await add_batch(pool, 10)
    station = bench(pool, Settings())
    pieces = await station.claim_all()
    assert [len(piece.due) for piece in pieces] == [1]
    blocked = "SELECT (blocked_by, next_attempt_at BETWEEN now() AND now() + interval '3 s')::text FROM batch"
    assert await value(pool, blocked) == f"({shown},t)"


async def test_killed_before_the_commit_nothing_happened(pool: Pool) -> None:
    await add_account(pool, credits=100, **FAST)
    await add_batch(pool, 10)
    async with pool.connection() as conn:
        await conn.execute(
            "CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS $$"
            " BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NEW; END $$"
        )
        await conn.execute("CREATE TRIGGER die AFTER INSERT ON claim FOR EACH ROW EXECUTE FUNCTION die()")
    station = bench(pool)
    with pytest.raises(AdminShutdown):
        await station.claim()
    assert await counts(pool) == await tallied(pool) == {"pending": 10}
    assert await meter(pool, "bm", bm_id(1)) == (0, 10)
    async with pool.connection() as conn:
        await conn.execute("DROP TRIGGER die ON claim")
    assert len((await station.claimed()).due) == 10


async def test_the_wait_for_the_next_schedule_is_told(pool: Pool) -> None:
    await add_account(pool, credits=100, **FAST)
    await add_batch(pool, 5, scheduled_at=datetime.now(UTC) + timedelta(seconds=1.5))
    claimed = await bench(pool).claim()
    assert isinstance(claimed, Nothing)
    assert claimed.wait_s is not None
    assert 0 < claimed.wait_s < 1.5


async def _use(pool: Pool, sender: str, bm: str, n: int) -> None:
    """As if `n` messages had gone from this sender a moment ago."""
    async with pool.connection() as conn:
        for kind, owner in (("bm", bm), ("sender", sender)):
            await conn.execute(
                "INSERT INTO capacity_meter (kind, owner, used) VALUES (%s, %s, %s)"
                " ON CONFLICT (kind, owner) DO UPDATE SET used = capacity_meter.used + excluded.used",
                (kind, owner, n),
            )
            await conn.execute(
                "INSERT INTO capacity_bucket VALUES (%s, %s, date_trunc('minute', clock_timestamp()), %s)",
                (kind, owner, n),
            )


async def _set_quality(pool: Pool, qualities: dict[str, str]) -> None:
    async with pool.connection() as conn:
        for sender, quality in qualities.items():
            await conn.execute("UPDATE sender SET quality = %s WHERE id = %s", (quality, sender))
