"""The suppression list over HTTP."""

from typing import Any

import httpx
import pytest

from carteiro.services.catalog import apply_catalog
from carteiro.storage.pool import Pool
from tests.api.problems import assert_problem
from tests.support import factories
from tests.support.factories import add_key, batch_body, phone, value

PATH = "/api/v1/suppressions"


async def suppress(client: httpx.AsyncClient, *phones: str, **fields: Any) -> httpx.Response:
    return await client.post(PATH, json={"phones": phones, **fields})


async def lift(client: httpx.AsyncClient, *phones: str, **fields: Any) -> httpx.Response:
    return await client.request("DELETE", PATH, json={"phones": phones, **fields})


async def check(client: httpx.AsyncClient, given: str) -> dict[str, Any]:
    response = await client.get(f"{PATH}/check", params={"phone": given})
    assert response.status_code == 200
    body: dict[str, Any] = response.json()
    return body


async def test_a_contact_is_put_on_the_list_checked_and_taken_off(client: httpx.AsyncClient) -> None:
    response = await suppress(client, phone(1), phone(1), phone(2), reason="asked at the counter")
    assert (response.status_code, response.json()) == (200, {"contacts": 2})
    body = await check(client, phone(1))
    assert (body["phone"], body["suppressed"], body["suppressed_for_marketing"]) == (phone(1), True, True)
    (item,) = body["items"]
    assert item.pop("created_at") == item.pop("changed_at")
    assert item == {
        "phone_ends_with": "0001",
        "scope": "all",
        "source": "api",
        "reason": "asked at the counter",
        "until": None,
        "times": 1,
    }
    assert (await lift(client, phone(1), phone(9))).json() == {"contacts": 1}
    assert (await check(client, phone(1)))["items"] == []
    assert (await check(client, phone(2)))["suppressed"] is True


async def test_a_scope_is_lifted_alone(client: httpx.AsyncClient) -> None:
    await suppress(client, phone(1))
    await suppress(client, phone(1), scope="marketing")
    assert (await lift(client, phone(1), scope="all")).json() == {"contacts": 1}
    body = await check(client, phone(1))
    assert (body["suppressed"], body["suppressed_for_marketing"]) == (False, True)


@pytest.mark.parametrize("query", ["%2B5511980000001", "+5511980000001", "551180000001", "11%2098000-0001"])
async def test_a_phone_is_checked_in_any_spelling(client: httpx.AsyncClient, query: str) -> None:
    await suppress(client, phone(1))
    body = (await client.get(f"{PATH}/check?phone={query}")).json()
    assert (body["phone"], body["suppressed"]) == (phone(1), True)


async def test_a_plus_that_was_not_escaped_is_still_one(client: httpx.AsyncClient) -> None:
    """Without it this number of the United States would be read as one of Brazil."""
    assert (await client.get(f"{PATH}/check?phone=+16193456789")).json()["phone"] == "+16193456789"


async def test_the_list_is_paged_newest_first_and_shows_four_digits(client: httpx.AsyncClient) -> None:
    for number in range(5):
        await suppress(client, phone(1_230 + number), scope="marketing" if number % 2 else "all")
    seen: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        response = await client.get(PATH, params={"limit": 2, **cursor})
        assert "80001" not in response.text
        page = response.json()
        seen += [item["phone_ends_with"] for item in page["items"]]
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert seen == ["1234", "1233", "1232", "1231", "1230"]
    marketing = (await client.get(PATH, params={"scope": "marketing"})).json()["items"]
    assert [item["phone_ends_with"] for item in marketing] == ["1233", "1231"]


async def test_what_was_lifted_or_lapsed_is_not_listed(client: httpx.AsyncClient, pool: Pool) -> None:
    await suppress(client, phone(1), phone(2), phone(3))
    await lift(client, phone(1))
    async with pool.connection() as conn:
        await conn.execute("UPDATE suppression SET until = now() WHERE phone_key % 10 = 2")
    items = (await client.get(PATH)).json()["items"]
    assert [item["phone_ends_with"] for item in items] == ["0003"]


async def test_a_batch_tells_how_many_are_held_back(client: httpx.AsyncClient) -> None:
    await suppress(client, phone(0), phone(2))
    body = (await client.post("/api/v1/batches", json=batch_body(3))).json()
    assert (body["suppressed"], body["counts"]["unsent"], body["counts"]["pending"]) == (2, 2, 1)
    assert body["money"] == {"debited": 3, "charged": 0, "refunded": 0, "held": 3}
    messages = (await client.get(f"/api/v1/batches/{body['id']}/messages?status=unsent")).json()["items"]
    assert [(message["seq"], message["code"]) for message in messages] == [(1, "SUPPRESSED"), (3, "SUPPRESSED")]


async def test_one_account_neither_sees_nor_changes_anothers(anonymous: httpx.AsyncClient, pool: Pool) -> None:
    await apply_catalog(pool, factories.catalog_text() + '\n[[account]]\nid = "rival"\n')
    ours, theirs = [{"authorization": f"Bearer {await add_key(pool, account)}"} for account in ("acme", "rival")]
    anonymous.headers.update(ours)
    await suppress(anonymous, phone(1))
    anonymous.headers.update(theirs)
    assert (await anonymous.get(PATH)).json()["items"] == []
    assert (await check(anonymous, phone(1)))["items"] == []
    assert (await lift(anonymous, phone(1))).json() == {"contacts": 0}
    anonymous.headers.update(ours)
    assert (await check(anonymous, phone(1)))["suppressed"] is True


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, ""),
        ({"phones": []}, "/phones"),
        ({"phones": ["+5511980000000"] * 10_001}, "/phones"),
        ({"phones": "+5511980000000"}, "/phones"),
        ({"phones": [5511980000000]}, "/phones/0"),
        ({"phones": ["+5511980000000"], "scope": "sms"}, "/scope"),
        ({"phones": ["+5511980000000"], "until": None}, ""),
        ({"phones": ["+5511980000000"], "reason": "a\0b"}, "/reason"),
        ({"phones": ["+5511980000000"], "reason": ""}, "/reason"),
    ],
)
async def test_a_body_of_another_form_is_refused(
    client: httpx.AsyncClient, pool: Pool, body: dict[str, Any], pointer: str
) -> None:
    problem = assert_problem(await client.post(PATH, json=body), 400, "invalid-request")
    assert [error["pointer"] for error in problem["errors"]] == [pointer]
    assert await value(pool, "SELECT count(*) FROM suppression") == 0


async def test_every_bad_phone_is_named_and_none_is_repeated(client: httpx.AsyncClient) -> None:
    response = await suppress(client, phone(1), "99887766", "x")
    problem = assert_problem(response, 400, "invalid-request")
    assert [(error["pointer"], error["code"]) for error in problem["errors"]] == [
        ("/phones/1", "phone-too-short"),
        ("/phones/2", "phone-malformed"),
    ]
    assert problem["error_count"] == 2
    assert "99887766" not in response.text
    response = await lift(client, "99887766")
    assert_problem(response, 400, "invalid-request")
    assert "99887766" not in response.text


async def test_a_check_needs_one_phone(client: httpx.AsyncClient) -> None:
    assert_problem(await client.get(f"{PATH}/check"), 400, "invalid-request")
    assert_problem(await client.get(f"{PATH}/check?phone=12"), 400, "invalid-request")
    assert_problem(await client.get(f"{PATH}?scope=sms"), 400, "invalid-request")
    assert_problem(await client.get(f"{PATH}?cursor=!"), 400, "invalid-request")


@pytest.mark.parametrize(
    ("scope", "allowed"),
    [("suppressions:read", {"get"}), ("suppressions:write", {"post", "delete"}), ("batches:write", set())],
)
async def test_reading_and_writing_have_scopes_of_their_own(
    client: httpx.AsyncClient, pool: Pool, scope: str, allowed: set[str]
) -> None:
    client.headers["authorization"] = f"Bearer {await add_key(pool, scopes=[scope])}"
    answers = {
        "post": await suppress(client, phone(1)),
        "delete": await lift(client, phone(1)),
        "get": await client.get(PATH),
    }
    for method, response in answers.items():
        if method in allowed:
            assert response.status_code == 200
        else:
            assert_problem(response, 403, "forbidden")
    if "get" not in allowed:
        assert_problem(await client.get(f"{PATH}/check?phone=11980000001"), 403, "forbidden")


async def test_without_a_key_there_is_nothing(anonymous: httpx.AsyncClient) -> None:
    assert_problem(await suppress(anonymous, phone(1)), 401, "unauthorized")
    assert_problem(await anonymous.get(PATH), 401, "unauthorized")
