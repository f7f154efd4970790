"""Batches over HTTP: created, read, paged, and nobody else's."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import httpx
import pytest

from carteiro.domain.lifecycle import MessageState
from carteiro.services.catalog import apply_catalog
from carteiro.storage.pool import Pool
from tests.api.problems import assert_problem
from tests.support import factories
from tests.support.factories import add_batch, add_key, batch_body, value


async def create(client: httpx.AsyncClient, n: int = 1, **fields: Any) -> httpx.Response:
    headers = fields.pop("headers", {})
    return await client.post("/api/v1/batches", json=batch_body(n, **fields), headers=headers)


async def test_a_batch_is_accepted_and_can_be_read_where_it_says(client: httpx.AsyncClient) -> None:
    response = await create(client, 3, reference="orders", callback_url="https://example.com/hook")
    assert response.status_code == 202
    assert "idempotent-replayed" not in response.headers
    body = response.json()
    assert response.headers["location"] == f"/api/v1/batches/{body['id']}"
    assert body["status"] == "pending"
    assert body["total"] == sum(body["counts"].values()) == body["counts"]["pending"] == 3
    assert body["money"] == {"debited": 3, "charged": 0, "refunded": 0, "held": 3}
    assert (body["reference"], body["callback_url"]) == ("orders", "https://example.com/hook")
    read = await client.get(response.headers["location"])
    assert read.status_code == 200
    assert read.json() == body


async def test_times_are_rfc_3339_in_utc(client: httpx.AsyncClient) -> None:
    at = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=2)
    given = at.astimezone(tz=None).isoformat()
    body = (await create(client, scheduled_at=given)).json()
    assert body["scheduled_at"] == at.isoformat().replace("+00:00", "Z")
    assert (body["blocked_by"], body["next_attempt_at"]) == ("schedule", body["scheduled_at"])


async def test_an_equal_request_is_answered_with_the_batch_that_there_is(client: httpx.AsyncClient) -> None:
    first = await create(client, 2)
    second = await create(client, 2, headers={"idempotency-key": "another"})
    assert second.status_code == 202
    assert second.headers["idempotent-replayed"] == "true"
    assert second.headers["location"] == first.headers["location"]
    assert second.json() == first.json()


async def test_fifty_equal_requests_at_once_are_one_batch(client: httpx.AsyncClient, pool: Pool) -> None:
    answers = await asyncio.gather(*(create(client, 4) for _ in range(50)))
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert await value(pool, "SELECT balance FROM account") == 996


async def test_an_idempotency_key_with_another_body(client: httpx.AsyncClient) -> None:
    await create(client, 1, headers={"idempotency-key": "k-1"})
    response = await create(client, 2, headers={"idempotency-key": "k-1"})
    assert_problem(response, 422, "idempotency-key-reused")


async def test_too_little_capacity(client: httpx.AsyncClient, pool: Pool) -> None:
    await factories.grant_credits(pool, "acme", 1_000, cause="more", actor="test")
    body = assert_problem(await create(client, 1_200), 402, "capacity-exhausted")
    assert (body["available"], body["required"]) == (1_000, 1_200)
    spilled = (await create(client, 1_200, on_capacity="spill")).json()
    assert spilled["on_capacity"] == "spill"


async def test_too_few_credits(client: httpx.AsyncClient) -> None:
    body = assert_problem(await create(client, 1_001, on_capacity="spill"), 402, "insufficient-credits")
    assert (body["balance"], body["required"]) == (1_000, 1_001)


async def test_another_accounts_service(client: httpx.AsyncClient) -> None:
    assert_problem(await create(client, service="other-utility"), 403, "forbidden")


async def test_an_unknown_template(client: httpx.AsyncClient) -> None:
    response = await create(client, template={"name": "gone"})
    assert_problem(response, 400, "template-unknown")
    assert "gone" in response.text


async def test_a_template_that_is_not_approved(client: httpx.AsyncClient, pool: Pool) -> None:
    async with pool.connection() as conn:
        await conn.execute("UPDATE submission SET status = 'PAUSED'")
    assert_problem(await create(client), 400, "template-not-approved")


async def test_bad_rows_are_all_named(client: httpx.AsyncClient) -> None:
    rows = [{"phone": "+5511987654321", "placeholders": ["a", "b"]}, {"phone": "12"}, {"phone": "+5511987654322"}]
    body = assert_problem(await create(client, contacts=rows), 400, "invalid-request")
    assert [error["pointer"] for error in body["errors"]] == ["/contacts/1/phone", "/contacts/2/placeholders"]


async def test_bad_phones_are_left_out_and_told(client: httpx.AsyncClient) -> None:
    rows = [{"phone": "+5511987654321", "placeholders": ["a", "b"]}, {"phone": "12"}]
    body = (await create(client, contacts=rows, on_invalid="skip")).json()
    assert body["total"] == 1
    assert body["skipped"]["counts"] == {"phone-too-short": 1}
    assert body["skipped"]["rows"] == [{"index": 1, "code": "phone-too-short"}]


async def test_batches_are_listed_newest_first_page_by_page(client: httpx.AsyncClient, pool: Pool) -> None:
    ids = [str(await add_batch(pool, start=number)) for number in range(5)]
    seen: list[str] = []
    cursor: str | None = None
    while True:
        query = {"limit": "2"} | ({"cursor": cursor} if cursor else {})
        page = (await client.get("/api/v1/batches", params=query)).json()
        assert len(page["items"]) <= 2
        seen += [item["id"] for item in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == ids[::-1]


async def test_batches_are_listed_by_state(client: httpx.AsyncClient, pool: Pool) -> None:
    paused = await add_batch(pool, state="paused")
    await add_batch(pool, start=1)
    items = (await client.get("/api/v1/batches?status=paused")).json()["items"]
    assert [item["id"] for item in items] == [str(paused)]


async def test_counts_sum_to_the_total_in_every_state(client: httpx.AsyncClient, pool: Pool) -> None:
    batch_id = await add_batch(pool, 8, state="processing")
    await move_messages(pool, batch_id)
    body = (await client.get(f"/api/v1/batches/{batch_id}")).json()
    assert body["counts"] == {str(state): 1 for state in MessageState}
    assert sum(body["counts"].values()) == body["total"]


async def test_a_processing_batch_tells_its_rate_and_when_it_will_be_done(
    client: httpx.AsyncClient, pool: Pool
) -> None:
    batch_id = await add_batch(pool, 8, state="processing")
    await move_messages(pool, batch_id)
    async with pool.connection() as conn:
        await conn.execute("UPDATE batch SET started_at = clock_timestamp() - interval '10 s'")
    body = (await client.get(f"/api/v1/batches/{batch_id}")).json()
    assert body["rate_per_s"] == pytest.approx(0.4, abs=0.05)
    assert body["eta_at"] > datetime.now(UTC).isoformat()


async def test_a_blocked_batch_says_why_and_until_when(client: httpx.AsyncClient, pool: Pool) -> None:
    batch_id = await add_batch(pool, 2, state="processing")
    async with pool.connection() as conn:
        await conn.execute("UPDATE batch SET blocked_by = 'capacity', next_attempt_at = '2027-01-01T00:00:00Z'")
    body = (await client.get(f"/api/v1/batches/{batch_id}")).json()
    assert (body["blocked_by"], body["next_attempt_at"]) == ("capacity", "2027-01-01T00:00:00Z")
    assert body["eta_at"] is None


async def test_messages_are_listed_in_order_page_by_page_and_by_state(client: httpx.AsyncClient, pool: Pool) -> None:
    batch_id = await add_batch(pool, 8, state="processing")
    await move_messages(pool, batch_id)
    path = f"/api/v1/batches/{batch_id}/messages"
    first = (await client.get(path, params={"limit": 5})).json()
    rest = (await client.get(path, params={"limit": 5, "cursor": first["next_cursor"]})).json()
    assert [item["seq"] for item in first["items"] + rest["items"]] == list(range(1, 9))
    assert rest["next_cursor"] is None
    failed = (await client.get(path, params={"status": "failed"})).json()["items"]
    assert [(item["status"], item["phone"]) for item in failed] == [
        ("failed", factories.phone(list(MessageState).index(MessageState.FAILED)))
    ]
    assert failed[0]["message_id"] == f"{batch_id.hex}-{failed[0]['seq']}"


async def test_drafts_are_nowhere(client: httpx.AsyncClient, pool: Pool) -> None:
    await add_batch(pool)
    async with pool.connection() as conn:
        await conn.execute(
            "INSERT INTO batch (id, account_id, billing_account_id, service_id, total, charge_rule, template_name,"
            " template_language, template_signature, template_content, request_signature)"
            " SELECT gen_random_uuid(), account_id, billing_account_id, service_id, total, charge_rule, template_name,"
            " template_language, template_signature, template_content, request_signature FROM batch"
        )
    draft = await value(pool, "SELECT id FROM batch WHERE status = 'draft'")
    assert_problem(await client.get(f"/api/v1/batches/{draft}"), 404, "not-found")
    assert_problem(await client.get(f"/api/v1/batches/{draft}/messages"), 404, "not-found")
    assert len((await client.get("/api/v1/batches")).json()["items"]) == 1


async def test_what_is_no_batch_is_not_found(client: httpx.AsyncClient) -> None:
    for id in (str(uuid4()), "nothing"):
        assert_problem(await client.get(f"/api/v1/batches/{id}"), 404, "not-found")
        assert_problem(await client.get(f"/api/v1/batches/{id}/messages"), 404, "not-found")


async def test_one_account_never_sees_another(anonymous: httpx.AsyncClient, pool: Pool) -> None:
    await apply_catalog(pool, f"{factories.catalog_text()}\n{other_account()}")
    for account in ("acme", "other"):
        await factories.grant_credits(pool, account, 10, cause="test", actor="test")
    keys = {account: f"Bearer {await add_key(pool, account)}" for account in ("acme", "other")}
    batch_id = await add_batch(pool)
    theirs = {"authorization": keys["other"]}

    for path in (f"/api/v1/batches/{batch_id}", f"/api/v1/batches/{batch_id}/messages"):
        assert_problem(await anonymous.get(path, headers=theirs), 404, "not-found")
        assert (await anonymous.get(path, headers={"authorization": keys["acme"]})).status_code == 200
    for path, member in (("batches", "items"), ("capacity", "business_managers")):
        assert (await anonymous.get(f"/api/v1/{path}", headers=theirs)).json()[member] == []
    entries = (await anonymous.get("/api/v1/credits/entries", headers=theirs)).json()["items"]
    assert [(entry["amount"], entry["batch_id"]) for entry in entries] == [(10, None)]
    assert (await anonymous.get("/api/v1/credits", headers=theirs)).json()["balance"] == 10

    response = await anonymous.post("/api/v1/batches", json=batch_body(), headers=theirs)
    assert_problem(response, 403, "forbidden")


async def test_an_idempotency_key_belongs_to_its_account(anonymous: httpx.AsyncClient, pool: Pool) -> None:
    text = f"{factories.catalog_text()}\n{other_account()}"
    sender = factories.sender_id(1)
    text = text.replace('accounts = ["acme"]', 'accounts = ["acme", "other"]')
    assert sender in text
    await apply_catalog(pool, text)
    ids = set()
    for account, service in (("acme", factories.SERVICE), ("other", "other-utility")):
        await factories.grant_credits(pool, account, 10, cause="test", actor="test")
        headers = {"authorization": f"Bearer {await add_key(pool, account)}", "idempotency-key": "same"}
        response = await anonymous.post("/api/v1/batches", json=batch_body(service=service), headers=headers)
        assert response.status_code == 202
        ids.add(response.json()["id"])
    assert len(ids) == 2


def other_account() -> str:
    """An account with a service and nothing else."""
    return (
        '[[account]]\nid = "other"\n[[service]]\nid = "other-utility"\naccount = "other"\nprovider = "infobip"\n'
        'base_url = "http://127.0.0.1:1"\napi_key_env = "KEY"\nmessages_per_second = 80\n'
    )


async def move_messages(pool: Pool, batch_id: object) -> None:
    """The batch's eight messages, one into each state, in the states' order."""
    steps = {
        "pending_send": ["claimed"],
        "unknown": ["claimed", "lost"],
        "sent": ["claimed", "sent"],
        "delivered": ["claimed", "delivered"],
        "seen": ["claimed", "seen"],
        "failed": ["claimed", "failed"],
        "unsent": ["withdrawn"],
    }
    async with pool.connection() as conn:
        for seq, state in enumerate(MessageState, start=1):
            for event in steps.get(state, []):
                await conn.execute(
                    "UPDATE message m SET status = e.target, event = e.event FROM lifecycle_edge e"
                    " WHERE m.batch_id = %s AND m.seq = %s AND e.machine = 'message' AND e.event = %s"
                    " AND e.source = m.status",
                    (batch_id, seq, event),
                )
