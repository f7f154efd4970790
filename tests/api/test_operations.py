"""For whoever runs it: health, webhooks, the access log."""

import httpx
import pytest
from structlog.testing import capture_logs

from carteiro.storage.pool import Pool
from tests.api.problems import assert_problem
from tests.support.factories import batch_body, value


@pytest.mark.parametrize("path", ["/health", "/livez", "/readyz"])
async def test_healthy(anonymous: httpx.AsyncClient, path: str) -> None:
    response = await anonymous.get(path)
    assert (response.status_code, response.json()) == (200, {"status": "ok"})


async def test_not_ready_on_another_schema(anonymous: httpx.AsyncClient, pool: Pool) -> None:
    async with pool.connection() as conn:
        await conn.execute("UPDATE alembic_version SET version_num = '0001'")
    body = assert_problem(await anonymous.get("/readyz"), 503, "unavailable")
    assert "carteiro migrate" in body["detail"]
    async with pool.connection() as conn:
        await conn.execute("DROP TABLE alembic_version")
    assert_problem(await anonymous.get("/readyz"), 503, "unavailable")
    assert (await anonymous.get("/livez")).status_code == 200


async def test_a_webhook_is_stored_as_it_came(client: httpx.AsyncClient, pool: Pool) -> None:
    token = await value(pool, "SELECT webhook_token FROM service")
    del client.headers["authorization"]
    response = await client.post(f"/webhooks/infobip/{token}", content=b"\x00 not even JSON")
    assert response.status_code == 200
    assert await value(pool, "SELECT body FROM receipt_payload") == b"\x00 not even JSON"


async def test_a_webhook_of_an_unknown_token(client: httpx.AsyncClient, pool: Pool) -> None:
    assert_problem(await client.post("/webhooks/infobip/nothing", content=b"{}"), 404, "not-found")
    assert await value(pool, "SELECT count(*) FROM receipt_payload") == 0


async def test_a_request_is_one_log_line_without_phones_keys_or_tokens(client: httpx.AsyncClient, pool: Pool) -> None:
    token = await value(pool, "SELECT webhook_token FROM service")
    key = client.headers["authorization"].partition(" ")[2]
    with capture_logs() as logs:
        response = await client.post("/api/v1/batches", json=batch_body(2))
        await client.post(f"/webhooks/infobip/{token}", content=b"{}")
        await client.get("/nothing/11987654321?phone=11987654321")
    lines = [line for line in logs if line["event"] == "request"]
    assert [(line["method"], line["route"], line["status"]) for line in lines] == [
        ("POST", "/api/v1/batches", 202),
        ("POST", "/webhooks/infobip/{token}", 200),
        ("GET", "(none)", 404),
    ]
    assert lines[0]["account_id"] == "acme"
    assert response.headers["x-request-id"]
    told = str(lines)
    for secret in (token, key, "11987654321", batch_body()["contacts"][0]["phone"].lstrip("+")):
        assert secret not in told
