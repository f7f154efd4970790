"""Faults that a hostile reading of dispatch found, each told by the behaviour that it broke."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from carteiro.domain.outcomes import Accepted, Ambiguous, Fact, FactKind, Kind, NotSent, Outcome, Parsed, Rejected
from carteiro.providers.contract import LogUnreachable, LookUp, MessageId
from carteiro.services.audit import violations
from carteiro.services.dispatch import recorder
from carteiro.services.dispatch.clock import to_us
from carteiro.services.dispatch.lapse import close_lapsed_claims
from carteiro.services.dispatch.model import Nothing, Result, Slice
from carteiro.services.dispatch.reconcile import reconcile_unknown
from carteiro.services.dispatch.record import record
from carteiro.services.receive import apply_all
from carteiro.storage.facts import merge_facts
from carteiro.storage.pool import Pool, transact
from tests.support.dispatching import LIFTED, TAKEN_AT, Bench, FakeProvider, counts, meter, running_bench
from tests.support.factories import add_account, add_batch, bm_id, sender_id, value
from tests.support.posting import store_payload
from tests.support.waiting import until

SETTINGS = replace(LIFTED, lease_grace_s=0.0)
TAKEN = Accepted("theirs")
LOST = Ambiguous("TIMEOUT")
AWAY = NotSent("CONNECT_FAILED")


async def begun(pool: Pool, n: int = 1, *, provider: FakeProvider | None = None, **batch: Any) -> tuple[Bench, Slice]:
    """A batch of `n`, claimed."""
    await add_account(pool, credits=500, bm_limit=500, messages_per_second=10_000)
    await add_batch(pool, n, **batch)
    station = Bench(pool, SETTINGS, provider or FakeProvider())
    station.spacing.rate_per_s = 20_000.0
    return station, await station.claimed()


async def change(pool: Pool, *statements: str) -> None:
    async with transact(pool) as conn:
        for statement in statements:
            await conn.execute(statement.encode())


async def look(station: Bench) -> None:
    """Ask the log for every unknown row."""
    await change(station.pool, "UPDATE message_unknown SET look_at = clock_timestamp()")
    await reconcile_unknown(station.pool, station.settings, station.provider_for)


# Unknown, and absent


async def test_unknown_since_its_call_and_not_since_we_noticed(pool: Pool) -> None:
    """A log that has forgotten the message by then does not make it go twice."""
    station, _ = await begun(pool)
    await change(
        pool,
        "UPDATE claim SET lease_until = lease_until - interval '63 h'",
        "UPDATE message SET slot_at = slot_at - interval '63 h', bucket_at = bucket_at - interval '63 h'",
    )
    assert await close_lapsed_claims(pool, SETTINGS) == 1
    for _ in range(2):
        await look(station)
    assert await value(pool, "SELECT (status, code)::text FROM message") == "(failed,OUTCOME_UNKNOWN)"
    assert isinstance(await station.claim(), Nothing)


async def test_a_look_up_from_before_a_second_call_is_no_miss_of_that_call(pool: Pool) -> None:
    class Freezing(FakeProvider):
        freezes = False

        async def look_up(self, ids: Sequence[MessageId]) -> LookUp:
            answer = await super().look_up(ids)
            if self.freezes:
                self.freezes = False
                await look(station)
                assert await counts(pool) == {"pending": 1}
                await station.record(await station.claimed(), LOST)
            return answer

    provider = Freezing()
    station, piece = await begun(pool, provider=provider)
    await station.record(piece, LOST)
    await look(station)
    provider.freezes = True
    await look(station)
    assert await value(pool, "SELECT absent FROM message_unknown") == 0
    await look(station)
    assert await counts(pool) == {"unknown": 1}


async def test_a_duplicate_told_after_the_claim_had_lapsed_still_forbids_a_proof_of_absence(pool: Pool) -> None:
    station, piece = await begun(pool)
    await change(pool, "UPDATE claim SET lease_until = clock_timestamp() - interval '1 ms'")
    assert await close_lapsed_claims(pool, SETTINGS) == 1
    await station.record(piece, Ambiguous("EC_7280", duplicate=True))
    for _ in range(3):
        await look(station)
    assert await counts(pool) == {"unknown": 1}


class SilentLog(FakeProvider):
    """A log that gives no answer to a question about one of these rows."""

    silent: Sequence[int] = ()
    questions: int = 0

    async def look_up(self, ids: Sequence[MessageId]) -> LookUp:
        self.questions += 1
        if any(seq in self.silent for _, seq in ids):
            raise LogUnreachable("told to be silent")
        return await super().look_up(ids)


async def test_one_row_that_the_log_cannot_speak_of_does_not_keep_the_others_unknown(pool: Pool) -> None:
    provider = SilentLog()
    station, piece = await begun(pool, 60, provider=provider)
    await station.record_all(piece, LOST)
    provider.taken = {(piece.batch_id, seq): FactKind.DELIVERED for seq in range(1, 61)}
    provider.silent = (7,)
    await look(station)
    assert await counts(pool) == {"unknown": 1, "delivered": 59}
    assert await value(pool, "SELECT seq FROM message WHERE status = 'unknown'") == 7


async def test_an_unreachable_log_is_asked_for_two_pages_and_their_halves_only(pool: Pool) -> None:
    provider = SilentLog()
    station, piece = await begun(pool, 60, provider=provider)
    await station.record_all(piece, LOST)
    provider.silent = range(1, 61)
    await look(station)
    assert provider.questions == 6
    assert await counts(pool) == {"unknown": 60}


# Blackouts


async def test_failures_are_in_a_row_in_the_order_of_the_answers(pool: Pool) -> None:
    station, piece = await begun(pool, 250)
    outcomes: list[Outcome] = [AWAY if seq % 12 == 0 else TAKEN for seq in range(250)]
    assert outcomes[-1] == TAKEN
    await station.record(piece, *outcomes)
    assert await counts(pool) == {"sent": 229, "pending": 21}
    assert await value(pool, "SELECT (failures_in_a_row, wait_until)::text FROM service_health") == "(0,)"


async def test_a_row_that_always_fails_does_not_keep_its_service_suspended(pool: Pool) -> None:
    station, piece = await begun(pool, 20)
    await station.record_all(piece, AWAY)
    probed = []
    for outcome in (AWAY, TAKEN):
        await change(
            pool,
            "UPDATE service_health SET wait_until = clock_timestamp()",
            "UPDATE message_return SET available_at = clock_timestamp()",
        )
        probe = await station.claimed()
        probed.append([due.outgoing.seq for due in probe.due])
        await station.record(probe, outcome)
    assert probed == [[1], [2]]
    assert len((await station.claimed()).due) == 19


# Capacity


@pytest.mark.parametrize("outcome", [AWAY, Rejected("EC_1", Kind.CONTACT)], ids=["exhausted", "refused"])
async def test_late_evidence_charges_a_returned_unit_again_and_only_once(pool: Pool, outcome: Outcome) -> None:
    station, piece = await begun(pool, max_attempts=1)
    await station.record(piece, outcome)
    assert await counts(pool) == {"failed": 1}
    assert await meter(pool, "bm", bm_id(1)) == (0, 0)
    for kind in (FactKind.DELIVERED, FactKind.DELIVERED, FactKind.SENT, FactKind.SEEN):
        async with transact(pool) as conn:
            await conn.execute("SELECT FROM batch FOR KEY SHARE")
            await merge_facts(conn, piece.batch_id, [Fact(piece.batch_id, 1, kind, datetime.now(UTC))])
        assert await meter(pool, "bm", bm_id(1)) == (1, 0)
        assert await meter(pool, "sender", sender_id(1)) == (1, 0)
    assert await counts(pool) == {"seen": 1}


async def test_what_was_unsent_and_had_gone_after_all_takes_its_unit_and_moves_nothing(pool: Pool) -> None:
    """Told by the receipt, and by the frozen worker that made the call."""
    station, piece = await begun(pool, 2)
    async with transact(pool) as conn:
        await conn.execute("UPDATE batch SET status = 'cancelled', event = 'cancelled'")
    await station.record(piece, AWAY, AWAY)
    assert await counts(pool) == {"unsent": 2}
    assert await meter(pool, "bm", bm_id(1)) == (0, 0)
    failed = Fact(piece.batch_id, 1, FactKind.FAILED, datetime.now(UTC), code="EC_1")
    for fact in (failed, *[Fact(piece.batch_id, 1, FactKind.DELIVERED, datetime.now(UTC))] * 2):
        token = await value(pool, "SELECT webhook_token FROM service")
        assert await store_payload(pool, "infobip", token, b"")
        await apply_all(pool, lambda _, fact=fact: lambda _: Parsed((fact,)))
    assert await meter(pool, "bm", bm_id(1)) == await meter(pool, "sender", sender_id(1)) == (1, 0)
    async with transact(pool) as conn:
        own = Fact(piece.batch_id, 2, FactKind.SENT, datetime.now(UTC))
        await merge_facts(conn, piece.batch_id, [own], claim_id=piece.claim_id)
    assert await meter(pool, "bm", bm_id(1)) == await meter(pool, "sender", sender_id(1)) == (2, 0)
    assert await counts(pool) == {"unsent": 2}
    assert await value(pool, "SELECT string_agg(DISTINCT result, ' ') FROM receipt") == "late"
    assert await violations(pool) == {}


# Attempts


@pytest.mark.parametrize(
    ("earlier", "expected"), [(98, "(pending,99)"), (99, "(failed,100)"), (2_000, "(failed,2001)")]
)
async def test_without_max_attempts_the_hundredth_is_the_last(pool: Pool, earlier: int, expected: str) -> None:
    station, piece = await begun(pool)
    await change(pool, f"UPDATE message SET attempt = {earlier}")
    piece.due = [replace(due, attempt=earlier) for due in piece.due]
    await station.record(piece, AWAY)
    assert await value(pool, "SELECT (status, attempt)::text FROM message") == expected


# The clock


async def test_a_claim_that_waited_for_a_meter_reads_the_clock_after_it(pool: Pool) -> None:
    """With an older one it would forget, or grant again, what others were granted on shared senders meanwhile."""
    await add_account(pool, credits=10)
    await add_batch(pool, 5)
    station = Bench(pool, SETTINGS, FakeProvider())
    waits = "SELECT count(*) > 0 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    async with transact(pool) as holder:
        await holder.execute("SELECT FROM capacity_meter WHERE kind = 'bm' FOR UPDATE")
        waiting = asyncio.create_task(station.claimed())
        await until(lambda: value(pool, waits), 5, "the claim waits for the meter")
        released_us = to_us(await value(pool, "SELECT clock_timestamp()"))
    piece = await waiting
    assert piece.reading.database_us >= released_us
    assert all(due.slot_us >= released_us for due in piece.due)


# The record


async def end_frozen_session(pool: Pool) -> None:
    async with transact(pool) as conn:
        await conn.execute("SET LOCAL idle_in_transaction_session_timeout = '1 ms'")
        ended = "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = %s)"
        await until(lambda: value(pool, ended, conn.info.backend_pid), 5, "Postgres ends the session")
        await conn.execute("SELECT")


async def write_to_standby(pool: Pool) -> None:
    async with transact(pool) as conn:
        await conn.execute("SET TRANSACTION READ ONLY")
        await conn.execute("UPDATE claim SET flushes = flushes + 1")


@pytest.mark.parametrize("trouble", [end_frozen_session, write_to_standby])
async def test_a_flush_on_a_session_that_postgres_ended_or_on_a_standby_is_tried_again(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, trouble: Callable[[Pool], Awaitable[None]]
) -> None:
    troubles = [trouble]

    async def troubled(*flush: Any) -> None:
        if troubles:
            await troubles.pop()(pool)
        await record(*flush)

    monkeypatch.setattr(recorder, "record", troubled)
    monkeypatch.setattr(recorder, "RETRY_DELAY_S", 0.0)
    await add_account(pool, credits=10)
    await add_batch(pool)
    async with running_bench(pool) as station:
        piece = await station.claimed()
        station.dispatcher.recorder.note(piece, Result(piece.due[0], TAKEN, 0.02, TAKEN_AT))
        await station.dispatcher.recorder.drained()
    assert not troubles
    assert await counts(pool) == {"sent": 1}


# Size


async def test_a_batch_goes_on_past_the_last_small_integer(pool: Pool) -> None:
    """A cursor below 32,768 and a look-ahead beyond it stopped the batch, and its whole service, for good."""
    await add_account(pool, credits=33_000, bm_limit=33_000, messages_per_second=10_000)
    await add_batch(pool, 33_000)
    await change(pool, "UPDATE batch SET cursor_seq = 32700")
    station = Bench(pool, SETTINGS, FakeProvider())
    station.spacing.rate_per_s = 20_000.0
    piece = await station.claimed()
    assert [due.outgoing.seq for due in piece.due][:100] == list(range(32_701, 32_801))
