"""Group links over HTTP."""

from typing import Any

import httpx
import pytest

from carteiro.storage.pool import Pool
from tests.api.problems import assert_problem
from tests.support.factories import add_key, phone, value
from tests.support.group_links import LINK, add_links, link_body

PATH = "/api/v1/group-links"


async def create(client: httpx.AsyncClient, number: int = 0, **fields: Any) -> httpx.Response:
    return await client.post(PATH, json=link_body(number, **fields))


@pytest.fixture
async def linked(pool: Pool, anonymous: httpx.AsyncClient) -> httpx.AsyncClient:
    """A client whose account has a service for group links."""
    await add_links(pool)
    anonymous.headers["authorization"] = f"Bearer {await add_key(pool, scopes=['group-link:send'])}"
    return anonymous


async def test_it_is_accepted_and_can_be_read_where_it_says(linked: httpx.AsyncClient, pool: Pool) -> None:
    response = await create(linked, delay_ms=60_000, reference="enrolment-1")
    assert response.status_code == 202
    body = response.json()
    assert response.headers["location"] == f"{PATH}/{body['id']}"
    assert (body["status"], body["door"], body["flow"]) == ("pending", "group_link", "personal")
    assert (body["attempts"], body["max_attempts"], body["code"], body["sent_at"]) == (0, 5, None, None)
    assert body["available_at"] > body["created_at"]
    assert (await linked.get(response.headers["location"])).json() == body
    for told in (phone(0), LINK, "Ana"):
        assert told not in response.text
    again = await create(linked, delay_ms=60_000, reference="enrolment-1")
    assert (again.status_code, again.headers["idempotent-replayed"], again.json()) == (202, "true", body)
    other = assert_problem(await create(linked, 1, reference="enrolment-1"), 422, "reference-reused")
    assert other["errors"][0]["pointer"] == "/reference"
    second = (await create(linked, 2)).json()
    listed = (await linked.get(PATH, params={"limit": 1})).json()
    assert [item["id"] for item in listed["items"]] == [second["id"]]
    page = (await linked.get(PATH, params={"cursor": listed["next_cursor"]})).json()
    assert [item["id"] for item in page["items"]] == [body["id"]]
    found = (await linked.get(PATH, params={"reference": "enrolment-1"})).json()
    assert [item["id"] for item in found["items"]] == [body["id"]]
    shown = "SELECT (phone, status, reference, attempts)::text FROM audit.group_links WHERE group_link_id = %s"
    assert await value(pool, shown, body["id"]) == f"(***{phone(0)[-4:]},pending,enrolment-1,0)"


async def test_what_is_refused(linked: httpx.AsyncClient, pool: Pool) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"phone": "12"}, "/phone"),
        ({"name": ""}, "/name"),
        ({"group_link": "http://chat.whatsapp.com/x"}, "/group_link"),
        ({"delay_ms": -1}, "/delay_ms"),
        ({"max_attempts": 0}, "/max_attempts"),
        ({"max_attempts": 101}, "/max_attempts"),
        ({"flow": "other"}, "/flow"),
        ({"template": {"name": "nothing"}}, "/template"),
        ({"reference": ""}, "/reference"),
        ({"surprise": 1}, ""),
    ]
    for fields, pointer in wrong:
        response = await create(linked, **fields)
        assert response.status_code == 400, fields
        assert response.json()["errors"][0]["pointer"] == pointer, fields
    assert_problem(await linked.post(PATH, content=b"{"), 400, "invalid-request")
    assert_problem(await create(linked, template={"name": "a\0b"}), 400, "invalid-request")
    assert_problem(await linked.get(PATH, params={"reference": "a\0b"}), 400, "invalid-request")
    assert_problem(await linked.get(f"{PATH}/nothing"), 404, "not-found")
    async with pool.connection() as conn:
        await conn.execute("UPDATE service SET active = false")
    assert_problem(await create(linked), 409, "conflict")
    assert await value(pool, "SELECT count(*) FROM batch") == 0


async def test_scopes(linked: httpx.AsyncClient, pool: Pool) -> None:
    linked.headers["authorization"] = f"Bearer {await add_key(pool, scopes=['group-link:read'])}"
    assert_problem(await create(linked), 403, "forbidden")
    assert (await linked.get(PATH)).status_code == 200
    linked.headers["authorization"] = f"Bearer {await add_key(pool, scopes=['batches:write'])}"
    assert_problem(await linked.get(PATH), 403, "forbidden")
