"""What Meta tells at its one address, applied to whom it concerns."""

from typing import Any
from uuid import UUID

import pytest

from carteiro.domain.outcomes import message_key
from carteiro.domain.phones import Phone
from carteiro.domain.suppression import StopWords
from carteiro.providers.registry import parser_of
from carteiro.services.erasure import erase_contact
from carteiro.services.receive import apply_all
from carteiro.storage import aliases
from carteiro.storage.pool import Pool, transact
from tests.providers.meta.shapes import ACCOUNT, WAMID, change, example, payload, status
from tests.support.factories import value
from tests.support.meta import NUMBERS, STRANGER, add_meta_batch, results
from tests.support.posting import store_posted

PHONE = "553187650001"


async def tell(pool: Pool, *changes: dict[str, Any]) -> None:
    await store_posted(pool, "meta", payload(list(changes)))
    await apply_all(pool, parser_of, stop_words=StopWords(("parar",)))


async def state(pool: Pool) -> str:
    text: str = await value(pool, "SELECT (status, code)::text FROM message WHERE seq = 1")
    return text


async def receipts(pool: Pool) -> list[tuple[str, str, str | None]]:
    async with pool.connection() as conn:
        cursor = await conn.execute("SELECT kind, result, code FROM receipt ORDER BY kind, result, code")
        return await cursor.fetchall()


def foreign(word: str = "delivered", wamid: str = WAMID) -> dict[str, Any]:
    """A status that knows its message by Meta's id only."""
    return change(NUMBERS[0], statuses=[status(word=word, id=wamid, biz_opaque_callback_data=None)])


async def know(pool: Pool, batch_id: UUID) -> None:
    async with transact(pool) as conn:
        await aliases.note(conn, batch_id, {WAMID: 1})


async def test_a_status_with_metas_id_only_waits_until_that_is_known(pool: Pool) -> None:
    batch_id = await add_meta_batch(pool, ["pending_send"])
    await tell(pool, foreign())
    assert (await state(pool), await results(pool)) == ("(pending_send,)", {})
    assert await value(pool, "SELECT count(*) FROM receipt_waiting") == 1
    assert await apply_all(pool, parser_of) == 0

    await know(pool, batch_id)
    assert await apply_all(pool, parser_of) == 1
    assert (await state(pool), await results(pool)) == ("(delivered,)", {"applied": 1})
    assert await value(pool, "SELECT count(*) FROM receipt_waiting") == 0
    await tell(pool, foreign("read"))
    assert await state(pool) == "(seen,)"


async def test_a_status_whose_message_nobody_knows_is_an_orphan_after_an_hour(pool: Pool) -> None:
    await add_meta_batch(pool, ["pending_send"])
    await tell(pool, foreign())
    async with transact(pool) as conn:
        await conn.execute("UPDATE receipt_waiting SET received_at = received_at - interval '61 minutes'")
    assert await apply_all(pool, parser_of) == 1
    assert await results(pool) == {"orphan": 1}
    assert await value(pool, "SELECT count(*) FROM receipt_waiting") == 0


async def test_a_status_makes_metas_id_known(pool: Pool) -> None:
    batch_id = await add_meta_batch(pool, ["unknown"])
    await tell(pool, change(NUMBERS[0], statuses=[status(message_key(batch_id, 1), "sent")]))
    assert await state(pool) == "(sent,)"
    await tell(pool, foreign("failed"))
    assert await state(pool) == "(failed,UNKNOWN)"


@pytest.mark.parametrize(("number", "wanted"), [(NUMBERS[1], "delivered"), (STRANGER, "sent"), ("1", "sent")])
async def test_only_numbers_of_its_account_speak_of_a_message(pool: Pool, number: str, wanted: str) -> None:
    batch_id = await add_meta_batch(pool, ["sent"])
    await tell(pool, change(number, statuses=[status(message_key(batch_id, 1))]))
    await know(pool, batch_id)
    await tell(pool, change(number, statuses=[status(biz_opaque_callback_data=None)]))
    assert await value(pool, "SELECT status FROM message") == wanted
    assert await value(pool, "SELECT count(*) FROM receipt WHERE result = 'orphan'") == (2 if wanted == "sent" else 0)


def written(number: str = NUMBERS[0], text: str = "Parar!", **more: Any) -> dict[str, Any]:
    row = {"from": PHONE, "id": "wamid.IN", "timestamp": "1796130500", "type": "text", "text": {"body": text}, **more}
    return change(number, messages=[{name: said for name, said in row.items() if said is not None}])


async def test_a_stop_word_counts_for_every_account_of_the_number(pool: Pool) -> None:
    await add_meta_batch(pool, ["sent"])
    async with transact(pool) as conn:
        await conn.execute(
            "INSERT INTO sender_account (account_id, sender_id) SELECT 'other', id FROM sender WHERE provider_ref = %s",
            (NUMBERS[0],),
        )
    await tell(pool, written(), written(text="oi"), written(STRANGER + "0"), written(**{"from": None}))
    assert await value(pool, "SELECT array_agg(account_id ORDER BY account_id) FROM suppression") == ["acme", "other"]
    assert await receipts(pool) == [
        ("inbound", "applied", None),
        ("inbound", "ignored", None),
        ("inbound", "orphan", None),
        ("inbound", "orphan", None),
    ]


async def test_a_preference_is_heard(pool: Pool) -> None:
    await add_meta_batch(pool, ["sent"])
    value_of = example("webhook-user-preferences-stop")["entry"][0]["changes"][0]
    await tell(pool, value_of)
    assert await value(pool, "SELECT (account_id, scope, source)::text FROM suppression") == (
        "(acme,marketing,preference)"
    )


def told(name: str) -> dict[str, Any]:
    """The change of an example."""
    one: dict[str, Any] = example(f"webhook-{name}")["entry"][0]["changes"][0]
    return one


async def test_a_paused_template_stops_at_once_and_a_strangers_does_not_matter(pool: Pool) -> None:
    await add_meta_batch(pool, ["sent"])
    await add_template(pool, "aviso")
    await tell(pool, told("template-status-paused"))
    assert await value(pool, "SELECT (status, provider_template_id)::text FROM submission") == "(PAUSED,900100200300)"
    await tell(pool, told("template-status-approved"))
    assert await value(pool, "SELECT status FROM submission") == "APPROVED"

    async with transact(pool) as conn:
        await conn.execute("UPDATE sender SET waba_id = NULL")
    await tell(pool, told("template-status-paused"))
    assert await value(pool, "SELECT status FROM submission") == "APPROVED"
    assert await receipts(pool) == [
        ("template", "applied", "APPROVED"),
        ("template", "applied", "PAUSED"),
        ("template", "orphan", None),
    ]


async def test_a_disabled_account_stops_its_senders_until_it_is_reinstated(pool: Pool) -> None:
    await add_meta_batch(pool, ["sent"])
    query = "SELECT string_agg(status, ',' ORDER BY id) FROM sender"
    await tell(pool, told("account-update-disabled"))
    assert await value(pool, query) == "ACTIVE,ACTIVE,ACCOUNT_DISABLED"
    assert await value(pool, "SELECT count(*) FROM lead WHERE name = 'sync'") == 0
    back = told("account-update-disabled")
    back["value"]["ban_info"]["waba_ban_state"] = "REINSTATE"
    await tell(pool, back)
    assert await value(pool, query) == "ACTIVE,ACTIVE,ACTIVE"

    async with transact(pool) as conn:
        await conn.execute("UPDATE sender SET synced_at = '2027-01-01' WHERE waba_id = %s", (ACCOUNT,))
    await tell(pool, told("account-update-disabled"))
    assert await value(pool, query) == "ACTIVE,ACTIVE,ACTIVE", "the provider was asked after that"


async def test_a_restricted_account_waits_for_the_end_of_it(pool: Pool) -> None:
    await add_meta_batch(pool, ["sent"])
    await tell(pool, told("account-update-restriction"))
    assert await value(
        pool,
        "SELECT array_agg((status, extract(epoch FROM wait_until)::int, wait_reason)::text)"
        " FROM sender WHERE waba_id IS NOT NULL",
    ) == ["(ACTIVE,1796390400,ACCOUNT_RESTRICTED)"]


async def test_what_else_is_told_is_written_down_and_asked_after(pool: Pool) -> None:
    await add_meta_batch(pool, ["sent"])
    async with transact(pool) as conn:
        await conn.execute(
            "INSERT INTO lead (name, holder, until) VALUES ('sync', 'w1', clock_timestamp() + interval '1 hour')"
        )
    await tell(pool, told("template-quality"), told("template-category"), told("messages-errors"))
    assert await value(pool, "SELECT count(*) FROM lead") == 1
    quality = "phone-number-quality-throughput-upgrade"
    await tell(pool, told(quality), told("business-capability"), told("account-update-violation"))
    assert await value(pool, "SELECT count(*) FROM lead") == 0
    await tell(pool, {"field": "account_alerts", "value": {"alert_type": "OTHER"}}, {"field": "flows", "value": {}})
    assert await receipts(pool) == [
        ("account_alerts", "applied", "OTHER"),
        ("account_update", "applied", "ACCOUNT_VIOLATION"),
        ("business_capability_update", "applied", "2000"),
        ("errors", "ignored", "130429"),
        ("item", "ignored", None),
        ("message_template_quality_update", "ignored", "YELLOW"),
        ("phone_number_quality_update", "applied", "THROUGHPUT_UPGRADE"),
        ("template_category_update", "ignored", "MARKETING"),
    ]


async def fail(pool: Pool, batch_id: UUID, code: int, *, ago: str = "1 second") -> None:
    """A failure of message 1 that was so long ago."""
    seconds = await value(pool, "SELECT extract(epoch FROM clock_timestamp() - %s::interval)::int", ago)
    row = status(message_key(batch_id, 1), "failed", seconds, errors=[{"code": code, "title": "?"}])
    await tell(pool, change(NUMBERS[0], statuses=[row]))


async def add_template(pool: Pool, name: str) -> None:
    async with transact(pool) as conn:
        await conn.execute(
            "WITH t AS (INSERT INTO template (name, category, content, signature)"
            " VALUES (%s, 'UTILITY', '{}', '') RETURNING id)"
            " INSERT INTO submission (template_id, business_manager_id, physical_name, status, signature)"
            " SELECT id, 'bm1', 'aviso_fatura_v3', 'APPROVED', '' FROM t",
            (name,),
        )


async def test_a_failure_told_later_stops_what_it_names(pool: Pool) -> None:
    batch_id = await add_meta_batch(pool, ["sent"])
    await add_template(pool, "order_update")
    await fail(pool, batch_id, 132015)
    assert await value(pool, "SELECT status FROM submission") == "STOPPED"
    assert await state(pool) == "(failed,132015)"


@pytest.mark.parametrize(("ago", "stopped"), [("1 second", "STOPPED"), ("2 hours", "ACTIVE")])
async def test_a_failure_told_too_late_stops_nothing(pool: Pool, ago: str, stopped: str) -> None:
    batch_id = await add_meta_batch(pool, ["sent"])
    await fail(pool, batch_id, 131031, ago=ago)
    assert await value(pool, "SELECT status FROM sender WHERE provider_ref = %s", NUMBERS[0]) == stopped
    assert await state(pool) == "(failed,131031)"


async def test_a_sender_waits_when_it_is_told_later_to(pool: Pool) -> None:
    batch_id = await add_meta_batch(pool, ["sent"])
    await fail(pool, batch_id, 131048)
    assert (
        await value(
            pool,
            "SELECT (status, wait_reason, wait_until > clock_timestamp() + interval '59 minutes')::text FROM sender"
            " WHERE provider_ref = %s",
            NUMBERS[0],
        )
        == "(ACTIVE,throttled,t)"
    )


async def test_what_an_erased_contact_is_called_at_meta_goes_as_well(pool: Pool) -> None:
    batch_id = await add_meta_batch(pool, ["sent", "sent"])
    phone = Phone(identity=1, address="5531987650001")
    await know(pool, batch_id)
    await tell(pool, foreign(), change(NUMBERS[0], statuses=[status(message_key(batch_id, 2), id="wamid.OTHER")]))
    assert (await erase_contact(pool, phone, actor="test")).payloads == 1
    body = bytes(await value(pool, "SELECT body FROM receipt_payload"))
    assert WAMID.encode() not in body
    assert b"wamid.OTHER" in body
    assert await value(pool, "SELECT array_agg(provider_id) FROM message_alias") == ["wamid.OTHER"]
