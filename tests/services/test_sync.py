"""Provider sync: what the provider says of senders, limits and templates holds from the next claim on."""

import asyncio
import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from carteiro.domain.outcomes import Accepted, Kind, Parsed, Rejected
from carteiro.domain.standing import SenderState, Standing, TemplateState, Tier
from carteiro.providers.contract import StatesUnreadable
from carteiro.providers.registry import parser_of
from carteiro.services.audit import violations
from carteiro.services.catalog import apply_catalog, read_unlimited
from carteiro.services.dispatch.model import Slice
from carteiro.services.receive import apply_all
from carteiro.services.sync import SyncReport, note_notices, sync_now, sync_when_due
from carteiro.storage.pool import Pool, transact
from tests.support.dispatching import LIFTED, Bench, FakeProvider, counts, meter, running_bench
from tests.support.factories import (
    TEMPLATE,
    add_account,
    add_batch,
    add_catalog,
    bm_id,
    catalog_text,
    number_id,
    sender_id,
    value,
    waba_id,
)
from tests.support.posting import store_payload

FAST = {"messages_per_second": 10_000}
TAKEN = Accepted("theirs")


def bench(pool: Pool, provider: FakeProvider | None = None) -> Bench:
    built = Bench(pool, LIFTED, provider or FakeProvider())
    built.spacing.rate_per_s = 20_000.0
    return built


async def sync(station: Bench) -> SyncReport:
    return await sync_now(station.pool, station.settings, station.provider_for)


def say(station: Bench, sender: str, word: str = "CONNECTED", **more: Any) -> None:
    """What the provider says of a sender from now on."""
    known = {"CONNECTED": Standing.GOOD, "BANNED": Standing.STOPPED, "RATE_LIMITED": Standing.STOPPED}
    station.provider.senders[sender] = SenderState(sender, word, known.get(word, Standing.UNCLEAR), **more)


def say_template(station: Bench, sender: str, word: str, *, usable: bool, name: str = f"{TEMPLATE}_v1") -> None:
    station.provider.templates[sender] = [TemplateState(name, "pt_BR", word, usable, f"id of {name}")]


async def set_status(pool: Pool, sender: str, status: str) -> None:
    async with pool.connection() as conn:
        await conn.execute("UPDATE sender SET status = %s WHERE id = %s", (status, sender))


async def status(pool: Pool, sender: str) -> str:
    found: str = await value(pool, "SELECT status FROM sender WHERE id = %s", sender)
    return found


async def submission(pool: Pool, bm: str = bm_id(1)) -> str:
    found: str = await value(pool, "SELECT status FROM submission WHERE business_manager_id = %s", bm)
    return found


async def claimed_by(station: Bench) -> set[str]:
    return {row.outgoing.sender for piece in await station.claim_all() for row in piece.due}


# Senders


@pytest.mark.parametrize("word", ["BANNED", "RATE_LIMITED"])
async def test_a_stopped_sender_is_left_out_of_the_next_claim_and_comes_back(pool: Pool, word: str) -> None:
    await add_account(pool, credits=100, senders_per_bm=2, max_inflight=4, **FAST)
    await add_batch(pool, 20)
    station = bench(pool)
    one, other = sender_id(1, 1), sender_id(1, 2)
    first = await station.claimed()
    assert {row.outgoing.sender for row in first.due} == {one, other}
    say(station, one, word)
    say(station, other)
    report = await sync(station)
    assert report.changes == [f"sender {one}: status ACTIVE -> {word}"]
    await station.record_all(first, TAKEN)
    second = await station.claimed()
    assert {row.outgoing.sender for row in second.due} == {other}
    say(station, one)
    assert (await sync(station)).changes == [f"sender {one}: status {word} -> ACTIVE"]
    await station.record_all(second, TAKEN)
    assert one in {row.outgoing.sender for row in (await station.claimed()).due}


@pytest.mark.parametrize("given", ["STOPPED", "PAUSED", "BANNED"])
async def test_what_a_refusal_or_an_operator_stopped_stays_stopped(pool: Pool, given: str) -> None:
    await add_account(pool)
    sender = sender_id(1)
    station = bench(pool)
    await set_status(pool, sender, given)
    say(station, sender)
    assert (await sync(station)).changes == []
    say(station, sender, "RATE_LIMITED")
    await sync(station)
    assert await status(pool, sender) == given
    say(station, sender)
    await sync(station)
    assert await status(pool, sender) == given


async def test_a_sender_that_was_refused_after_the_sync_had_let_it_go_on_stays_stopped(pool: Pool) -> None:
    await add_account(pool, credits=100, **FAST)
    await add_batch(pool, 5)
    station = bench(pool)
    sender = sender_id(1)
    for word in ("BANNED", "CONNECTED"):
        say(station, sender, word)
        await sync(station)
    await station.record_all(await station.claimed(), Rejected("EC_7016", Kind.SENDER))
    assert await status(pool, sender) == "STOPPED"
    await sync(station)
    assert await status(pool, sender) == "STOPPED"


async def test_the_operators_switch_is_never_touched(pool: Pool) -> None:
    await add_account(pool, bms=2)
    async with pool.connection() as conn:
        await conn.execute("UPDATE sender SET active = false WHERE id = %s", (sender_id(1),))
    station = bench(pool)
    for sender in (sender_id(1), sender_id(2)):
        say(station, sender, "BANNED")
    await sync(station)
    assert await value(pool, "SELECT active FROM sender WHERE id = %s", sender_id(1)) is False
    assert await value(pool, "SELECT active FROM sender WHERE id = %s", sender_id(2)) is True
    assert await status(pool, sender_id(1)) == "ACTIVE", "one that is out of use is not asked about"


async def test_an_unclear_word_changes_nothing_but_is_kept(pool: Pool) -> None:
    await add_account(pool)
    station = bench(pool)
    sender = sender_id(1)
    say(station, sender, "BANNED")
    await sync(station)
    say(station, sender, "PENDING")
    assert (await sync(station)).changes == []
    assert await status(pool, sender) == "BANNED"
    assert await value(pool, "SELECT provider_status FROM sender") == "PENDING"
    say(station, sender)
    await sync(station)
    assert await status(pool, sender) == "ACTIVE"


async def test_quality_is_taken_over_where_it_is_said(pool: Pool) -> None:
    await add_account(pool)
    station = bench(pool)
    say(station, sender_id(1), quality="LOW")
    await sync(station)
    say(station, sender_id(1), quality=None)
    assert (await sync(station)).changes == []
    assert await value(pool, "SELECT quality FROM sender") == "LOW"


async def test_a_sender_of_which_nothing_is_said_stays_as_it_is(pool: Pool) -> None:
    await add_account(pool, senders_per_bm=2)
    station = bench(pool)
    say(station, sender_id(1, 1), "BANNED")
    report = await sync(station)
    assert f"sender {sender_id(1, 2)}" in report.unlisted
    assert await status(pool, sender_id(1, 2)) == "ACTIVE"


# Limits


K2, ENDLESS, ODD = Tier("LIMIT_2K", 2_000), Tier("UNLIMITED", None), Tier("LIMIT_HUGE", None, known=False)


async def limit(pool: Pool) -> tuple[int | None, str | None]:
    async with pool.connection() as conn:
        row = await (await conn.execute("SELECT daily_limit_synced, limit_note FROM business_manager")).fetchone()
    assert row is not None
    return row


async def test_a_limit_is_taken_over_and_odd_words_are_kept_and_flagged(pool: Pool) -> None:
    await add_account(pool, bm_limit=None)
    station = bench(pool)
    assert await read_unlimited(pool) == [(bm_id(1), "the provider was never asked")]
    said: Iterable[tuple[Tier | None, tuple[int | None, str | None], str | None]] = [
        (None, (None, None), "the provider does not say"),
        (ODD, (None, "LIMIT_HUGE"), "the provider names no number"),
        (K2, (2_000, None), None),
        (ODD, (2_000, "LIMIT_HUGE"), "the provider's word is not understood: the limit known before counts"),
        (None, (2_000, "LIMIT_HUGE"), "the provider's word is not understood: the limit known before counts"),
        (K2, (2_000, None), None),
        (ENDLESS, (None, "UNLIMITED"), "the provider names no number"),
    ]
    for tier, expected, flagged in said:
        say(station, sender_id(1), tier=tier)
        await sync(station)
        assert await limit(pool) == expected, tier
        assert await read_unlimited(pool) == ([(bm_id(1), flagged)] if flagged else []), tier


async def test_the_operators_limit_wins_and_takes_the_flag_away(pool: Pool) -> None:
    await add_account(pool, bm_limit=50)
    station = bench(pool)
    say(station, sender_id(1), tier=ENDLESS)
    await sync(station)
    assert await read_unlimited(pool) == []
    say(station, sender_id(1), tier=K2)
    assert (await sync(station)).changes == [f"business manager {bm_id(1)}: limit none -> 2000; the operator's counts"]


async def test_the_smallest_limit_said_of_a_portfolios_senders_counts(pool: Pool) -> None:
    await add_account(pool, bm_limit=None, senders_per_bm=3)
    station = bench(pool)
    for place, tier in enumerate((Tier("LIMIT_10K", 10_000), K2, ENDLESS), start=1):
        say(station, sender_id(1, place), tier=tier)
    await sync(station)
    assert await limit(pool) == (2_000, None)


async def holds(pool: Pool, batch_id: UUID) -> int:
    found: int = await value(
        pool, "SELECT coalesce(sum(held), 0)::int FROM capacity_hold WHERE batch_id = %s", batch_id
    )
    return found


async def test_a_lowered_limit_cuts_holds_of_the_newest_batch_first(pool: Pool) -> None:
    await add_account(pool, credits=1_000, bm_limit=None, max_inflight=10, **FAST)
    station = bench(pool)
    say(station, sender_id(1), tier=K2)
    await sync(station)
    old, middle, new = [await add_batch(pool, 40, start=at) for at in (0, 100, 200)]
    piece = await station.claimed()
    assert piece.batch_id == old
    assert await meter(pool, "bm", bm_id(1)) == (10, 110)
    say(station, sender_id(1), tier=Tier("LIMIT_60", 60))
    report = await sync(station)
    assert report.changes == [
        f"business manager {bm_id(1)}: limit 2000 -> 60",
        f"business manager {bm_id(1)}: 60 units no longer held",
    ]
    assert await meter(pool, "bm", bm_id(1)) == (10, 50)
    assert [await holds(pool, batch_id) for batch_id in (old, middle, new)] == [30, 20, 0]
    await station.record_all(piece, TAKEN)
    await station.work_off(TAKEN)
    assert await counts(pool, old) == {"sent": 40}
    assert await counts(pool, middle) == {"sent": 20, "pending": 20}
    assert await counts(pool, new) == {"pending": 40}
    assert await meter(pool, "bm", bm_id(1)) == (60, 0)
    assert await value(pool, "SELECT array_agg(DISTINCT blocked_by) FROM batch WHERE id <> %s", old) == ["capacity"]
    assert await violations(pool) == {}

    say(station, sender_id(1), tier=K2)
    await sync(station)
    assert await value(pool, "SELECT count(*) FROM batch WHERE next_attempt_at IS NOT NULL") == 0, "they are woken"
    await station.work_off(TAKEN)
    assert await counts(pool) == {"sent": 120}
    assert await violations(pool) == {}


async def test_a_limit_below_what_was_sent_takes_every_hold(pool: Pool) -> None:
    await add_account(pool, credits=100, bm_limit=None, max_inflight=10, **FAST)
    station = bench(pool)
    say(station, sender_id(1), tier=K2)
    await sync(station)
    await add_batch(pool, 30)
    await station.claimed()
    say(station, sender_id(1), tier=Tier("LIMIT_5", 5))
    await sync(station)
    assert await meter(pool, "bm", bm_id(1)) == (10, 0)


async def test_the_catalog_cuts_holds_too_when_it_lowers_a_limit(pool: Pool) -> None:
    await add_account(pool, credits=100, bm_limit=100, **FAST)
    old, new = await add_batch(pool, 30), await add_batch(pool, 30, start=100)
    await apply_catalog(pool, catalog_text(bm_limit=40, **FAST))
    assert [await holds(pool, batch_id) for batch_id in (old, new)] == [30, 10]
    assert await meter(pool, "bm", bm_id(1)) == (0, 40)
    assert await violations(pool) == {}


async def test_limits_fall_and_rise_while_batches_run_and_never_is_more_sent(pool: Pool) -> None:
    """Whatever the limit is at a claim, no more is used; holds always fit it after a sync."""
    await add_account(pool, credits=1_000, bms=2, bm_limit=None, **FAST)
    provider = FakeProvider()
    for bm in (1, 2):
        provider.senders[sender_id(bm)] = SenderState(sender_id(bm), "CONNECTED", Standing.GOOD, tier=K2)
    async with running_bench(pool, provider, max_calls_in_flight=64) as station:
        await sync(station)
        batches = [await add_batch(pool, 100, start=100 * at) for at in range(4)]
        pumps = asyncio.gather(*(station.pump() for _ in range(4)))
        for cap in (90, 250, 60, 300, 120):
            tier = Tier(f"LIMIT_{cap}", cap)
            for bm in (1, 2):
                before = await meter(pool, "bm", bm_id(bm))
                provider.senders[sender_id(bm)] = replace(provider.senders[sender_id(bm)], tier=tier)
                assert before[0] <= 300
            await sync(station)
            for bm in (1, 2):
                used, held = await meter(pool, "bm", bm_id(bm))
                assert held == 0 or used + held <= cap
        await pumps
        for bm in (1, 2):
            provider.senders[sender_id(bm)] = replace(provider.senders[sender_id(bm)], tier=K2)
        await sync(station)
        while await value(pool, "SELECT sum(pending)::int FROM batch_tally"):
            await station.pump()
    assert provider.most_calls_for_one_message == 1
    assert await counts(pool) == {"sent": 400}
    assert len(batches) == 4
    assert await violations(pool) == {}


# Templates


async def test_a_paused_template_is_not_claimed_and_goes_on_when_reinstated(pool: Pool) -> None:
    await add_account(pool, credits=100, bms=2, max_inflight=4, **FAST)
    await add_batch(pool, 20)
    station = bench(pool)
    say(station, sender_id(1))
    say(station, sender_id(2))
    say_template(station, sender_id(2), "APPROVED", usable=True, name=f"{TEMPLATE}_v2")
    say_template(station, sender_id(1), "FIRST_PAUSED", usable=False)
    report = await sync(station)
    assert report.changes == [f"template {TEMPLATE}_v1 pt_BR of {bm_id(1)}: APPROVED -> FIRST_PAUSED"]
    piece = await station.claimed()
    assert {row.outgoing.sender for row in piece.due} == {sender_id(2)}
    await station.record_all(piece, TAKEN)
    say_template(station, sender_id(1), "REINSTATED", usable=True)
    await sync(station)
    assert await submission(pool) == "APPROVED"
    assert await value(pool, "SELECT provider_status FROM submission WHERE business_manager_id = %s", bm_id(1)) == (
        "REINSTATED"
    )
    assert sender_id(1) in {row.outgoing.sender for row in (await station.claimed()).due}


async def test_a_template_that_was_refused_stays_stopped(pool: Pool) -> None:
    await add_account(pool, credits=10)
    await add_batch(pool, 3)
    station = bench(pool)
    await station.record_all(await station.claimed(), Rejected("EC_7009", Kind.TEMPLATE))
    say(station, sender_id(1))
    say_template(station, sender_id(1), "APPROVED", usable=True)
    await sync(station)
    assert await submission(pool) == "STOPPED"
    await apply_catalog(pool, catalog_text())
    assert await submission(pool) == "APPROVED", "the operator takes it back"


async def test_what_was_submitted_becomes_usable_when_it_is_approved(pool: Pool) -> None:
    await add_account(pool, approved_bms=0)
    assert await submission(pool) == "PENDING"
    station = bench(pool)
    say(station, sender_id(1))
    say_template(station, sender_id(1), "APPROVED", usable=True)
    await sync(station)
    assert await submission(pool) == "APPROVED"


async def test_a_catalog_without_a_status_leaves_what_was_read(pool: Pool) -> None:
    text = catalog_text().replace('status = "APPROVED"\n', "")
    await apply_catalog(pool, text)
    assert await submission(pool) == "PENDING"
    station = bench(pool)
    say(station, sender_id(1))
    say_template(station, sender_id(1), "APPROVED", usable=True)
    await sync(station)
    assert await apply_catalog(pool, text) == []
    assert await submission(pool) == "APPROVED"


async def test_a_template_that_is_not_listed_stays_as_it_is_and_is_reported(pool: Pool) -> None:
    await add_account(pool)
    station = bench(pool)
    say(station, sender_id(1))
    report = await sync(station)
    assert report.unlisted == [f"template {TEMPLATE}_v1 pt_BR of {bm_id(1)}"]
    assert await submission(pool) == "APPROVED"


async def test_a_batch_whose_only_template_is_paused_before_it_began_ends_in_error(pool: Pool) -> None:
    await add_account(pool, credits=10)
    await add_batch(pool, 3)
    station = bench(pool)
    say(station, sender_id(1))
    say_template(station, sender_id(1), "DISABLED", usable=False)
    await sync(station)
    await station.claim_all()
    assert await value(pool, "SELECT status || ' ' || error_code FROM batch") == "error NO_ACTIVE_SENDERS"


# Providers that do not answer, and whose turn it is


async def test_without_an_answer_nothing_changes(pool: Pool) -> None:
    await add_account(pool, bm_limit=None)
    station = bench(pool)
    say(station, sender_id(1), tier=K2)
    await sync(station)
    station.provider.states_readable = False
    say(station, sender_id(1), "BANNED", tier=Tier("LIMIT_250", 250))
    report = await sync(station)
    assert report.unanswered == ["service acme-utility: told to be away"]
    assert report.changes == []
    assert await status(pool, sender_id(1)) == "ACTIVE"
    assert await limit(pool) == (2_000, None)


async def test_a_service_without_its_key_does_not_hold_up_the_others(pool: Pool) -> None:
    text = catalog_text(senders_per_bm=2)
    other = text.split("[[service]]")[1].split("[[")[0]
    other = other.replace('id = "acme-utility"', 'id = "acme-first"').replace("INFOBIP_KEY", "OTHER_KEY")
    await apply_catalog(pool, f"{text}\n[[service]]{other}")
    station = bench(pool)
    say(station, sender_id(1), "BANNED")

    async def provider_for(service_id: str) -> FakeProvider:
        if service_id == "acme-first":
            raise LookupError("OTHER_KEY is not set")
        return station.provider

    report = await sync_now(pool, station.settings, provider_for)
    assert report.unanswered == ["service acme-first: OTHER_KEY is not set"]
    assert await status(pool, sender_id(1)) == "BANNED"


async def test_the_templates_of_a_manager_are_read_through_another_sender_when_one_is_not_answered(pool: Pool) -> None:
    await add_catalog(pool, senders_per_bm=2)
    station = bench(pool)
    say(station, sender_id(1, 1))
    say(station, sender_id(1, 2))
    say_template(station, sender_id(1, 2), "DISABLED", usable=False)
    asked: list[str] = []

    async def read_templates(sender: str) -> list[TemplateState]:
        asked.append(sender)
        if sender == sender_id(1, 1):
            raise StatesUnreadable("HTTP 404")
        return list(station.provider.templates[sender])

    station.provider.read_templates = read_templates  # type: ignore[method-assign]
    assert (await sync(station)).unanswered == []
    assert asked == [sender_id(1, 1), sender_id(1, 2)]
    assert await submission(pool) == "DISABLED"


async def test_one_syncs_and_it_rests_until_it_is_due(pool: Pool) -> None:
    await add_account(pool)
    station = bench(pool)
    say(station, sender_id(1))
    say_template(station, sender_id(1), "APPROVED", usable=True)

    async def due(holder: str = "w1", every_s: float = 900.0) -> bool:
        settings = replace(station.settings, sync_every_s=every_s)
        return await sync_when_due(pool, settings, station.provider_for, holder) is not None

    async def rest_s() -> float:
        left: float = await value(
            pool, "SELECT extract(epoch FROM until - clock_timestamp())::float FROM lead WHERE name = 'sync'"
        )
        return left

    assert sorted(await asyncio.gather(*(due(f"w{number}") for number in range(4)))) == [False, False, False, True]
    assert 800 < await rest_s() <= 900
    async with pool.connection() as conn:
        await conn.execute("UPDATE lead SET until = clock_timestamp() WHERE name = 'sync'")
    station.provider.states_readable = False
    assert await due("w2")
    assert await rest_s() <= 300, "a provider that did not answer is asked again earlier"
    assert not await due("w3")


async def test_syncs_of_several_at_once_and_catalogs_applied_meanwhile_do_not_block_each_other(pool: Pool) -> None:
    await add_account(pool, credits=1_000, bms=3, senders_per_bm=2, bm_limit=500, **FAST)
    await add_batch(pool, 300)
    provider = FakeProvider()
    async with running_bench(pool, provider) as station:
        for bm in (1, 2, 3):
            for place in (1, 2):
                say(station, sender_id(bm, place), tier=K2, quality="HIGH")
            say_template(station, sender_id(bm, 1), "APPROVED", usable=True, name=f"{TEMPLATE}_v{bm}")

        async def apply(bm_limit: int) -> None:
            await apply_catalog(pool, catalog_text(bms=3, senders_per_bm=2, bm_limit=bm_limit, **FAST))

        async with asyncio.timeout(60):
            await asyncio.gather(
                station.pump(), *(sync(station) for _ in range(5)), *(apply(300 + at) for at in range(5))
            )
            while await value(pool, "SELECT sum(pending)::int FROM batch_tally"):
                await station.pump()
    assert await counts(pool) == {"sent": 300}
    assert await violations(pool) == {}


# Webhooks


async def notice(pool: Pool, account: str = "acme", **fields: Any) -> None:
    at = await value(pool, "SELECT clock_timestamp()")
    told: dict[str, Any] = {
        "name": f"{TEMPLATE}_v1",
        "language": "pt_BR",
        "word": "DISABLED",
        "usable": False,
        "at": at,
    }
    async with transact(pool) as conn:
        await note_notices(conn, account, [TemplateState(**{**told, **fields})])


async def is_due(pool: Pool) -> bool:
    found: bool = await value(pool, "SELECT NOT EXISTS (SELECT FROM lead WHERE name = 'sync')")
    return found


async def rest(pool: Pool) -> None:
    async with pool.connection() as conn:
        await conn.execute("INSERT INTO lead VALUES ('sync', 'w1', clock_timestamp() + interval '1 hour')")


async def test_a_notice_of_the_only_template_of_its_name_is_applied(pool: Pool) -> None:
    await add_catalog(pool, bms=2)
    await rest(pool)
    await notice(pool)
    assert (await submission(pool, bm_id(1)), await submission(pool, bm_id(2))) == ("DISABLED", "APPROVED")
    assert not await is_due(pool)


async def test_a_notice_is_matched_by_the_providers_id_and_otherwise_the_provider_is_asked(pool: Pool) -> None:
    await apply_catalog(pool, catalog_text(bms=2).replace("_v2", "_v1"))
    await rest(pool)
    await notice(pool)
    assert await submission(pool, bm_id(1)) == await submission(pool, bm_id(2)) == "APPROVED"
    assert await is_due(pool), "whose it is cannot be told"
    async with pool.connection() as conn:
        await conn.execute("UPDATE submission SET provider_template_id = 'id of ' || business_manager_id")
    await rest(pool)
    await notice(pool, id=f"id of {bm_id(2)}")
    assert (await submission(pool, bm_id(1)), await submission(pool, bm_id(2))) == ("APPROVED", "DISABLED")
    assert not await is_due(pool)
    await notice(pool, id="of somebody else")
    assert await is_due(pool)


async def test_notices_of_one_template_commute(pool: Pool) -> None:
    await add_catalog(pool)
    earlier = await value(pool, "SELECT clock_timestamp()")
    await notice(pool, word="FIRST_PAUSED")
    await notice(pool, word="APPROVED", usable=True, at=earlier)
    assert await submission(pool) == "FIRST_PAUSED"


async def test_a_notice_to_another_account_changes_nothing(pool: Pool) -> None:
    await add_catalog(pool)
    await notice(pool, account="rival")
    assert await submission(pool) == "APPROVED"


async def test_a_webhook_stops_a_template(pool: Pool) -> None:
    await add_catalog(pool)
    body = {
        "messageTemplateId": "9001",
        "messageTemplateName": f"{TEMPLATE}_v1",
        "messageTemplateLanguage": "pt_BR",
        "timestamp": "2026-12-01T12:00:00.000+0000",
        "change": {"type": "TEMPLATE_STATUS_UPDATE", "newStatus": "SECOND_PAUSED", "reason": "NONE"},
    }
    token = await value(pool, "SELECT webhook_token FROM service")
    assert await store_payload(pool, "infobip", token, json.dumps(body).encode())
    assert await store_payload(pool, "infobip", token, json.dumps({**body, "messageTemplateName": "\0"}).encode())
    assert await apply_all(pool, parser_of) == 2
    assert await submission(pool) == "SECOND_PAUSED"
    assert await value(pool, "SELECT array_agg(result || ' ' || kind ORDER BY payload_id) FROM receipt") == [
        "applied template",
        "ignored item",
    ]


async def test_a_word_from_the_future_does_not_count_for_ever(pool: Pool) -> None:
    await add_catalog(pool)
    await notice(pool, at=await value(pool, "SELECT clock_timestamp() + interval '10 years'"))
    await notice(pool, word="APPROVED", usable=True)
    assert await submission(pool) == "APPROVED"


async def test_a_notice_that_comes_during_a_sync_is_followed_by_another(pool: Pool) -> None:
    await apply_catalog(pool, catalog_text(bms=2).replace("_v2", "_v1"))
    station = bench(pool)
    say(station, sender_id(1))

    async def provider_for(_service_id: str) -> FakeProvider:
        await notice(pool)
        return station.provider

    assert await sync_when_due(pool, replace(station.settings, sync_every_s=900.0), provider_for, "w1") is not None
    assert await is_due(pool)


# Waking


async def test_a_batch_without_a_usable_sender_goes_on_as_soon_as_there_is_one_again(pool: Pool) -> None:
    """Whatever brings it: a sync, a webhook's notice, the catalog."""
    await add_account(pool, credits=100, max_inflight=1, **FAST)
    batch_id = await add_batch(pool, 10)
    station, sender = bench(pool), sender_id(1)
    await station.record_all(await station.claimed(), TAKEN)

    async def blocked() -> tuple[str | None, bool]:
        claimed = await station.claim()
        assert not isinstance(claimed, Slice)
        found: tuple[str | None, bool] = (
            await value(pool, "SELECT blocked_by FROM batch WHERE id = %s", batch_id),
            await value(pool, "SELECT next_attempt_at > clock_timestamp() FROM batch WHERE id = %s", batch_id),
        )
        return found

    async def goes_on() -> None:
        assert await value(pool, "SELECT next_attempt_at IS NULL FROM batch WHERE id = %s", batch_id)
        await station.record_all(await station.claimed(), TAKEN)

    say(station, sender, "BANNED")
    await sync(station)
    assert await blocked() == ("no_active_senders", True)
    say(station, sender)
    await sync(station)
    await goes_on()

    await notice(pool)
    assert await blocked() == ("no_active_senders", True)
    token = await value(pool, "SELECT webhook_token FROM service")
    await store_payload(pool, "infobip", token, b"an approval")
    at = await value(pool, "SELECT clock_timestamp()")
    approval = TemplateState(f"{TEMPLATE}_v1", "pt_BR", "APPROVED", True, at=at)
    await apply_all(pool, lambda _: lambda _: Parsed(templates=(approval,)))
    await goes_on()

    await set_status(pool, sender, "STOPPED")
    assert await blocked() == ("no_active_senders", True)
    text = catalog_text(max_inflight=1, **FAST)
    await apply_catalog(pool, text.replace("[[sender]]\n", '[[sender]]\nstatus = "ACTIVE"\n'))
    await goes_on()


# A provider with names of its own for senders and accounts


async def test_senders_and_accounts_are_asked_about_by_the_providers_names(pool: Pool) -> None:
    await add_account(pool, bms=2, senders_per_bm=2, bm_limit=None, provider="meta")
    station = bench(pool)
    low, banned = sender_id(1, 1), sender_id(2, 1)
    say(station, number_id(low), quality="LOW", tier=Tier("TIER_2K", 2_000))
    say(station, number_id(banned), "BANNED")
    say_template(station, waba_id(bm_id(1)), "PAUSED", usable=False)
    report = await sync(station)
    assert report.changes == [
        f"business manager {bm_id(1)}: limit none -> 2000",
        f"sender {low}: quality UNKNOWN -> LOW",
        f"template {TEMPLATE}_v1 pt_BR of {bm_id(1)}: APPROVED -> PAUSED",
        f"sender {banned}: status ACTIVE -> BANNED",
    ]
    assert report.unlisted == [
        f"sender {sender_id(1, 2)}",
        f"sender {sender_id(2, 2)}",
        f"template {TEMPLATE}_v2 pt_BR of {bm_id(2)}",
    ]


async def test_senders_of_one_provider_are_not_asked_about_at_another(pool: Pool) -> None:
    await add_account(pool, provider="meta")
    async with transact(pool) as conn:
        await conn.execute("UPDATE service SET provider = 'infobip'")
    station = bench(pool)
    assert await sync(station) == SyncReport()
