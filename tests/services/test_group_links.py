"""Group links: a batch of one, tried again by its own schedule, before bulk, and once for each reference."""

import asyncio
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID

import pytest

from carteiro.domain.errors import Conflict, Gone, InvalidRequest, NotFound
from carteiro.domain.group_links import Flow, LinkState
from carteiro.domain.outcomes import Accepted, Ambiguous, Kind, NotSent, Rejected, Throttled, message_key
from carteiro.domain.requests import TemplateName
from carteiro.domain.retries import attempt_delay_s
from carteiro.domain.suppression import Scope
from carteiro.services import api_keys
from carteiro.services.api_keys import Caller
from carteiro.services.audit import EVERYTHING, violations
from carteiro.services.create.refusals import TemplateNotApproved, UnknownTemplate
from carteiro.services.dispatch.lapse import close_lapsed_claims
from carteiro.services.dispatch.model import Nothing, Slice
from carteiro.services.dispatch.reconcile import reconcile_unknown
from carteiro.services.finalise import finalise_due
from carteiro.services.group_links.place import ReferenceReused, post_link
from carteiro.services.group_links.reading import LinkView, read_link, read_links
from carteiro.services.retention import retain
from carteiro.services.suppression import suppress
from carteiro.services.withdraw import withdraw_ended
from carteiro.settings import Settings
from carteiro.storage.pool import Pool
from tests.support.dispatching import LIFTED, Bench, FakeProvider, running_bench
from tests.support.factories import ACCOUNT, add_batch, add_key, caller, grant_credits, phone, value
from tests.support.group_links import LINK, LINKS, add_links, link_request
from tests.support.waiting import until

BASE_S = 0.05
QUICK = replace(LIFTED, group_link_retry_base_s=BASE_S, reconcile_after_s=31.0)


def bench(pool: Pool) -> Bench:
    built = Bench(pool, QUICK, FakeProvider())
    built.spacing.rate_per_s = 20_000.0
    return built


async def post(pool: Pool, number: int = 0, by: Caller | None = None, **fields: Any) -> UUID:
    return (await post_link(pool, QUICK, by or caller(), link_request(number, **fields))).batch_id


async def client(pool: Pool) -> Caller:
    """With a key that the audit finds."""
    return await api_keys.authenticate(pool, await add_key(pool))


async def seen(pool: Pool, link_id: UUID) -> LinkView:
    return await read_link(pool, ACCOUNT, link_id)


async def clock(pool: Pool) -> datetime:
    at: datetime = await value(pool, "SELECT clock_timestamp()")
    return at


async def claimed_when_due(station: Bench) -> Slice:
    async def claim() -> Slice | None:
        claimed = await station.claim(LINKS)
        return claimed if isinstance(claimed, Slice) else None

    piece: Slice = await until(claim, 10, "it is due")
    return piece


async def test_retries_follow_their_schedule_to_exhaustion(pool: Pool) -> None:
    await add_links(pool)
    link = await post(pool, by=await client(pool), max_attempts=10)
    station = bench(pool)
    due_at = (await seen(pool, link)).row.available_at
    for attempt in range(1, 11):
        piece = await claimed_when_due(station)
        assert due_at is not None
        assert await clock(pool) >= due_at
        assert (await seen(pool, link)).state is LinkState.PROCESSING
        await station.record(piece, NotSent("ECONNREFUSED"))
        now = await seen(pool, link)
        assert (now.row.attempts, now.code) == (attempt, "ECONNREFUSED")
        assert now.detail == f"{attempt} of 10 calls did not leave; the last call was answered with ECONNREFUSED"
        if attempt == 10:
            break
        assert now.state is LinkState.PENDING
        due_at = now.row.available_at
        assert due_at is not None
        failed_at = await value(pool, "SELECT max(at) FROM message_event WHERE to_status = 'pending'")
        expected_s = attempt_delay_s(BASE_S, attempt, message_key(link, 1))
        assert BASE_S * min(attempt, 8) <= expected_s < 1.1 * BASE_S * min(attempt, 8)
        assert (due_at - failed_at).total_seconds() == pytest.approx(expected_s, abs=0.03)
    assert now.state is LinkState.FAILED
    assert now.row.available_at is None
    assert await finalise_due(pool, QUICK) == [link]
    assert await value(pool, "SELECT (held, used)::text FROM capacity_meter WHERE kind = 'bm'") == "(0,0)"
    assert await violations(pool, lookback=EVERYTHING) == {}


async def test_what_else_happens_to_a_call_takes_no_attempt(pool: Pool) -> None:
    await add_links(pool)
    link = await post(pool, max_attempts=1)
    station = bench(pool)
    await station.record(await claimed_when_due(station), Throttled(0.0))
    assert (await seen(pool, link)).row.attempts == 0
    await station.record(await claimed_when_due(station), None)
    await station.record(await claimed_when_due(station), Accepted("theirs"))
    sent = await seen(pool, link)
    assert (sent.state, sent.code, sent.row.attempts, sent.row.available_at) == (LinkState.SENT, None, 0, None)
    refused = await post(pool, 1)
    await station.record(await claimed_when_due(station), Rejected("EC_7", Kind.CONTACT))
    failed = await seen(pool, refused)
    assert (failed.state, failed.code, failed.row.attempts) == (LinkState.FAILED, "EC_7", 0)


async def test_a_delayed_link_is_not_due_before_and_is_sent_by_a_running_pump(pool: Pool) -> None:
    await add_links(pool)
    before = await clock(pool)
    link = await post(pool, delay_ms=400)
    due_at = (await seen(pool, link)).row.available_at
    assert due_at is not None
    assert 0.4 <= (due_at - before).total_seconds() < 0.4 + (await clock(pool) - before).total_seconds()
    async with running_bench(pool) as station:
        await station.pump(LINKS)
        assert [call.outgoing.placeholders for call in station.provider.calls] == [("Ana", LINK)]
    row = (await seen(pool, link)).row
    slot_at = await value(pool, "SELECT slot_at FROM message")
    assert row.message_status == "sent"
    assert 0 <= (slot_at - due_at).total_seconds() < 1.0


async def test_a_reference_is_one_send(pool: Pool) -> None:
    await add_links(pool)
    made = await asyncio.gather(
        *(post_link(pool, QUICK, caller(), link_request(reference="enrolment-1")) for _ in range(10))
    )
    assert len({creation.batch_id for creation in made}) == 1
    assert sorted(creation.replayed for creation in made) == [False, *[True] * 9]
    assert await value(pool, "SELECT count(*) FROM group_link") == 1
    assert await value(pool, "SELECT count(*) FROM batch") == 1
    with pytest.raises(ReferenceReused):
        await post(pool, 1, reference="enrolment-1")
    assert await post(pool, reference="enrolment-2") != made[0].batch_id
    found = await read_links(pool, ACCOUNT, reference="enrolment-1", before_id=None, limit=5)
    assert [link.row.id for link in found] == [made[0].batch_id]
    assert await read_links(pool, ACCOUNT, reference="enrolment-3", before_id=None, limit=5) == []
    assert await read_links(pool, "rival", reference="enrolment-1", before_id=None, limit=5) == []
    with pytest.raises(NotFound):
        await read_link(pool, "rival", made[0].batch_id)


async def test_the_service_of_its_flow_then_the_one_for_both(pool: Pool) -> None:
    with pytest.raises(Conflict):
        await post(pool)
    await add_links(pool, links={"flow": "business"})
    with pytest.raises(Conflict):
        await post(pool, flow=Flow.PERSONAL)
    assert (await seen(pool, await post(pool, flow=Flow.BUSINESS))).row.service_id == LINKS
    async with pool.connection() as conn:
        await conn.execute("UPDATE service SET kind = 'group_link', charge_rule = 'free' WHERE id <> %s", (LINKS,))
    assert (await seen(pool, await post(pool, flow=Flow.BUSINESS))).row.service_id == LINKS
    assert (await seen(pool, await post(pool, flow=Flow.PERSONAL))).row.service_id != LINKS


async def test_it_is_free_unless_its_service_has_a_price(pool: Pool) -> None:
    await add_links(pool)
    by = await client(pool)
    await post(pool, by=by)
    assert await value(pool, "SELECT (debited, charge_rule)::text FROM batch") == "(0,free)"
    await add_links(pool, links={"charge_rule": "sent_only"})
    await grant_credits(pool, ACCOUNT, 3, cause="test", actor="test")
    await post(pool, 1, by=by)
    assert await value(pool, "SELECT balance FROM account") == 2
    assert await violations(pool, lookback=EVERYTHING) == {}


async def test_refusals_leave_nothing(pool: Pool) -> None:
    await add_links(pool, approved_bms=0)
    with pytest.raises(TemplateNotApproved):
        await post(pool)
    with pytest.raises(UnknownTemplate):
        await post(pool, template=TemplateName("nothing"))
    with pytest.raises(InvalidRequest):
        await post(pool, phone="12")
    assert await value(pool, "SELECT count(*) FROM batch") == 0


async def test_it_overtakes_bulk_that_takes_all_the_pace_there_is(pool: Pool) -> None:
    await add_links(pool, bm_limit=None, messages_per_second=200)
    await grant_credits(pool, ACCOUNT, 30_000, cause="test", actor="test")
    async with pool.connection() as conn:
        await conn.execute("UPDATE business_manager SET messages_per_minute = 3000")
    bulk = await add_batch(pool, 30_000)
    async with running_bench(pool, settings=Settings(pump_s=20.0)) as station:
        pumping = [asyncio.create_task(station.pump())]
        await until(lambda: len(station.provider.calls) > 50, 10, "bulk is under way")
        waits_s: list[float] = []
        for number in range(3):
            link = await post(pool, 40_000 + number)
            due_at = (await seen(pool, link)).row.available_at
            pumping.append(asyncio.create_task(station.pump(LINKS)))

            async def sent(link: UUID = link) -> bool:
                return (await seen(pool, link)).state is LinkState.SENT

            await until(sent, 10, "the link was sent")
            slot_at = await value(pool, "SELECT slot_at FROM message WHERE batch_id = %s", link)
            assert due_at is not None
            waits_s.append((slot_at - due_at).total_seconds())
        station.dispatcher.stopping.set()
        await asyncio.gather(*pumping)
    # Most of them: a machine that is busy with other tests may miss the slot of one.
    assert sorted(waits_s)[1] < 2.0, waits_s
    assert await value(pool, "SELECT sum(pending)::int FROM batch_tally WHERE batch_id = %s", bulk) > 20_000


async def test_holds_of_bulk_are_never_used(pool: Pool) -> None:
    await add_links(pool, bm_limit=10)
    await grant_credits(pool, ACCOUNT, 10, cause="test", actor="test")
    await add_batch(pool, 10)
    link = await post(pool, 100)
    station = bench(pool)
    claimed = await station.claim(LINKS)
    assert isinstance(claimed, Nothing)
    assert claimed.reason == "capacity"
    row = (await seen(pool, link)).row
    assert row.message_status == "pending"
    assert row.available_at is not None
    assert row.available_at > await clock(pool)


async def test_what_is_stuck_in_processing_is_recovered(pool: Pool) -> None:
    await add_links(pool)
    link = await post(pool)
    station = bench(pool)
    await station.claimed(LINKS)
    async with pool.connection() as conn:
        await conn.execute("UPDATE claim SET lease_until = clock_timestamp() - interval '1 second'")
    assert await close_lapsed_claims(pool, replace(QUICK, lease_grace_s=0.0)) == 1
    stuck = await seen(pool, link)
    assert (stuck.state, stuck.code) == (LinkState.PROCESSING, "LEASE_LAPSED")
    for _ in range(2):
        async with pool.connection() as conn:
            await conn.execute("UPDATE message_unknown SET look_at = clock_timestamp()")
        await reconcile_unknown(pool, QUICK, station.provider_for)
    assert (await seen(pool, link)).state is LinkState.PENDING
    await station.record(await claimed_when_due(station), Ambiguous("TIMEOUT"))
    assert (await seen(pool, link)).state is LinkState.PROCESSING


async def test_a_suppressed_contact_and_a_batch_in_error_have_failed(pool: Pool) -> None:
    await add_links(pool)
    await suppress(pool, caller(), [phone(0)], scope=Scope.ALL)
    suppressed = await seen(pool, await post(pool, 0))
    assert (suppressed.state, suppressed.code) == (LinkState.FAILED, "SUPPRESSED")
    link = await post(pool, 1)
    async with pool.connection() as conn:
        await conn.execute("UPDATE sender SET status = 'STOPPED'")
    await bench(pool).claim_all(LINKS)
    failed = await seen(pool, link)
    assert (failed.state, failed.code) == (LinkState.FAILED, "NO_ACTIVE_SENDERS")
    assert failed.detail
    await withdraw_ended(pool)
    assert (await seen(pool, link)).code == "NO_ACTIVE_SENDERS"


async def test_links_go_by_age_with_their_references(pool: Pool) -> None:
    await add_links(pool)
    station = bench(pool)
    old = await post(pool, 0, reference="old")
    await station.record(await claimed_when_due(station), Rejected("EC_7", Kind.CONTACT))
    young, open_ = await post(pool, 1, reference="young"), await post(pool, 2, reference="open", delay_ms=60_000)
    await station.record(await claimed_when_due(station), Rejected("EC_7", Kind.CONTACT))
    assert sorted(await finalise_due(pool, QUICK)) == [old, young]
    async with pool.connection() as conn:
        await conn.execute("UPDATE batch SET settled_at = settled_at - interval '31 days' WHERE id = %s", (old,))
    report = await retain(pool, QUICK)
    assert report is not None
    assert report.pruned["group_links"] == 1
    with pytest.raises(Gone):
        await seen(pool, old)
    kept = await read_links(pool, ACCOUNT, reference=None, before_id=None, limit=5)
    assert [link.row.id for link in kept] == [open_, young]
    assert await post(pool, 1, reference="young") == young
    assert await post(pool, 0, reference="old") != old
