"""The one address that Meta posts everything to."""

import hashlib
import hmac
from collections.abc import AsyncIterator

import httpx
import pytest
from structlog.testing import capture_logs

from carteiro.api.app import create_app
from carteiro.domain.outcomes import message_key
from carteiro.providers.registry import parser_of
from carteiro.services.broadcast import Directory
from carteiro.services.receive import apply_all
from carteiro.settings import Settings
from carteiro.storage.pool import Pool
from tests.api.problems import assert_problem
from tests.providers.meta.shapes import change, payload, status
from tests.support.factories import value
from tests.support.meta import NUMBERS, STRANGER, add_meta_batch, results

PATH = "/webhooks/whatsapp-status"
OLD, NEW = "old-app-secret", "new-app-secret"


@pytest.fixture
async def http(pool: Pool, directory: Directory) -> AsyncIterator[httpx.AsyncClient]:
    settings = Settings(meta_app_secrets=(OLD, NEW), meta_verify_token="let-me-in")
    app = create_app(settings, pool, directory)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)  # type: ignore[arg-type]
    async with httpx.AsyncClient(transport=transport, base_url="http://carteiro.test") as client:
        yield client


def signed(body: bytes, secret: str = NEW) -> dict[str, str]:
    return {"X-Hub-Signature-256": f"sha256={hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()}"}


async def states(pool: Pool) -> dict[str, int]:
    async with pool.connection() as conn:
        cursor = await conn.execute("SELECT status, count(*)::int FROM message GROUP BY status")
        return dict(await cursor.fetchall())


async def test_the_challenge_is_answered_to_who_knows_the_token(http: httpx.AsyncClient) -> None:
    asked = {"hub.mode": "subscribe", "hub.challenge": "1158201444", "hub.verify_token": "let-me-in"}
    answer = await http.get(PATH, params=asked)
    assert (answer.status_code, answer.text) == (200, "1158201444")
    assert answer.headers["content-type"].startswith("text/plain")
    for wrong in ({"hub.verify_token": "guess"}, {"hub.mode": "unsubscribe"}, {"hub.verify_token": ""}):
        assert_problem(await http.get(PATH, params=asked | wrong), 401, "not-genuine")
    assert_problem(await http.get(PATH), 401, "not-genuine")


async def test_nothing_is_stored_without_a_right_signature(http: httpx.AsyncClient, pool: Pool) -> None:
    body = payload([change(statuses=[status()])])
    right = signed(body)["X-Hub-Signature-256"]
    wrong = [
        {},
        signed(body, "guess"),
        signed(body + b" "),
        {"X-Hub-Signature-256": right.removeprefix("sha256=")},
        {"X-Hub-Signature-256": right.upper()},
        {"X-Hub-Signature-256": "sha256=é".encode().decode("latin-1")},
        {"X-Hub-Signature": right},
    ]
    for headers in wrong:
        raw = [(name.encode(), text.encode("latin-1")) for name, text in headers.items()]
        assert_problem(await http.post(PATH, content=body, headers=raw), 401, "not-genuine")
    assert (
        await value(pool, "SELECT (SELECT count(*) FROM receipt_payload) + (SELECT count(*) FROM receipt_inbox)") == 0
    )

    with capture_logs() as logs:
        for secret in (OLD, NEW):
            assert (await http.post(PATH, content=body, headers=signed(body, secret))).status_code == 200
    assert await value(pool, "SELECT count(*) FROM receipt_payload WHERE body = %s AND provider = 'meta'", body) == 2
    assert not any(secret in str(logs) + repr(Settings(meta_app_secrets=(OLD, NEW))) for secret in (OLD, NEW))


async def test_without_secrets_nobody_is_believed(anonymous: httpx.AsyncClient) -> None:
    body = payload()
    assert_problem(await anonymous.post(PATH, content=body, headers=signed(body, "")), 401, "not-genuine")
    assert_problem(await anonymous.get(PATH, params={"hub.mode": "subscribe"}), 401, "not-genuine")


async def test_every_good_status_of_many_counts_and_a_replay_changes_nothing(
    http: httpx.AsyncClient, pool: Pool
) -> None:
    batch_id = await add_meta_batch(pool, ["sent"] * 24)
    told = [status(message_key(batch_id, seq), recipient_id="553187650001") for seq in range(1, 25)]
    told[5] |= {"biz_opaque_callback_data": "o7:42:000001"}
    told[10] |= {"timestamp": "soon"}
    del told[15]["recipient_id"]
    entries = [
        [change(number, statuses=told[first : first + 4]) for first, number in zip((at, at + 4), NUMBERS, strict=True)]
        for at in (0, 8, 16)
    ]
    entries[2][1]["value"]["metadata"]["phone_number_id"] = STRANGER
    entries[2][1]["value"]["statuses"] = [told[20]]
    entries[2].append(change(NUMBERS[0], statuses=told[21:]))
    body = payload(*entries)

    for _ in range(2):
        assert (await http.post(PATH, content=body, headers=signed(body))).status_code == 200
        await apply_all(pool, parser_of)
        assert await states(pool) == {"delivered": 21, "sent": 3}
    assert await results(pool) == {"applied": 21, "repeated": 21, "orphan": 4, "malformed": 2}
    assert await value(pool, "SELECT count(DISTINCT detail) FROM receipt WHERE result = 'orphan'") == 2
    assert await value(pool, "SELECT array_agg(seq ORDER BY seq) FROM message WHERE status = 'sent'") == [6, 11, 21]


async def test_a_thousand_updates_in_one_post(http: httpx.AsyncClient, pool: Pool) -> None:
    batch_id = await add_meta_batch(pool, ["sent"] * 1000)
    told = [status(message_key(batch_id, seq), errors=[{"title": "x" * 2500}]) for seq in range(1, 1001)]
    body = payload([change(NUMBERS[0], statuses=told)])
    assert 2_700_000 < len(body) < 3_000_000
    assert (await http.post(PATH, content=body, headers=signed(body))).status_code == 200
    await apply_all(pool, parser_of)
    assert await states(pool) == {"delivered": 1000}
