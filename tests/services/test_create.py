"""Creating batches: what is taken, what is refused, what is replayed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta, timezone

import pytest
from psycopg import Rollback

from carteiro.domain.contacts import Contact
from carteiro.domain.errors import (
    CapacityExhausted,
    Conflict,
    Forbidden,
    IdempotencyKeyReused,
    InsufficientCredits,
    InvalidRequest,
    Unavailable,
)
from carteiro.domain.requests import TemplateName
from carteiro.services.catalog import apply_catalog
from carteiro.services.create import Creation, Key, create_batch, place
from carteiro.services.create.refusals import TemplateNotApproved, UnknownTemplate
from carteiro.settings import Settings
from carteiro.storage.pool import Connection, Pool, transact
from tests.support import factories
from tests.support.factories import add_account, batch_request, bm_id, caller, value
from tests.support.waiting import until

SETTINGS = Settings()


async def create(pool: Pool, *args: object, key: Key | None = None, **fields: object) -> Creation:
    return await create_batch(pool, SETTINGS, caller(), batch_request(*args, **fields), key=key)  # type: ignore[arg-type]


async def count(pool: Pool, table: str) -> int:
    return int(await value(pool, f"SELECT count(*) FROM {table}"))


async def assert_nothing_was_taken(pool: Pool, balance: int) -> None:
    for table in ("batch", "message", "message_content", "batch_tally", "batch_signature", "idempotency_key"):
        assert await count(pool, table) == 0, table
    assert await value(pool, "SELECT balance FROM account") == balance
    assert await count(pool, "ledger_entry") == (1 if balance else 0)
    assert await value(pool, "SELECT coalesce(sum(held), 0) FROM capacity_hold") == 0
    assert await value(pool, "SELECT coalesce(sum(held), 0) FROM capacity_meter") == 0
    assert await count(pool, "procrastinate_jobs") == 0


@pytest.mark.parametrize("n", [3, 1_001], ids=["in one transaction", "loaded before"])
async def test_an_accepted_batch_has_rows_money_capacity_and_a_pump(pool: Pool, n: int) -> None:
    await add_account(pool, credits=2_000, bms=2, bm_limit=1_000)
    created = await create(pool, n, reference="orders")

    assert not created.replayed
    assert await value(pool, "SELECT (status, event, total, debited, reference)::text FROM batch") == (
        f"(pending,opened,{n},{n},orders)"
    )
    assert await value(pool, "SELECT array_agg(seq ORDER BY seq) FROM message") == list(range(1, n + 1))
    assert await value(pool, "SELECT sum(pending) FROM batch_tally") == n
    assert await value(pool, "SELECT address FROM message_content WHERE seq = 1") == factories.phone(0)[1:]
    assert await value(pool, "SELECT placeholders FROM message_content WHERE seq = 2") == ["Ana", "1"]
    assert await value(pool, "SELECT balance FROM account") == 2_000 - n
    assert await value(
        pool, "SELECT (kind, amount, balance_after, actor)::text FROM ledger_entry ORDER BY id DESC"
    ) == (f"(debit,-{n},{2_000 - n},key:testkey00000)")
    assert await value(pool, "SELECT sum(held) FROM capacity_hold WHERE batch_id = %s", created.batch_id) == n
    assert await value(pool, "SELECT sum(held) FROM capacity_meter") == n
    assert await value(pool, "SELECT array_agg(args->>'service_id') FROM procrastinate_jobs") == [factories.SERVICE]
    assert await value(pool, "SELECT array_agg(DISTINCT actor) FROM batch_event") == ["key:testkey00000"]


async def test_the_template_is_frozen_into_the_batch(pool: Pool) -> None:
    await add_account(pool, credits=10)
    await create(pool)
    await apply_catalog(pool, factories.catalog_text(body="Outra coisa {{1}} {{2}}."))
    assert await value(pool, "SELECT template_content->>'body' FROM batch") == factories.BODY
    assert await value(pool, "SELECT b.template_signature <> t.signature FROM batch b, template t")


async def test_text_arrives_as_it_was_written(pool: Pool) -> None:
    await add_account(pool, credits=10)
    odd = ['a "quoted", \\back\\slash {x}', "tab\tline\nreturn\r é 😀 NULL"]
    request = batch_request(contacts=[Contact(phone=factories.phone(1), placeholders=odd, filename='a\\"b\n.pdf')])
    await create_batch(pool, SETTINGS, caller(), request)
    assert await value(pool, "SELECT placeholders FROM message_content") == odd
    assert await value(pool, "SELECT extra FROM message_content") == {"filename": 'a\\"b\n.pdf'}


async def test_equal_phones_are_one_message_and_the_first_is_kept(pool: Pool) -> None:
    await add_account(pool, credits=10)
    rows = [
        Contact(phone="+55 11 98000-0001", placeholders=["Ana", "1"]),
        Contact(phone="551180000001", placeholders=["Rui", "2"]),
        Contact(phone="11980000002", placeholders=["Eva", "3"]),
    ]
    await create_batch(pool, SETTINGS, caller(), batch_request(contacts=rows))
    assert await value(pool, "SELECT total FROM batch") == 2
    assert await value(pool, "SELECT array_agg(placeholders[1] ORDER BY seq) FROM message_content") == ["Ana", "Eva"]
    assert await value(pool, "SELECT skipped->'counts' FROM batch") == {"duplicate": 1}
    assert await value(pool, "SELECT balance FROM account") == 8


async def test_exactly_at_the_limit_is_accepted_and_one_above_is_refused_with_what_there_is(pool: Pool) -> None:
    await add_account(pool, credits=2_000, bms=10, sender_limit=10, bm_limit=None)
    with pytest.raises(CapacityExhausted) as refused:
        await create(pool, 101)
    assert refused.value.extra == {"available": 100, "required": 101}
    await assert_nothing_was_taken(pool, 2_000)
    await create(pool, 100)
    assert await value(pool, "SELECT array_agg(held) FROM capacity_hold") == [10] * 10


async def test_a_large_batch_above_the_capacity_is_refused_and_leaves_nothing(pool: Pool) -> None:
    await add_account(pool, credits=2_000, bms=10, bm_limit=100)
    with pytest.raises(CapacityExhausted) as refused:
        await create(pool, 1_200)
    assert refused.value.extra == {"available": 1_000, "required": 1_200}
    await assert_nothing_was_taken(pool, 2_000)


async def test_spill_is_accepted_and_holds_what_there_is(pool: Pool) -> None:
    await add_account(pool, credits=2_000, bms=10, bm_limit=100)
    await create(pool, 1_200, on_capacity="spill")
    assert await value(pool, "SELECT sum(held) FROM capacity_hold") == 1_000
    assert await value(pool, "SELECT balance FROM account") == 800


async def test_of_two_batches_at_once_the_second_is_refused_when_both_do_not_fit(pool: Pool) -> None:
    await add_account(pool, credits=2_000, bms=10, bm_limit=100)
    results = await asyncio.gather(create(pool, 600), create(pool, 600, start=1_000), return_exceptions=True)
    refused = [result for result in results if isinstance(result, CapacityExhausted)]
    assert [type(result).__name__ for result in results].count("Creation") == 1
    assert [problem.extra for problem in refused] == [{"available": 400, "required": 600}]
    assert await value(pool, "SELECT sum(held) FROM capacity_meter") == 600


async def test_only_business_managers_with_an_approved_equal_copy_count(pool: Pool) -> None:
    await add_account(pool, credits=2_000, bms=10, bm_limit=100, approved_bms=1)
    with pytest.raises(CapacityExhausted) as refused:
        await create(pool, 101)
    assert refused.value.extra["available"] == 100
    await create(pool, 100)
    assert await value(pool, "SELECT array_agg(business_manager_id) FROM capacity_hold") == [bm_id(1)]


async def test_a_copy_of_another_structure_is_no_copy(pool: Pool) -> None:
    text = factories.catalog_text() + '\nbody = "Outro {{1}}."\n'
    await apply_catalog(pool, text)
    with pytest.raises(TemplateNotApproved):
        await create(pool)


async def test_a_batch_is_on_disk_when_it_is_answered_whether_or_not_a_pump_had_to_be_asked_for(pool: Pool) -> None:
    await add_account(pool, credits=100)
    for number in range(4):  # the log is written to disk five times a second anyway
        for replayed in (False, True):
            written = await value(pool, "SELECT pg_current_wal_insert_lsn()::text")
            created = await create(pool, 5, start=5 * number, key=Key(f"key {number}", b"") if number % 2 else None)
            assert created.replayed == replayed
            assert await value(pool, "SELECT pg_current_wal_flush_lsn() > %s::pg_lsn", written), number
    assert await count(pool, "procrastinate_jobs") == 1


@pytest.mark.parametrize("test_mode", [False, True])
async def test_a_batch_that_a_crash_took_back_before_it_was_on_disk_is_not_answered(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, test_mode: bool
) -> None:
    @asynccontextmanager
    async def transact_in_vain(pool: Pool) -> AsyncIterator[Connection]:
        async with transact(pool) as conn:
            yield conn
            raise Rollback  # as if it had been committed, and Postgres had started again without it

    await add_account(pool, credits=10, test_mode=test_mode)
    monkeypatch.setattr(place, "transact", transact_in_vain)
    with pytest.raises(Unavailable, match="lost the batch"):
        await create(pool, 5)
    monkeypatch.undo()
    assert not (await create(pool, 5)).replayed


async def test_a_scheduled_batch_pays_at_once_and_holds_nothing(pool: Pool) -> None:
    await add_account(pool, credits=10, bm_limit=1)
    await create(pool, 5, scheduled_at=factories.in_an_hour())
    assert await value(pool, "SELECT balance FROM account") == 5
    assert await count(pool, "capacity_hold") == 0


async def test_a_service_in_test_mode_waits_for_moderation_and_holds_nothing(pool: Pool) -> None:
    await add_account(pool, credits=10, bm_limit=1, test_mode=True)
    await create(pool, 5)
    assert await value(pool, "SELECT status FROM batch") == "pending_moderation"
    assert await count(pool, "capacity_hold") == 0
    assert await count(pool, "procrastinate_jobs") == 0


async def test_contacts_that_cannot_be_rendered_are_accepted_by_skip_without_capacity(pool: Pool) -> None:
    await add_account(pool, credits=10, bm_limit=2)
    rows = [*factories.contacts(2), Contact(phone=factories.phone(7)), Contact(phone="nobody", placeholders=["a", "b"])]
    await create_batch(pool, SETTINGS, caller(), batch_request(contacts=rows, on_invalid="skip"))
    assert await value(pool, "SELECT total FROM batch") == 3
    assert await value(pool, "SELECT sum(held) FROM capacity_hold") == 2
    assert await value(pool, "SELECT balance FROM account") == 7
    assert await value(pool, "SELECT skipped->'counts' FROM batch") == {"phone-malformed": 1}


async def test_too_few_credits_are_refused_with_the_balance(pool: Pool) -> None:
    await add_account(pool, credits=4)
    with pytest.raises(InsufficientCredits) as refused:
        await create(pool, 5)
    assert refused.value.extra == {"balance": 4, "required": 5}
    await assert_nothing_was_taken(pool, 4)


async def test_parallel_batches_spend_exactly_the_credits_that_there_are(pool: Pool) -> None:
    await add_account(pool, credits=10)
    results = await asyncio.gather(*(create(pool, 1, start=number) for number in range(50)), return_exceptions=True)
    assert sum(isinstance(result, Creation) for result in results) == 10
    assert sum(isinstance(result, InsufficientCredits) for result in results) == 40
    assert await value(pool, "SELECT balance FROM account") == 0
    assert await count(pool, "batch") == 10
    assert await value(pool, "SELECT sum(held) FROM capacity_meter") == 10


async def test_services_that_share_a_billing_account_cannot_overdraw_it(pool: Pool) -> None:
    """The service's lock does not protect the balance: two services create at the same time."""
    second = '\n[[service]]\nid = "second"\naccount = "acme"\nprovider = "infobip"\nbase_url = "http://127.0.0.1:1"\n'
    second += 'api_key_env = "KEY"\nmessages_per_second = 80\n'
    await apply_catalog(pool, factories.catalog_text(bills_to="payer") + second)
    await factories.grant_credits(pool, "payer", 10, cause="test", actor="test")
    requests = [
        batch_request(3, start=number * 10, service=("acme-utility", "second")[number % 2]) for number in range(10)
    ]
    results = await asyncio.gather(
        *(create_batch(pool, SETTINGS, caller(billing_account="payer"), request) for request in requests),
        return_exceptions=True,
    )
    assert sum(isinstance(result, Creation) for result in results) == 3
    assert sum(isinstance(result, InsufficientCredits) for result in results) == 7
    assert await value(pool, "SELECT balance FROM account WHERE id = 'payer'") == 1


async def test_equal_requests_at_once_are_one_batch_and_one_debit(pool: Pool) -> None:
    await add_account(pool, credits=1_000)
    results = await asyncio.gather(*(create(pool, 5) for _ in range(50)))
    assert len({result.batch_id for result in results}) == 1
    assert sum(not result.replayed for result in results) == 1
    assert await count(pool, "batch") == 1
    assert await value(pool, "SELECT balance FROM account") == 995


async def test_an_equal_large_request_is_replayed_and_its_draft_is_gone(pool: Pool) -> None:
    await add_account(pool, credits=5_000, bm_limit=5_000)
    first, second = await asyncio.gather(create(pool, 1_001), create(pool, 1_001))
    assert first.batch_id == second.batch_id
    assert await count(pool, "batch") == 1
    assert await count(pool, "message") == 1_001
    assert await value(pool, "SELECT balance FROM account") == 3_999


async def test_a_duplicate_goes_when_it_is_allowed(pool: Pool) -> None:
    await add_account(pool, credits=10)
    first = await create(pool)
    second = await create(pool, allow_duplicate=True)
    assert first.batch_id != second.batch_id
    assert (await create(pool)).batch_id == first.batch_id


async def test_an_equal_request_goes_again_when_the_time_is_over(pool: Pool) -> None:
    await add_account(pool, credits=10)
    brief = Settings(signature_ttl_s=1e-6)
    first = await create_batch(pool, brief, caller(), batch_request())
    second = await create_batch(pool, brief, caller(), batch_request())
    assert first.batch_id != second.batch_id


@pytest.mark.parametrize("event", ["cancelled", "erred"])
async def test_a_cancelled_or_failed_batch_frees_its_signature(pool: Pool, event: str) -> None:
    await add_account(pool, credits=10)
    first = await factories.add_batch(pool, state="cancelled" if event == "cancelled" else "error")
    assert (await create(pool)).batch_id != first


@pytest.mark.parametrize(
    "fields",
    [
        {"contacts": [Contact(phone=factories.phone(0), placeholders=["Ana", "9"])]},
        {"contacts": [Contact(phone=factories.phone(9), placeholders=["Ana", "0"])]},
        {"scheduled_at": factories.in_an_hour()},
    ],
    ids=["placeholders", "phone", "schedule"],
)
async def test_what_changes_what_is_sent_changes_the_signature(pool: Pool, fields: dict[str, object]) -> None:
    await add_account(pool, credits=10)
    await create(pool)
    assert not (await create(pool, **fields)).replayed


async def test_what_does_not_change_what_is_sent_does_not_change_the_signature(pool: Pool) -> None:
    await add_account(pool, credits=10)
    await create(pool, reference="a")
    assert (await create(pool, reference="b", on_capacity="spill")).replayed


async def test_an_idempotency_key_gets_its_batch_again_for_ever(pool: Pool) -> None:
    await add_account(pool, credits=10)
    brief = Settings(signature_ttl_s=1e-6)
    key = Key("k1", b"body")
    first = await create_batch(pool, brief, caller(), batch_request(), key=key)
    again = await create_batch(pool, brief, caller(), batch_request(), key=key)
    assert again == Creation(first.batch_id, replayed=True)
    assert await value(pool, "SELECT balance FROM account") == 9


async def test_an_idempotency_key_with_another_body_is_refused(pool: Pool) -> None:
    await add_account(pool, credits=10)
    await create(pool, key=Key("k1", b"one"))
    with pytest.raises(IdempotencyKeyReused):
        await create(pool, 1, start=5, key=Key("k1", b"other"))
    assert await count(pool, "batch") == 1


async def test_a_repeat_under_its_key_is_answered_though_its_time_is_over(pool: Pool) -> None:
    await add_account(pool, credits=10)
    key = Key("k", b"body")
    soon = datetime.now(UTC) + timedelta(milliseconds=300)
    request = batch_request(2, expires_at=soon)
    first = await create_batch(pool, SETTINGS, caller(), request, key=key)
    await until(lambda: datetime.now(UTC) > soon, 5, "the batch expires")
    with pytest.raises(InvalidRequest):
        await create_batch(pool, SETTINGS, caller(), request)
    assert await create_batch(pool, SETTINGS, caller(), request, key=key) == Creation(first.batch_id, replayed=True)
    assert await value(pool, "SELECT balance FROM account") == 8


async def test_a_new_idempotency_key_on_an_equal_request_gets_the_existing_batch_and_keeps_it(pool: Pool) -> None:
    await add_account(pool, credits=10)
    brief = Settings(signature_ttl_s=1e-6)
    first = await create(pool, key=Key("k1", b"body"))
    second = await create(pool, key=Key("k2", b"body"))
    later = await create_batch(pool, brief, caller(), batch_request(), key=Key("k2", b"body"))
    assert first.batch_id == second.batch_id == later.batch_id


async def test_requests_at_once_under_one_key_are_one_batch(pool: Pool) -> None:
    await add_account(pool, credits=10)
    results = await asyncio.gather(*(create(pool, key=Key("k1", b"body")) for _ in range(10)))
    assert len({result.batch_id for result in results}) == 1
    assert await value(pool, "SELECT balance FROM account") == 9


async def test_a_service_of_another_account_is_forbidden_like_one_that_does_not_exist(pool: Pool) -> None:
    await add_account(pool, credits=10)
    for account, service in (("other", factories.SERVICE), (factories.ACCOUNT, "none")):
        with pytest.raises(Forbidden):
            await create_batch(pool, SETTINGS, caller(account), batch_request(service=service))


async def test_a_stopped_service_takes_no_batches(pool: Pool) -> None:
    await add_account(pool, credits=10, active=False)
    with pytest.raises(Conflict):
        await create(pool)


async def test_an_unknown_template_is_named(pool: Pool) -> None:
    await add_account(pool, credits=10)
    with pytest.raises(UnknownTemplate, match="nothing in pt_BR"):
        await create(pool, template=TemplateName("nothing"))


async def test_a_template_that_is_approved_nowhere_is_refused(pool: Pool) -> None:
    await add_account(pool, credits=10, approved_bms=0)
    with pytest.raises(TemplateNotApproved):
        await create(pool)


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"expires_at": factories.in_an_hour().replace(year=2020)}, "/expires_at"),
        ({"scheduled_at": factories.in_an_hour().replace(year=2200)}, "/scheduled_at"),
        ({"expires_at": datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-10)))}, "/expires_at"),
        ({"callback_url": "http://127.0.0.1/hook"}, "/callback_url"),
        ({"contacts": [Contact(phone="123")]}, "/contacts/0/phone"),
        ({"contacts": [Contact(phone=factories.phone(0), placeholders=["só um"])]}, "/contacts/0/placeholders"),
        ({"contacts": [Contact(phone=factories.phone(0), placeholders=["Oferta!", "1"])]}, "/contacts/0/placeholders"),
        ({"media_url": "https://example.com/a.png"}, "/media_url"),
    ],
)
async def test_what_is_wrong_is_named_by_its_place(pool: Pool, fields: dict[str, object], pointer: str) -> None:
    await add_account(pool, credits=10)
    with pytest.raises(InvalidRequest) as refused:
        await create(pool, **fields)
    assert pointer in [error.pointer for error in refused.value.errors]
    await assert_nothing_was_taken(pool, 10)


async def test_every_bad_row_is_named(pool: Pool) -> None:
    await add_account(pool, credits=10)
    rows = [*factories.contacts(2), Contact(phone="x"), Contact(phone=factories.phone(5), placeholders=["a"])]
    with pytest.raises(InvalidRequest) as refused:
        await create(pool, contacts=rows)
    assert [error.pointer for error in refused.value.errors] == ["/contacts/2/phone", "/contacts/3/placeholders"]


async def test_a_batch_below_the_services_minimum_is_refused(pool: Pool) -> None:
    await add_account(pool, credits=10, min_batch_size=3)
    with pytest.raises(InvalidRequest):
        await create(pool, 2)
    await create(pool, 3)


async def test_a_utility_service_refuses_promotion_in_the_template(pool: Pool) -> None:
    await add_account(pool, credits=10, body="Promoção para {{1}}: {{2}}.")
    with pytest.raises(InvalidRequest) as refused:
        await create(pool)
    assert refused.value.errors[0].pointer == "/template"
