"""The pump: claim, send, record, next batch in turn; whatever ends it, nothing that was begun is left behind."""

import asyncio
import time
from datetime import timedelta
from itertools import pairwise
from typing import Any, NoReturn

import pytest
from structlog.testing import capture_logs

from carteiro.domain.outcomes import NotSent, Outcome, Outgoing, Throttled
from carteiro.providers.contract import KeyMissing
from carteiro.services.dispatch import rows
from carteiro.services.dispatch.clock import from_us
from carteiro.services.dispatch.lapse import close_lapsed_claims
from carteiro.services.dispatch.send import send_slice
from carteiro.services.dispatch.spacing import LOWEST_RATE_PER_S, Spacing
from carteiro.storage.pool import Pool, transact
from tests.support.dispatching import FakeProvider, counts, meter, running_bench, take, tallied
from tests.support.factories import SERVICE, add_account, add_batch, bm_id, phone, sender_id, value
from tests.support.waiting import until

FAST = {"messages_per_second": 10_000}


async def test_a_batch_is_sent_and_recorded_once(pool: Pool) -> None:
    await add_account(pool, credits=300, bms=3, **FAST)
    await add_batch(pool, 300)
    async with running_bench(pool) as station:
        await station.pump()
        provider = station.provider
    assert provider.most_calls_for_one_message == 1
    assert sorted(call.outgoing.seq for call in provider.calls) == list(range(1, 301))
    assert provider.per_sender == {sender_id(n): 100 for n in (1, 2, 3)}
    assert await counts(pool) == await tallied(pool) == {"sent": 300}
    assert await value(pool, "SELECT count(*) FROM claim WHERE closed_at IS NULL") == 0


async def test_two_workers_share_a_batch_without_a_double(pool: Pool) -> None:
    await add_account(pool, credits=600, bms=2, **FAST)
    await add_batch(pool, 600)
    provider = FakeProvider(latency_s=0.01)
    async with (
        running_bench(pool, provider, worker_id="w1") as one,
        running_bench(pool, provider, worker_id="w2") as two,
    ):
        await asyncio.gather(one.pump(), two.pump())
    assert provider.most_calls_for_one_message == 1
    assert await counts(pool) == {"sent": 600}
    assert await value(pool, "SELECT count(DISTINCT worker_id) FROM claim") == 2
    assert provider.per_sender == {sender_id(1): 300, sender_id(2): 300}


async def test_a_row_is_pending_send_when_its_call_begins(pool: Pool) -> None:
    await add_account(pool, credits=20, **FAST)
    await add_batch(pool, 20)
    seen: list[str] = []

    class Watching(FakeProvider):
        async def _submit(self, outgoing: Outgoing) -> Outcome:
            seen.append(await value(pool, "SELECT status FROM message WHERE seq = %s", outgoing.seq))
            return await super()._submit(outgoing)

    async with running_bench(pool, Watching()) as station:
        await station.pump()
    assert seen == ["pending_send"] * 20


async def test_a_small_batch_does_not_wait_behind_a_large_one(pool: Pool) -> None:
    await add_account(pool, credits=2_000, bm_limit=None, messages_per_second=200)
    await add_batch(pool, 1_500)
    async with running_bench(pool, pump_s=10.0) as station:
        pumping = asyncio.create_task(station.pump())
        await until(lambda: station.provider.calls, 5, "the large batch began")
        small = await add_batch(pool, 10, start=1_500)
        created_s = time.monotonic()

        async def sent() -> bool:
            return await counts(pool, small) == {"sent": 10}

        await until(sent, 5, "the small batch was sent")
        assert time.monotonic() - created_s < 2.0
        station.dispatcher.stopping.set()
        await pumping


async def test_max_inflight_of_one_is_strictly_serial(pool: Pool) -> None:
    await add_account(pool, credits=20, max_inflight=1, **FAST)
    await add_batch(pool, 8)
    provider = FakeProvider(latency_s=0.02)
    async with (
        running_bench(pool, provider, worker_id="w1") as one,
        running_bench(pool, provider, worker_id="w2") as two,
    ):
        await asyncio.gather(one.pump(), two.pump())
    assert provider.most_in_flight == 1
    assert [call.outgoing.seq for call in provider.calls] == list(range(1, 9))
    assert await counts(pool) == {"sent": 8}


async def test_calls_start_at_their_slots_at_the_rate_of_the_service(pool: Pool) -> None:
    await add_account(pool, credits=60, messages_per_second=40)
    await add_batch(pool, 60)
    async with running_bench(pool, lateness_s=0.05) as station:
        await station.pump()
        starts = [call.at_s for call in station.provider.calls]
    assert await counts(pool) == {"sent": 60}
    for start in starts:
        assert sum(start <= other < start + 1.0 for other in starts) <= 40


async def test_a_worker_that_became_slow_recovers_where_a_slice_is_one_call_claimed_ahead(pool: Pool) -> None:
    await add_account(pool, credits=20, **FAST)
    await add_batch(pool, 20)
    async with running_bench(pool, FakeProvider(has_log=False)) as bench:
        spacing = bench.station.spacings[SERVICE] = Spacing(bench.settings.lateness_s, bench.station.lead)
        spacing.rate_per_s = LOWEST_RATE_PER_S
        await bench.pump()
    assert await counts(pool) == {"sent": 20}
    assert spacing.rate_per_s > LOWEST_RATE_PER_S


async def test_a_stopped_worker_gives_back_what_it_has_not_begun(pool: Pool) -> None:
    await add_account(pool, credits=400, messages_per_second=400)
    await add_batch(pool, 400)
    provider = FakeProvider(latency_s=0.05)
    async with running_bench(pool, provider) as station:
        pumping = asyncio.create_task(station.pump())
        await until(lambda: len(provider.calls) > 20, 5, "the batch began")
        station.dispatcher.stopping.set()
        begun = len(provider.calls)
        await pumping
        await station.dispatcher.drained()
    assert len(provider.calls) == begun
    assert await counts(pool) == await tallied(pool) == {"sent": begun, "pending": 400 - begun}
    assert await meter(pool, "bm", bm_id(1)) == (begun, 400 - begun)
    assert await value(pool, "SELECT max(attempt) FROM message") == 0


async def test_a_call_that_never_answers_ends_at_its_deadline_as_unknown(pool: Pool) -> None:
    await add_account(pool, credits=10, **FAST)
    await add_batch(pool, 3)
    async with running_bench(pool, FakeProvider(latency_s=60.0), call_timeout_s=0.2) as station:
        await station.pump()
    assert await counts(pool) == {"unknown": 3}
    assert await value(pool, "SELECT array_agg(DISTINCT code) FROM message") == ["TIMEOUT"]


async def test_a_call_that_raises_may_have_gone(pool: Pool) -> None:
    await add_account(pool, credits=10, **FAST)
    await add_batch(pool, 3)

    def explode(outgoing: Outgoing) -> Outcome:
        if outgoing.seq == 2:
            raise ZeroDivisionError
        return take(outgoing)

    async with running_bench(pool, FakeProvider(explode)) as station:
        await station.pump()
    assert await counts(pool) == {"sent": 2, "unknown": 1}
    assert await value(pool, "SELECT code FROM message WHERE status = 'unknown'") == "CALL_RAISED"


async def test_a_contact_that_rendering_breaks_on_fails_alone(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    await add_account(pool, credits=20, **FAST)
    batch_id = await add_batch(pool, 9)
    original = rows.render_parameters

    def render(content: Any, placeholders: Any, *more: Any) -> Any:
        if placeholders[1] == "4":
            raise RecursionError
        return original(content, placeholders, *more)

    monkeypatch.setattr(rows, "render_parameters", render)
    async with running_bench(pool) as station:
        with capture_logs() as logs:
            await station.pump()
    assert await counts(pool, batch_id) == {"sent": 8, "failed": 1}
    assert await value(pool, "SELECT (seq, event, code)::text FROM message WHERE status = 'failed'") == (
        "(5,guarded,RENDERING_RAISED)"
    )
    assert await meter(pool, "bm", bm_id(1)) == (8, 0)
    assert [line["seq"] for line in logs if line["event"] == "rendering_raised"] == [5]
    assert phone(4).lstrip("+") not in str(logs)


async def test_nothing_starts_after_the_lease(pool: Pool) -> None:
    await add_account(pool, credits=10, messages_per_second=20)
    await add_batch(pool, 5)
    async with running_bench(pool, lease_grace_s=0.0) as station:
        piece = await station.claimed()
        piece.lease_until = piece.lease_until.replace(year=2020)
        await send_slice(piece, station.provider, station.station.calls, station.dispatcher.recorder.note)
        assert station.provider.calls == []
        async with pool.connection() as conn:
            await conn.execute("UPDATE claim SET lease_until = clock_timestamp() - interval '1 s'")
        await close_lapsed_claims(pool, station.settings)
        await station.dispatcher.recorder.drained()
    assert set(await counts(pool)) <= {"pending", "unknown"}


async def test_a_call_that_the_lease_may_not_outlast_is_not_started(pool: Pool) -> None:
    await add_account(pool, credits=10, messages_per_second=20)
    await add_batch(pool, 5)
    async with running_bench(pool, call_timeout_s=10.0) as station:
        piece = await station.claimed()
        leased_until = piece.lease_until
        for left_s, started in ((9.0, 0), (20.0, len(piece.due))):
            piece.lease_until = from_us(piece.reading.database_us) + timedelta(seconds=left_s)
            await send_slice(piece, station.provider, station.station.calls, lambda _piece, _result: None)
            assert len(station.provider.calls) == started
        assert leased_until > piece.lease_until


async def test_rows_too_late_for_their_slots_are_given_back_and_sent_later(pool: Pool) -> None:
    await add_account(pool, credits=40, messages_per_second=400)
    await add_batch(pool, 40)
    stalled = False

    def stall(outgoing: Outgoing) -> Outcome:
        nonlocal stalled
        if not stalled:
            stalled = True
            time.sleep(0.3)  # the whole process stands still, as under a garbage collection or a stopped container
        return take(outgoing)

    async with running_bench(pool, FakeProvider(stall), lateness_s=0.05) as station:
        while await counts(pool) != {"sent": 40}:
            await station.pump()
        provider = station.provider
    assert provider.most_calls_for_one_message == 1
    assert await value(pool, "SELECT count(*) FROM message_event WHERE event = 'given_back'") > 0


async def test_throttled_rows_go_again_after_the_wait(pool: Pool) -> None:
    await add_account(pool, credits=10, **FAST)
    await add_batch(pool, 6)
    throttled: set[int] = set()

    def throttle(outgoing: Outgoing) -> Outcome:
        if outgoing.seq % 2 and outgoing.seq not in throttled:
            throttled.add(outgoing.seq)
            return Throttled(0.3)
        return take(outgoing)

    async with running_bench(pool, FakeProvider(throttle)) as station:
        await station.pump()
        while await counts(pool) != {"sent": 6}:
            await station.pump()
        firsts = {call.outgoing.seq: call.at_s for call in reversed(station.provider.calls)}
        again = [call for call in station.provider.calls if call.at_s > firsts[call.outgoing.seq]]
    assert sorted(call.outgoing.seq for call in again) == [1, 3, 5]
    assert all(call.at_s - firsts[call.outgoing.seq] >= 0.3 for call in again)
    assert await value(pool, "SELECT max(attempt) FROM message") == 0


async def test_what_certainly_did_not_leave_goes_again(pool: Pool) -> None:
    await add_account(pool, credits=10, **FAST)
    await add_batch(pool, 4)
    failed: set[int] = set()

    def fail_once(outgoing: Outgoing) -> Outcome:
        if outgoing.seq == 3 and not failed:
            failed.add(3)
            return NotSent("HTTP_500")
        return take(outgoing)

    async with running_bench(pool, FakeProvider(fail_once)) as station:
        await station.pump()

        async def sent() -> bool:
            await station.pump()
            return await counts(pool) == {"sent": 4}

        await until(sent, 10, "the failed one went again")
    assert await value(pool, "SELECT attempt FROM message WHERE seq = 3") == 1


async def test_the_pace_of_a_manager_is_even(pool: Pool) -> None:
    await add_account(pool, credits=10, messages_per_second=100)
    async with pool.connection() as conn:
        await conn.execute("UPDATE business_manager SET messages_per_minute = 90")
    await add_batch(pool, 7)
    async with running_bench(pool, lateness_s=0.05) as station:
        await station.pump()
        starts = [call.at_s for call in station.provider.calls]
    assert len(starts) == 7
    # 90 a minute is one each 667 ms; no closer than 0.9 of that.
    assert min(later - earlier for earlier, later in pairwise(starts)) >= 0.6 - 0.005


async def test_work_that_was_locked_by_others_is_not_forgotten(pool: Pool) -> None:
    await add_account(pool, credits=100, **FAST)
    await add_batch(pool, 100)
    async with running_bench(pool) as station:
        async with transact(pool) as other:
            await other.execute("SELECT FROM message WHERE seq % 3 = 0 FOR UPDATE")
            pumping = asyncio.create_task(station.pump())
            await until(lambda: len(station.provider.calls) >= 60, 10, "the others were sent")
        await pumping
        while await counts(pool) != {"sent": 100}:
            await station.pump()
    assert station.provider.most_calls_for_one_message == 1


async def test_a_worker_without_the_providers_key_says_so_and_leaves_the_batch_to_others(pool: Pool) -> None:
    await add_account(pool, credits=20, max_inflight=1, **FAST)
    batch_id = await add_batch(pool, 3)
    shown = (
        "SELECT concat_ws(' ', blocked_by, next_attempt_at > clock_timestamp(),"
        " next_attempt_at < clock_timestamp() + interval '15 s') FROM batch"
    )

    async def pass_by(seconds: int) -> None:
        async with pool.connection() as conn:
            await conn.execute(
                "UPDATE batch SET created_at = created_at - make_interval(secs => %(s)s),"
                " turn_at = turn_at - make_interval(secs => %(s)s),"
                " next_attempt_at = next_attempt_at - make_interval(secs => %(s)s)",
                {"s": seconds},
            )

    async def keyless(_service_id: str) -> NoReturn:
        raise KeyMissing("INFOBIP_KEY is not set")

    async with running_bench(pool) as keyholder, running_bench(pool, worker_id="w2") as lacking:
        lacking.dispatcher._provider_for = keyless
        with capture_logs() as logs:
            await lacking.pump()
            assert await value(pool, shown) == "", "another worker may be about to take it"
            await pass_by(5)
            await lacking.pump()
            assert await value(pool, shown) == "provider_key_missing t t"
            await pass_by(20)
            await lacking.pump()
        assert await value(pool, shown) == "provider_key_missing t t"
        assert [line["event"] for line in logs] == ["provider_key_missing"]
        await pass_by(20)
        piece = await keyholder.claimed()
        assert await value(pool, shown) == "", "it goes on"
        await pass_by(2)
        await lacking.pump()
        assert await value(pool, shown) == "", "another worker sends it"
        await keyholder.record_all(piece, take(piece.due[0].outgoing))
        await keyholder.pump()
    assert await counts(pool, batch_id) == {"sent": 3}
