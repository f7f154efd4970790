"""Who asked not to be written to is not written to, and nobody pays for it."""

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
import pytest
from structlog.testing import capture_logs

from carteiro.domain.contacts import Contact
from carteiro.domain.errors import CapacityExhausted, InvalidRequest
from carteiro.domain.outcomes import Kind, NotSent, Outcome, Rejected
from carteiro.domain.suppression import Scope, Source, StopWords, Word
from carteiro.providers.infobip.codec import parse_webhook
from carteiro.services.accounts import grant_credits
from carteiro.services.audit import violations
from carteiro.services.catalog import apply_catalog
from carteiro.services.dispatch.model import Nothing
from carteiro.services.dispatch.rows import Ready
from carteiro.services.finalise import finalise_due
from carteiro.services.receive import apply_all
from carteiro.services.suppression import check, forget_lapsed, lift, read_list, suppress
from carteiro.settings import Settings
from carteiro.storage.pool import Pool
from carteiro.storage.suppression import note_words
from tests.providers.infobip.reports import delivery, inbound
from tests.support import factories
from tests.support.dispatching import Bench, FakeProvider, counts, meter, not_sent, running_bench, take, tallied
from tests.support.factories import ACCOUNT, add_account, add_batch, bm_id, caller, catalog_text, phone, value
from tests.support.posting import store_payload
from tests.support.waiting import until

FAST: dict[str, Any] = {"messages_per_second": 1_000}
WORDS = StopWords(Settings().stop_words)


async def hold_back(pool: Pool, *numbers: int, scope: Scope = Scope.ALL) -> None:
    await suppress(pool, caller(), [phone(number) for number in numbers], scope=scope)


async def add_marketing(pool: Pool, **options: Any) -> None:
    """An account that sends marketing."""
    text = catalog_text(category="MARKETING", **FAST, **options)
    await apply_catalog(pool, text.replace('category = "UTILITY"', 'category = "MARKETING"'))
    await grant_credits(pool, ACCOUNT, 1_000, cause="test", actor="test")


async def rows(pool: Pool, batch_id: UUID) -> list[tuple[int, str, str | None]]:
    async with pool.connection() as conn:
        cursor = await conn.execute(
            "SELECT seq, status, code FROM message WHERE batch_id = %s AND status = 'unsent' ORDER BY seq", (batch_id,)
        )
        return [(seq, status, code) for seq, status, code in await cursor.fetchall()]


async def unsent(pool: Pool, batch_id: UUID) -> list[int]:
    found = await rows(pool, batch_id)
    assert {(status, code) for _, status, code in found} <= {("unsent", "SUPPRESSED")}
    assert await value(pool, "SELECT suppressed FROM batch WHERE id = %s", batch_id) == len(found)
    return [seq for seq, _, _ in found]


async def send(pool: Pool, answer: Any = take) -> FakeProvider:
    async with running_bench(pool, FakeProvider(answer)) as bench:
        await bench.pump()
        return bench.provider


async def settle(pool: Pool) -> tuple[int, int, int]:
    """Deliver what was sent, and settle: (debited, charged, refunded) of the one batch."""
    async with pool.connection() as conn:
        await conn.execute(
            "UPDATE message SET status = 'delivered', event = 'delivered', delivered_at = sent_at WHERE status = 'sent'"
        )
        assert len(await finalise_due(pool, Settings())) == 1
        cursor = await conn.execute("SELECT debited, charged, refunded FROM batch")
        row = await cursor.fetchone()
    assert row is not None
    assert await violations(pool) == {}
    return row[0], row[1], row[2]


# At creation


async def test_a_suppressed_contact_is_unsent_from_the_beginning_and_never_charged(pool: Pool) -> None:
    await add_account(pool, credits=10, charge_rule="full", **FAST)
    await hold_back(pool, 1, 3)
    batch_id = await add_batch(pool, 4)
    assert await unsent(pool, batch_id) == [2, 4]
    assert await meter(pool, "bm", bm_id(1)) == (0, 2)
    provider = await send(pool)
    assert sorted(call.outgoing.seq for call in provider.calls) == [1, 3]
    assert await settle(pool) == (4, 2, 2)
    assert await value(pool, "SELECT balance FROM account") == 8


async def test_no_capacity_is_taken_for_them(pool: Pool) -> None:
    await add_account(pool, credits=10, bm_limit=2, **FAST)
    await hold_back(pool, 0)
    with pytest.raises(CapacityExhausted) as refused:
        await add_batch(pool, 4)
    assert refused.value.extra == {"available": 2, "required": 3}
    await add_batch(pool, 3)
    assert await meter(pool, "bm", bm_id(1)) == (0, 2)


async def test_one_that_cannot_be_rendered_either_is_not_subtracted_twice(pool: Pool) -> None:
    await add_account(pool, credits=10, **FAST)
    await hold_back(pool, 0, 1)
    contacts = [Contact(phone=phone(n), placeholders=["Ana"] if n in (0, 2) else ["Ana", "1"]) for n in range(4)]
    batch_id = await add_batch(pool, contacts=contacts, on_invalid="skip")
    assert await meter(pool, "bm", bm_id(1)) == (0, 1)
    provider = await send(pool)
    assert [call.outgoing.seq for call in provider.calls] == [4]
    assert await unsent(pool, batch_id) == [1, 2]
    assert await counts(pool) == {"unsent": 2, "failed": 1, "sent": 1}


async def test_a_batch_of_suppressed_contacts_only_ends_without_a_call(pool: Pool) -> None:
    await add_account(pool, credits=10, **FAST)
    await hold_back(pool, *range(5))
    batch_id = await add_batch(pool, 5)
    assert await unsent(pool, batch_id) == [1, 2, 3, 4, 5]
    assert (await send(pool)).calls == []
    assert await settle(pool) == (5, 0, 5)
    assert await value(pool, "SELECT status FROM batch") == "completed"


async def test_the_rows_of_a_large_batch_are_withdrawn_before_it_is_seen(pool: Pool) -> None:
    await add_account(pool, credits=2_000, bm_limit=2_000, **FAST)
    await hold_back(pool, *range(0, 1_500, 3))
    batch_id = await add_batch(pool, 1_500)
    assert await unsent(pool, batch_id) == list(range(1, 1_501, 3))
    assert await tallied(pool) == {"pending": 1_000, "unsent": 500}
    assert await meter(pool, "bm", bm_id(1)) == (0, 1_000)
    assert await violations(pool) == {}


@pytest.mark.parametrize("spelling", ["+5511980000000", "551180000000", "(11) 8000-0000", "011 98000-0000"])
async def test_a_contact_is_the_same_with_and_without_the_ninth_digit(pool: Pool, spelling: str) -> None:
    await add_account(pool, credits=10, **FAST)
    await suppress(pool, caller(), [spelling], scope=Scope.ALL)
    assert await unsent(pool, await add_batch(pool, 2)) == [1]


async def test_the_list_is_the_accounts_own(pool: Pool) -> None:
    await add_account(pool, credits=10, bills_to="payer", **FAST)
    await suppress(pool, caller("payer"), [phone(0)], scope=Scope.ALL)
    assert await unsent(pool, await add_batch(pool, 1)) == []
    assert not (await check(pool, ACCOUNT, phone(0))).entries
    assert await read_list(pool, ACCOUNT, scope=None, before_id=None, limit=9) == []


async def test_an_opt_out_of_marketing_lets_other_templates_through(pool: Pool) -> None:
    await add_account(pool, credits=10, **FAST)
    await hold_back(pool, 0, scope=Scope.MARKETING)
    await hold_back(pool, 1)
    assert await unsent(pool, await add_batch(pool, 3)) == [2]


async def test_both_scopes_stop_marketing(pool: Pool) -> None:
    await add_marketing(pool)
    await hold_back(pool, 0, scope=Scope.MARKETING)
    await hold_back(pool, 1)
    assert await unsent(pool, await add_batch(pool, 3)) == [1, 2]


async def test_a_cool_down_that_is_over_by_then_does_not_touch_a_scheduled_batch(pool: Pool) -> None:
    await add_marketing(pool)
    key = int(phone(0)[1:5] + phone(0)[6:])
    async with pool.connection() as conn:
        await note_words(conn, [Word(ACCOUNT, key, Scope.MARKETING, Source.COOL_DOWN)])
        await conn.execute("UPDATE suppression SET until = clock_timestamp() + interval '59 minutes'")
    assert await unsent(pool, await add_batch(pool, 1, scheduled_at=factories.in_an_hour())) == []
    assert await unsent(pool, await add_batch(pool, 2)) == [1]
    async with pool.connection() as conn:
        await conn.execute("UPDATE suppression SET until = clock_timestamp() + interval '61 minutes'")
    assert await unsent(pool, await add_batch(pool, 3, scheduled_at=factories.in_an_hour())) == [1]


# Just before dispatch


async def test_who_is_suppressed_after_creation_is_not_called(pool: Pool) -> None:
    await add_account(pool, credits=10, **FAST)
    batch_id = await add_batch(pool, 4)
    await hold_back(pool, 0, 2)
    provider = await send(pool)
    assert sorted(call.outgoing.seq for call in provider.calls) == [2, 4]
    assert await unsent(pool, batch_id) == [1, 3]
    assert await meter(pool, "bm", bm_id(1)) == (2, 0)
    events = "SELECT array_agg(DISTINCT event) FROM message_event WHERE code = 'SUPPRESSED'"
    assert await value(pool, events) == ["withdrawn"]
    assert await settle(pool) == (4, 2, 2)


async def test_marketing_only_is_looked_at_again_for_marketing_only(pool: Pool) -> None:
    await add_marketing(pool)
    batch_id = await add_batch(pool, 2)
    await hold_back(pool, 1, scope=Scope.MARKETING)
    await send(pool)
    assert await unsent(pool, batch_id) == [2]


async def test_what_was_given_back_is_looked_at_again(pool: Pool) -> None:
    await add_account(pool, credits=10, **FAST)
    batch_id = await add_batch(pool, 2)
    bench = Bench(pool, Settings(), FakeProvider())
    await bench.record(await bench.claimed(), None, NotSent("DOWN"))
    await hold_back(pool, 0, 1)
    async with pool.connection() as conn:
        await conn.execute("UPDATE message_return SET available_at = clock_timestamp()")
    assert isinstance(await bench.claim(), Nothing)
    assert await unsent(pool, batch_id) == [1, 2]
    assert await value(pool, "SELECT count(*) FROM message_return") == 0
    assert await meter(pool, "bm", bm_id(1)) == (0, 0)
    assert await settle(pool) == (2, 0, 2)


async def test_the_room_they_leave_wakes_a_batch_that_waits_for_it(pool: Pool) -> None:
    await add_account(pool, credits=10, bm_limit=2, **FAST)
    first = await add_batch(pool, 2)
    second = await add_batch(pool, 1, start=5, on_capacity="spill")
    bench = Bench(pool, Settings(), FakeProvider())
    async with pool.connection() as conn:
        await conn.execute("UPDATE batch SET turn_at = clock_timestamp() WHERE id = %s", (first,))
    assert isinstance(await bench.claim(), Nothing)
    assert await value(pool, "SELECT blocked_by FROM batch WHERE id = %s", second) == "capacity"
    await hold_back(pool, 0, 1)
    assert isinstance(await bench.claim(), Nothing)
    assert (await bench.claimed()).batch_id == second


def test_nothing_is_withdrawn_beyond_the_last_slot() -> None:
    def row(seq: int) -> Any:
        return type("Row", (), {"seq": seq})()

    listed = [row(seq) for seq in range(1, 7)]
    ready = Ready(listed, [(listed[1], None), (listed[3], None)], {5: "MISSING"}, [1, 3, 6], [], 24)  # type: ignore[list-item]
    ready.keep_first(1)
    assert ([row.seq for row in ready.rows], ready.suppressed, ready.guarded) == ([1, 2, 3], [1, 3], {})


async def test_no_call_follows_a_suppression_while_the_batch_is_being_sent(pool: Pool) -> None:
    """What was claimed by then may go: a slice of a quarter of a second at most."""
    await add_account(pool, credits=400, messages_per_second=300)
    batch_id = await add_batch(pool, 300)
    provider = FakeProvider()
    async with running_bench(pool, provider) as bench:
        pump = asyncio.create_task(bench.pump())
        await until(lambda: len(provider.calls) > 30, 10, "some calls")
        await hold_back(pool, *range(0, 300, 2))
        answered_at = await value(pool, "SELECT clock_timestamp()")
        claimed = await claimed_at(pool, batch_id)
        await pump
    held_back = await unsent(pool, batch_id)
    assert len(held_back) > 20
    assert {call.outgoing.seq for call in provider.calls}.isdisjoint(held_back)
    assert len(provider.calls) + len(held_back) == 300
    # A claim that had looked at the list before the answer was committed within this time.
    slack_s = 1.0
    for seq, at in (await claimed_at(pool, batch_id)).items():
        if seq % 2 and seq not in claimed:
            assert (at - answered_at).total_seconds() < slack_s
    assert await settle(pool) == (300, 300 - len(held_back), len(held_back))


async def claimed_at(pool: Pool, batch_id: UUID) -> dict[int, datetime]:
    async with pool.connection() as conn:
        cursor = await conn.execute(
            "SELECT seq, claimed_at FROM claim CROSS JOIN unnest(seqs) AS seq WHERE batch_id = %s", (batch_id,)
        )
        return dict(await cursor.fetchall())


# Refusals


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (Kind.CONTACT_MARKETING, ("marketing", "preference", None)),
        (Kind.BLOCKED, ("all", "blocklist", None)),
        (Kind.COOL_DOWN, ("marketing", "cool-down", 24)),
        (Kind.CONTACT, None),
        (Kind.TRANSIENT, None),
    ],
)
async def test_a_refused_call_suppresses_its_contact(
    pool: Pool, kind: Kind, expected: tuple[str, str, int | None] | None
) -> None:
    await add_marketing(pool)
    await add_batch(pool, 2)

    def refuse(outgoing: Any) -> Outcome:
        return Rejected("EC_1", kind) if outgoing.seq == 2 else take(outgoing)

    await send(pool, refuse)
    entries = (await check(pool, ACCOUNT, phone(1))).entries
    found = [(entry.scope, entry.source, hours_left(entry.until)) for entry in entries]
    assert found == ([expected] if expected else [])
    assert not (await check(pool, ACCOUNT, phone(0))).entries
    assert await unsent(pool, await add_batch(pool, 3)) == ([2] if expected else [])
    # No failure of the service.
    assert await value(pool, "SELECT failures_in_a_row FROM service_health") == 0


def hours_left(until: datetime | None) -> int | None:
    return until and round((until - datetime.now(until.tzinfo)).total_seconds() / 3600)


async def test_a_service_in_trouble_suppresses_nobody(pool: Pool) -> None:
    await add_account(pool, credits=10, **FAST)
    await add_batch(pool, 3)
    await send(pool, not_sent)
    assert await value(pool, "SELECT count(*) FROM suppression") == 0


# What the provider tells later


async def post(pool: Pool, body: bytes | dict[str, Any]) -> None:
    token = await value(pool, "SELECT webhook_token FROM service WHERE account_id = %s", ACCOUNT)
    assert await store_payload(pool, "infobip", token, body if isinstance(body, bytes) else encoded(body))
    await apply_all(pool, lambda _provider: parse_webhook, stop_words=WORDS)


def encoded(document: Any) -> bytes:
    return msgspec.json.encode(document)


def preference(status: str, at: str = "12:00", of: str = "5511980000000") -> dict[str, Any]:
    content = {"sender": "5511400010001", "from": of, "notificationMessagesStatus": status}
    return {"from": "5511400010001", "content": content, "createdAt": f"2026-11-01T{at}:00.000+0000"}


def written(text: str, of: str = "5511980000000") -> dict[str, Any]:
    return {"results": [{**inbound(type="TEXT", text=text), "from": of}]}


async def receipts(pool: Pool) -> list[tuple[str, str, str | None]]:
    async with pool.connection() as conn:
        cursor = await conn.execute("SELECT kind, result, detail FROM receipt")
        return await cursor.fetchall()


@pytest.mark.parametrize(
    ("error_id", "expected"),
    [
        (7033, [("marketing", "preference", "EC_7033")]),
        (2050, [("all", "blocklist", "EC_2050")]),
        (2052, [("all", "blocklist", "EC_2052")]),
        *((code, [("marketing", "cool-down", f"EC_{code}")]) for code in (7032, 4103, 4104, 7046, 7048)),
        (7002, []),
    ],
)
async def test_a_receipt_of_a_refusal_suppresses_its_contact(
    pool: Pool, error_id: int, expected: list[tuple[str, str, str]]
) -> None:
    await add_marketing(pool)
    batch_id = await add_batch(pool, 2)
    await send(pool)
    report = {**delivery(2, 2, 4, error_id), "messageId": f"{batch_id.hex}-2"}
    await post(pool, {"results": [report, report]})
    await post(pool, {"results": [report]})
    entries = (await check(pool, ACCOUNT, phone(1))).entries
    assert [(entry.scope, entry.source, entry.reason) for entry in entries] == expected
    assert {entry.times for entry in entries} <= {1}
    assert await value(pool, "SELECT count(*) FROM suppression") == len(expected)


@pytest.mark.parametrize("of", ["5511980000000", "551180000000"])
@pytest.mark.parametrize("text", ["PARAR", "Sair.", "pare"])
async def test_a_stop_word_suppresses_who_wrote_it(pool: Pool, text: str, of: str) -> None:
    await add_account(pool, credits=10, **FAST)
    batch_id = await add_batch(pool, 2)
    await post(pool, written(text, of))
    assert await receipts(pool) == [("inbound", "applied", None)]
    await send(pool)
    assert await unsent(pool, batch_id) == [1]


async def test_a_button_of_ours_is_a_stop_word_too(pool: Pool) -> None:
    await add_account(pool)
    pressed = {**inbound(type="BUTTON", text="Parar de receber", payload="x"), "from": "5511980000000"}
    await post(pool, {"results": [pressed]})
    assert (await check(pool, ACCOUNT, phone(0))).stops(Scope.ALL)


async def test_what_is_no_stop_word_changes_nothing_and_is_kept_nowhere_else(pool: Pool) -> None:
    await add_account(pool)
    with capture_logs() as logs:
        await post(pool, written("quero parar amanhã, obrigada"))
    assert await receipts(pool) == [("inbound", "ignored", None)]
    assert await value(pool, "SELECT count(*) FROM suppression") == 0
    assert logs == []


async def test_a_stop_word_from_a_hidden_number_stays_visible(pool: Pool) -> None:
    await add_account(pool)
    await post(pool, written("parar", "BR.90210000000000077"))
    assert await receipts(pool) == [("inbound", "orphan", "no phone of the contact")]


async def test_the_stop_words_are_the_operators(pool: Pool) -> None:
    await add_account(pool)
    token = await value(pool, "SELECT webhook_token FROM service")
    await store_payload(pool, "infobip", token, encoded(written("basta")))
    await apply_all(pool, lambda _provider: parse_webhook, stop_words=StopWords(["Basta"]))
    assert (await check(pool, ACCOUNT, phone(0))).stops(Scope.ALL)


@pytest.mark.parametrize("order", [("stop", "resume"), ("resume", "stop")])
async def test_of_two_preferences_the_later_counts_whichever_comes_first(pool: Pool, order: Sequence[str]) -> None:
    await add_account(pool)
    at = {"stop": "12:00", "resume": "12:05"}
    for status in order:
        await post(pool, preference(status, at[status]))
    assert not (await check(pool, ACCOUNT, phone(0))).entries
    await post(pool, preference("stop", "12:10"))
    checked = await check(pool, ACCOUNT, phone(0))
    assert (checked.stops(Scope.MARKETING), checked.stops(Scope.ALL)) == (True, False)


async def test_resuming_takes_back_an_opt_out_told_by_a_refusal_and_nothing_else(pool: Pool) -> None:
    await add_account(pool)
    key = int(phone(0)[1:5] + phone(0)[6:])
    async with pool.connection() as conn:
        said = datetime.fromisoformat("2026-11-01T11:00:00+00:00")
        await note_words(
            conn,
            [
                Word(ACCOUNT, key, Scope.MARKETING, Source.PREFERENCE, said, "EC_7033"),
                Word(ACCOUNT, key, Scope.MARKETING, Source.API, said),
                Word(ACCOUNT, key, Scope.ALL, Source.INBOUND, said),
            ],
        )
    await post(pool, preference("resume"))
    entries = (await check(pool, ACCOUNT, phone(0))).entries
    assert sorted(entry.source for entry in entries) == ["api", "inbound"]


async def test_words_about_many_contacts_in_payloads_at_once_do_not_lock_each_other_out(pool: Pool) -> None:
    await add_account(pool)
    token = await value(pool, "SELECT webhook_token FROM service")
    numbers = [f"55119800000{n:02}" for n in range(20)]
    for turn in range(12):
        for number in numbers if turn % 2 else reversed(numbers):
            await store_payload(pool, "infobip", token, encoded(preference("stop", of=number)))

    await asyncio.gather(*(apply_all(pool, lambda _provider: parse_webhook) for _ in range(4)))
    assert await value(pool, "SELECT count(*) FROM suppression WHERE until IS NULL") == 20
    assert await value(pool, "SELECT count(*) FROM receipt_inbox") == 0


# By clients


async def test_all_or_none_are_suppressed(pool: Pool) -> None:
    await add_account(pool)
    with pytest.raises(InvalidRequest) as refused:
        await suppress(pool, caller(), [phone(0), "12", "", phone(0)], scope=Scope.ALL)
    assert [(error.pointer, error.code) for error in refused.value.errors] == [
        ("/phones/1", "phone-too-short"),
        ("/phones/2", "phone-empty"),
    ]
    assert await value(pool, "SELECT count(*) FROM suppression") == 0


async def test_whoever_is_taken_off_the_list_is_written_to_again(pool: Pool) -> None:
    await add_account(pool, credits=10, **FAST)
    assert await suppress(pool, caller(), [phone(0), phone(0), phone(1)], scope=Scope.ALL) == 2
    assert await lift(pool, caller("rival"), [phone(0)]) == 0
    assert await lift(pool, caller(), [phone(0), phone(5)]) == 1
    assert await unsent(pool, await add_batch(pool, 2)) == [2]
    await hold_back(pool, 0)
    assert (await check(pool, ACCOUNT, phone(0))).stops(Scope.ALL)
    assert await value(pool, "SELECT count(*) FROM suppression WHERE actor = 'key:testkey00000'") == 2


async def test_ten_thousand_at_once(pool: Pool) -> None:
    await add_account(pool)
    assert await suppress(pool, caller(), [phone(n) for n in range(10_000)], scope=Scope.MARKETING) == 10_000
    assert await lift(pool, caller(), [phone(n) for n in range(10_000)], scope=Scope.MARKETING) == 10_000
    assert await forget_lapsed(pool) == 0
    async with pool.connection() as conn:
        await conn.execute("UPDATE suppression SET until = until - interval '61 days'")
    assert await forget_lapsed(pool) == 10_000
