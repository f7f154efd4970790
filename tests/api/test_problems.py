"""Every error of every status is a problem document."""

from collections.abc import AsyncIterator

import httpx
import pytest

from carteiro.api.app import BODY_MAX, create_app
from carteiro.api.webhooks import BODY_MAX as WEBHOOK_BODY_MAX
from carteiro.services import reading
from carteiro.services.api_keys import generate
from carteiro.services.broadcast import Directory
from carteiro.settings import Settings
from carteiro.storage.pool import Pool
from tests.api.problems import assert_problem
from tests.support.factories import add_key, batch_body


async def test_no_key(anonymous: httpx.AsyncClient) -> None:
    response = await anonymous.get("/api/v1/batches")
    assert_problem(response, 401, "unauthorized")
    assert response.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("value", ["Bearer", "Bearer x", "Basic YTpi", f"Bearer carteiro_live_{'a' * 12}_{'b' * 49}"])
async def test_a_bad_key(anonymous: httpx.AsyncClient, value: str) -> None:
    assert_problem(await anonymous.get("/api/v1/batches", headers={"authorization": value}), 401, "unauthorized")


async def test_a_key_without_the_scope(client: httpx.AsyncClient, pool: Pool) -> None:
    key = await add_key(pool, scopes=["batches:read"])
    client.headers["authorization"] = f"Bearer {key}"
    body = assert_problem(await client.post("/api/v1/batches", json=batch_body()), 403, "forbidden")
    assert body["required_scope"] == "batches:write"
    for path in ("/api/v1/capacity", "/api/v1/credits", "/api/v1/credits/entries"):
        assert_problem(await client.get(path), 403, "forbidden")
    assert (await client.get("/api/v1/batches")).status_code == 200


@pytest.mark.parametrize("path", ["/", "/nothing", "/api/v1/nothing", "/api/v2/batches"])
async def test_no_such_route(anonymous: httpx.AsyncClient, path: str) -> None:
    assert_problem(await anonymous.get(path), 404, "not-found")


async def test_no_such_method(client: httpx.AsyncClient) -> None:
    response = await client.delete("/api/v1/batches")
    assert_problem(response, 405, "method-not-allowed")
    assert response.headers["allow"]


@pytest.mark.parametrize("body", [b"", b"{", b"[1,", b"\xff", b'{"a": "\\ud800"}'])
async def test_what_is_no_json(client: httpx.AsyncClient, body: bytes) -> None:
    assert_problem(await client.post("/api/v1/batches", content=body), 400, "invalid-request")


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"service": 1}, "/service"),
        ({"colour": "red"}, ""),
        ({"contacts": [{"phone": "+5511987654321", "placeholders": ["a", 1]}]}, "/contacts/0/placeholders/1"),
        ({"scheduled_at": "2027-01-01T10:00:00"}, "/scheduled_at"),
        ({"on_capacity": "wait"}, "/on_capacity"),
        ({"contacts": []}, "/contacts"),
    ],
)
async def test_a_body_of_the_wrong_form(client: httpx.AsyncClient, change: dict[str, object], pointer: str) -> None:
    response = await client.post("/api/v1/batches", json={**batch_body(), **change})
    body = response.json()
    assert (response.status_code, body["code"]) == (400, "invalid-request")
    assert body["errors"][0]["pointer"] == pointer


async def test_a_nul_character(client: httpx.AsyncClient) -> None:
    body = batch_body()
    body["contacts"][0]["placeholders"] = ["a\x00b", "1"]
    assert_problem(await client.post("/api/v1/batches", json=body), 400, "invalid-request")
    body["contacts"][0]["placeholders"] = ["a\\u0000b", "1"]  # a backslash and letters, which are fine
    assert (await client.post("/api/v1/batches", json=body)).status_code == 202


async def test_another_media_type(client: httpx.AsyncClient) -> None:
    response = await client.post("/api/v1/batches", data={"service": "x"})
    assert_problem(response, 415, "unsupported-media-type")


@pytest.mark.parametrize("query", ["limit=0", "limit=201", "limit=x", "status=gone", "cursor=%21"])
async def test_a_wrong_parameter(client: httpx.AsyncClient, query: str) -> None:
    body = assert_problem(await client.get(f"/api/v1/batches?{query}"), 400, "invalid-request")
    if not query.startswith("cursor"):
        assert body["errors"][0]["parameter"] == query.partition("=")[0]


async def test_a_wrong_idempotency_key(client: httpx.AsyncClient) -> None:
    for key in ("", "x" * 256):
        response = await client.post("/api/v1/batches", json=batch_body(), headers={"idempotency-key": key})
        assert_problem(response, 400, "invalid-request")


@pytest.mark.parametrize(
    ("path", "size"), [("/api/v1/batches", BODY_MAX), ("/webhooks/infobip/some-token", WEBHOOK_BODY_MAX)]
)
async def test_a_body_that_is_too_large(client: httpx.AsyncClient, path: str, size: int) -> None:
    assert_problem(await client.post(path, content=b" " * (size + 1)), 413, "payload-too-large")

    async def in_chunks() -> AsyncIterator[bytes]:
        for _ in range(size // 1_000_000 + 2):
            yield b" " * 1_000_000

    response = await client.post(path, content=in_chunks(), headers={"content-type": "application/json"})
    assert_problem(response, 413, "payload-too-large")


async def test_our_own_error(client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*args: object, **options: object) -> None:
        raise RuntimeError("+5511987654321 and other secrets")

    monkeypatch.setattr(reading, "read_batches", fail)
    response = await client.get("/api/v1/batches")
    assert_problem(response, 500, "internal-error")
    assert "secrets" not in response.text


async def test_the_database_is_away(pool: Pool, directory: Directory) -> None:
    app = create_app(Settings(), pool, directory)
    await pool.close()
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://carteiro.test") as client:  # type: ignore[arg-type]
        response = await client.get("/api/v1/batches", headers={"authorization": f"Bearer {generate()[1]}"})
        assert_problem(response, 503, "unavailable")
        assert int(response.headers["retry-after"]) > 0
        assert_problem(await client.get("/readyz"), 503, "unavailable")
        assert (await client.get("/livez")).status_code == 200


async def test_a_request_id_of_the_clients_own_is_kept_if_it_is_harmless(anonymous: httpx.AsyncClient) -> None:
    for given, kept in (("abcd-1234", True), ("x", False), ("a b c d e f", False), ("a" * 65, False)):
        response = await anonymous.get("/nothing", headers={"x-request-id": given})
        assert (response.json()["request_id"] == given) is kept
        assert_problem(response, 404, "not-found")
