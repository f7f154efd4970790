"""The record: what each outcome does to its message, its capacity, its sender and its service."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from carteiro.domain.outcomes import (
    Accepted,
    Ambiguous,
    Fact,
    FactKind,
    Kind,
    NotSent,
    Outcome,
    Rejected,
    Throttled,
)
from carteiro.services.dispatch.model import Nothing, Result, Slice
from carteiro.services.dispatch.record import record
from carteiro.storage import outcomes
from carteiro.storage.facts import merge_facts
from carteiro.storage.pool import Pool, transact
from tests.support.dispatching import LIFTED, TAKEN_AT, Bench, FakeProvider, counts, meter, running_bench, tallied
from tests.support.factories import add_account, add_batch, bm_id, sender_id, value

FAST = {"messages_per_second": 10_000}
TAKEN = Accepted("theirs")


def bench(pool: Pool, worker_id: str = "w1") -> Bench:
    built = Bench(pool, LIFTED, FakeProvider(), worker_id)
    built.spacing.rate_per_s = 20_000.0
    return built


async def begun(pool: Pool, n: int = 1, *, batch: dict[str, Any] | None = None, **options: Any) -> tuple[Bench, Slice]:
    """One batch of `n`, claimed."""
    await add_account(pool, credits=100, **{**FAST, **options})
    await add_batch(pool, n, **(batch or {}))
    station = bench(pool)
    return station, await station.claimed()


async def row(pool: Pool, columns: str, seq: int = 1) -> str:
    text: str = await value(pool, f"SELECT ({columns})::text FROM message WHERE seq = %s", seq)
    return text


async def waiting(pool: Pool) -> tuple[str | None, float]:
    """Why the service waits, and for how many seconds more."""
    reason = await value(pool, "SELECT wait_reason FROM service_health")
    seconds = await value(
        pool, "SELECT coalesce(extract(epoch FROM wait_until - clock_timestamp()), 0)::float FROM service_health"
    )
    return reason, seconds


async def test_accepted_is_sent_and_keeps_its_capacity(pool: Pool) -> None:
    station, piece = await begun(pool)
    await station.record(piece, TAKEN, at=TAKEN_AT)
    assert await row(pool, "status, provider_id, sent_at = '2026-11-02 12:00Z', attempt") == "(sent,theirs,t,0)"
    assert await meter(pool, "bm", bm_id(1)) == (1, 0)
    assert await value(pool, "SELECT (open, closed_at IS NOT NULL)::text FROM claim") == "(0,t)"


@pytest.mark.parametrize("kind", [Kind.CONTACT, Kind.CONTACT_MARKETING, Kind.COOL_DOWN, Kind.REQUEST])
async def test_a_refusal_of_the_contact_fails_and_returns_the_capacity(pool: Pool, kind: Kind) -> None:
    station, piece = await begun(pool, 2)
    await station.record(piece, Rejected("EC_1", kind), TAKEN)
    assert await row(pool, "status, code, failed_at IS NULL") == "(failed,EC_1,f)"
    assert await meter(pool, "bm", bm_id(1)) == (1, 0)
    assert await meter(pool, "sender", sender_id(1)) == (1, 0)
    assert await value(pool, "SELECT status FROM sender") == "ACTIVE"


async def test_a_refused_sender_is_stopped_and_its_messages_go_by_another(pool: Pool) -> None:
    station, piece = await begun(pool, 4, senders_per_bm=2)
    bad = piece.due[0].outgoing.sender
    answers: list[Outcome] = [
        Rejected("EC_7016", Kind.SENDER) if due.outgoing.sender == bad else TAKEN for due in piece.due
    ]
    await station.record(piece, *answers)
    assert await counts(pool) == {"sent": 2, "pending": 2}
    assert await value(pool, "SELECT status FROM sender WHERE id = %s", bad) == "STOPPED"
    assert await meter(pool, "bm", bm_id(1)) == (2, 2)
    assert await value(pool, "SELECT max(attempt) FROM message") == 0

    await _make_available(pool)
    again = await station.claimed()
    assert {due.outgoing.sender for due in again.due} == {sender_id(1, 1), sender_id(1, 2)} - {bad}
    assert [due.outgoing.seq for due in again.due] == [1, 3]


async def test_a_refused_template_takes_its_manager_out_of_the_pool(pool: Pool) -> None:
    station, piece = await begun(pool, 2, bms=2)
    await station.record(piece, Rejected("EC_7009", Kind.TEMPLATE), TAKEN)
    bad = piece.due[0].unit.business_manager
    assert await value(pool, "SELECT status FROM submission WHERE business_manager_id = %s", bad) == "STOPPED"
    await _make_available(pool)
    (due,) = (await station.claimed()).due
    assert due.outgoing.seq == 1
    assert due.unit.business_manager != bad


async def test_a_refused_account_stops_the_service_for_a_while(pool: Pool) -> None:
    station, piece = await begun(pool)
    await station.record(piece, Rejected("HTTP_401", Kind.ACCOUNT))
    assert await counts(pool) == {"pending": 1}
    reason, seconds = await waiting(pool)
    assert reason == "account_refused"
    assert 290 < seconds <= 300
    assert isinstance(await station.claim(), Nothing)


@pytest.mark.parametrize(("told", "expected"), [(7.0, 7.0), (None, 2.0)])
async def test_throttled_waits_and_is_no_attempt(pool: Pool, told: float | None, expected: float) -> None:
    station, piece = await begun(pool, batch={"max_attempts": 1})
    await station.record(piece, Throttled(told))
    assert await row(pool, "status, attempt") == "(pending,0)"
    reason, seconds = await waiting(pool)
    assert reason == "throttled"
    assert expected - 2 < seconds <= expected
    assert await meter(pool, "bm", bm_id(1)) == (0, 1)
    assert await value(pool, "SELECT failures_in_a_row FROM service_health") == 0


async def test_not_sent_is_an_attempt_and_goes_again(pool: Pool) -> None:
    station, piece = await begun(pool)
    await station.record(piece, NotSent("HTTP_500"))
    assert await row(pool, "status, attempt, code") == "(pending,1,HTTP_500)"
    assert await meter(pool, "bm", bm_id(1)) == (0, 1)
    assert await value(pool, "SELECT available_at > clock_timestamp() FROM message_return")
    await _make_available(pool)
    assert [due.attempt for due in (await station.claimed()).due] == [1]


async def test_the_last_attempt_fails_and_returns_the_capacity(pool: Pool) -> None:
    station, piece = await begun(pool, batch={"max_attempts": 2})
    await station.record(piece, NotSent("HTTP_500"))
    await _make_available(pool)
    await station.record(await station.claimed(), NotSent("HTTP_503"))
    assert await row(pool, "status, event, attempt, code, failed_at IS NULL") == "(failed,exhausted,2,HTTP_503,f)"
    assert await meter(pool, "bm", bm_id(1)) == (0, 0)


async def test_ambiguous_is_unknown_keeps_its_capacity_and_is_not_claimed_again(pool: Pool) -> None:
    station, piece = await begun(pool)
    await station.record(piece, Ambiguous("TIMEOUT"))
    assert await row(pool, "status, code, unknown_at IS NULL") == "(unknown,TIMEOUT,f)"
    assert await meter(pool, "bm", bm_id(1)) == (1, 0)
    looks = "SELECT (absent, duplicate, look_at > clock_timestamp() + interval '2 min')::text FROM message_unknown"
    assert await value(pool, looks) == "(0,f,t)"
    assert isinstance(await station.claim(), Nothing)


async def test_a_call_that_was_not_started_leaves_no_trace_but_the_audit(pool: Pool) -> None:
    station, piece = await begun(pool, batch={"max_attempts": 1})
    await station.record(piece, None)
    assert await row(pool, "status, attempt, code") == "(pending,0,)"
    assert await meter(pool, "bm", bm_id(1)) == (0, 1)
    assert await value(pool, "SELECT array_agg(event ORDER BY at) FROM message_event") == ["claimed", "given_back"]
    assert len((await station.claimed()).due) == 1


async def test_a_record_whose_answer_was_lost_is_harmless_to_repeat(pool: Pool) -> None:
    station, piece = await begun(pool, 3)
    results = [
        Result(due, outcome, 0.02, TAKEN_AT)
        for due, outcome in zip(piece.due, [TAKEN, Rejected("EC_1", Kind.CONTACT), NotSent("HTTP_500")], strict=True)
    ]
    for _ in range(2):
        await record(pool, piece, results, 0, station.settings)
    assert await counts(pool) == await tallied(pool) == {"sent": 1, "pending": 1, "failed": 1}
    assert await meter(pool, "bm", bm_id(1)) == (1, 1)
    assert await value(pool, "SELECT (open, flushes)::text FROM claim") == "(0,1)"
    assert await value(pool, "SELECT failures_in_a_row FROM service_health") == 1


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (NotSent("HTTP_500"), "unsent"),
        (Throttled(1.0), "unsent"),
        (None, "unsent"),
        (Ambiguous("TIMEOUT"), "unknown"),
        (TAKEN, "sent"),
        (Rejected("EC_1", Kind.CONTACT), "failed"),
    ],
)
async def test_outcomes_of_a_batch_that_was_cancelled_meanwhile(
    pool: Pool, outcome: Outcome | None, expected: str
) -> None:
    station, piece = await begun(pool)
    async with transact(pool) as conn:
        await conn.execute("UPDATE batch SET status = 'cancelled', event = 'cancelled'")
    await station.record(piece, outcome)
    assert await counts(pool) == {expected: 1}
    assert await meter(pool, "bm", bm_id(1)) == (1 if expected in ("sent", "unknown") else 0, 0)
    assert await value(pool, "SELECT count(*) FROM message_return") == 0


@pytest.mark.parametrize("outcome", [TAKEN, NotSent("HTTP_500"), Ambiguous("TIMEOUT"), Rejected("EC_1", Kind.CONTACT)])
async def test_a_receipt_that_came_first_is_not_undone(pool: Pool, outcome: Outcome) -> None:
    station, piece = await begun(pool)
    await _merge(pool, piece.batch_id, FactKind.DELIVERED)
    await station.record(piece, outcome)
    assert await row(pool, "status, delivered_at IS NULL") == "(delivered,f)"
    assert await meter(pool, "bm", bm_id(1)) == (1, 0)
    assert await value(pool, "SELECT count(*) FROM message_return") == 0


async def test_evidence_counts_even_after_the_lease_lapsed(pool: Pool) -> None:
    station, piece = await begun(pool, 2)
    async with transact(pool) as conn:
        lost = [outcomes.Move(seq, "lost", "LEASE_LAPSED") for seq in (1, 2)]
        await outcomes.move_claimed(conn, piece.batch_id, piece.claim_id, lost, look_after_s=60)
    await station.record(piece, TAKEN, NotSent("HTTP_500"))
    assert await counts(pool) == {"sent": 1, "unknown": 1}
    assert await value(pool, "SELECT array_agg(seq) FROM message_unknown") == [2]


async def test_an_outcome_of_an_earlier_claim_does_not_touch_the_row(pool: Pool) -> None:
    station, piece = await begun(pool, 1)
    late = [Result(piece.due[0], Rejected("EC_1", Kind.CONTACT), 0.02, TAKEN_AT)]
    await station.record(piece, None)
    again = await station.claimed()
    async with pool.connection() as conn:
        await conn.execute("UPDATE claim SET open = 1, closed_at = NULL WHERE id = %s", (piece.claim_id,))
    await record(pool, piece, late, piece.flushes, station.settings)
    assert await counts(pool) == {"pending_send": 1}
    await station.record(again, TAKEN)
    assert await counts(pool) == {"sent": 1}
    assert await meter(pool, "bm", bm_id(1)) == (1, 0)


async def test_acceptance_of_a_row_given_back_meanwhile_charges_its_capacity_again(pool: Pool) -> None:
    station, piece = await begun(pool, 1)
    await station.record(piece, NotSent("HTTP_500"))
    assert await meter(pool, "bm", bm_id(1)) == (0, 1)
    await _merge(pool, piece.batch_id, FactKind.DELIVERED)
    assert await counts(pool) == {"delivered": 1}
    used, _held = await meter(pool, "bm", bm_id(1))
    assert used == 1
    assert await value(pool, "SELECT count(*) FROM message_return") == 0


async def test_fifteen_failures_in_a_row_suspend_the_service(pool: Pool) -> None:
    station, piece = await begun(pool, 30)
    await station.record(piece, *[NotSent("HTTP_500")] * 14)
    assert (await waiting(pool))[0] is None
    rest = replace(piece, due=piece.due[14:])
    await station.record(rest, NotSent("HTTP_500"))
    assert (await waiting(pool))[0] == "blackout"


async def test_any_other_answer_ends_a_run_of_failures(pool: Pool) -> None:
    station, piece = await begun(pool, 30)
    await station.record(piece, *[NotSent("HTTP_500")] * 14, Rejected("EC_1", Kind.CONTACT))
    assert await value(pool, "SELECT failures_in_a_row FROM service_health") < 15
    assert (await waiting(pool))[0] is None


async def test_many_records_and_claims_at_once_lose_nothing(pool: Pool) -> None:
    await add_account(pool, credits=300, bms=3, **FAST)
    await add_batch(pool, 300)
    answers: list[Outcome | None] = [TAKEN, NotSent("HTTP_500"), Rejected("EC_1", Kind.CONTACT), None, Ambiguous("T")]

    async def work(name: str) -> None:
        station = bench(pool, name)
        for piece in await station.claim_all():
            await station.record(piece, *[answers[due.outgoing.seq % 5] for due in piece.due])

    await asyncio.gather(*(work(f"w{n}") for n in range(4)))
    for _ in range(5):
        # Those not started are free again at once.
        await work("w9")
    expected = {"sent": 60, "failed": 60, "unknown": 60, "pending": 120}
    assert await counts(pool) == await tallied(pool) == expected
    used = [await meter(pool, "bm", bm_id(n)) for n in (1, 2, 3)]
    assert sum(n for n, _ in used) == 120
    assert sum(held for _, held in used) == 120


async def test_a_row_that_cannot_be_recorded_spoils_no_other_and_its_lease_lapses(pool: Pool) -> None:
    await add_account(pool, credits=100, **FAST)
    await add_batch(pool, 5)
    async with pool.connection() as conn:
        await conn.execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no such thing'; END $$"
        )
        await conn.execute(
            "CREATE TRIGGER refuse BEFORE UPDATE ON message FOR EACH ROW WHEN (NEW.seq = 3 AND NEW.status = 'sent')"
            " EXECUTE FUNCTION refuse()"
        )
    async with running_bench(pool, lease_s=31.0, call_timeout_s=15.0) as station:
        await station.pump()
        assert await counts(pool) == {"sent": 4, "pending_send": 1}
        lease_until = await value(pool, "SELECT lease_until FROM claim WHERE closed_at IS NULL")
        async with transact(pool) as conn:
            renewed = await outcomes.renew_leases(conn, station.dispatcher.claims_in_hand(), lease_s=60)
        assert renewed == {}
    assert await value(pool, "SELECT lease_until FROM claim WHERE closed_at IS NULL") == lease_until


async def _make_available(pool: Pool) -> None:
    async with pool.connection() as conn:
        await conn.execute("UPDATE message_return SET available_at = clock_timestamp()")


async def _merge(pool: Pool, batch_id: UUID, kind: FactKind) -> None:
    async with transact(pool) as conn:
        await merge_facts(conn, batch_id, [Fact(batch_id, 1, kind, TAKEN_AT + timedelta(seconds=1))])
