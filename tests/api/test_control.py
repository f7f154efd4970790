"""Steering a batch over HTTP: the form of the answers, and who may."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import httpx
import pytest

from carteiro.services.finalise import finalise_due
from carteiro.settings import Settings
from carteiro.storage.pool import Pool
from tests.api.problems import assert_problem
from tests.support.factories import add_key, batch_body, value

ACTIONS = ("approve", "cancel", "pause", "reject", "reschedule", "resume", "retry-failed")
BODIES: dict[str, dict[str, Any]] = {"reject": {"reason": "no"}, "reschedule": {"scheduled_at": None}}


async def post_batch(client: httpx.AsyncClient, n: int = 2, **fields: Any) -> str:
    return str((await client.post("/api/v1/batches", json=batch_body(n, **fields))).json()["id"])


async def act(client: httpx.AsyncClient, batch_id: object, action: str, body: Any = None) -> httpx.Response:
    given = {"json": body} if body is not None else {}
    return await client.post(f"/api/v1/batches/{batch_id}/{action}", **given)


async def move(pool: Pool, status: str, event: str) -> None:
    async with pool.connection() as conn:
        await conn.execute("UPDATE batch SET status = %s, event = %s", (status, event))


async def test_pausing_tells_what_is_on_its_way_and_resuming_goes_on(client: httpx.AsyncClient, pool: Pool) -> None:
    batch_id = await post_batch(client)
    await move(pool, "processing", "started")
    for _ in range(2):
        response = await act(client, batch_id, "pause", {"reason": "wrong template"})
        assert response.status_code == 200
        paused = response.json()
        assert (paused["id"], paused["status"], paused["reason"]) == (batch_id, "paused", "wrong template")
        assert paused["already_on_their_way"] == 0
        assert sum(paused["counts"].values()) == paused["total"] == 2
    for _ in range(2):
        response = await act(client, batch_id, "resume")
        assert response.status_code == 200
        assert response.json() == (await client.get(f"/api/v1/batches/{batch_id}")).json()
        assert response.json()["status"] == "processing"


async def test_cancelling_tells_the_counts_and_the_money(client: httpx.AsyncClient) -> None:
    batch_id = await post_batch(client, 3)
    for _ in range(2):
        cancelled = (await act(client, batch_id, "cancel", {})).json()
        assert (cancelled["status"], cancelled["counts"]["unsent"]) == ("cancelled", 3)
        assert cancelled["already_on_their_way"] == 0
        assert cancelled["money"] == {"debited": 3, "charged": 0, "refunded": 0, "held": 3}
        assert cancelled["ended_at"]


async def test_moderation(client: httpx.AsyncClient, pool: Pool) -> None:
    async with pool.connection() as conn:
        await conn.execute("UPDATE service SET test_mode = true")
    good, bad = await post_batch(client), await post_batch(client, start=10)
    assert (await client.get(f"/api/v1/batches/{good}")).json()["blocked_by"] == "moderation"
    approved = await act(client, good, "approve")
    assert (approved.status_code, approved.json()["status"]) == (200, "pending")
    assert_problem(await act(client, bad, "reject"), 400, "invalid-request")
    assert_problem(await act(client, bad, "reject", {"reason": ""}), 400, "invalid-request")
    rejected = await act(client, bad, "reject", {"reason": "promises a discount"})
    assert (rejected.status_code, rejected.json()["status"]) == (200, "cancelled")
    assert rejected.json()["reason"] == "promises a discount"


async def test_rescheduling(client: httpx.AsyncClient) -> None:
    batch_id = await post_batch(client)
    at = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=3)
    given = at.astimezone(tz=None).isoformat()
    response = await act(client, batch_id, "reschedule", {"scheduled_at": given})
    assert response.status_code == 200
    seen = response.json()
    assert (seen["status"], seen["blocked_by"]) == ("pending", "schedule")
    assert datetime.fromisoformat(seen["scheduled_at"]) == at
    assert seen["scheduled_at"].endswith("Z")
    seen = (await act(client, batch_id, "reschedule", {"scheduled_at": None})).json()
    assert (seen["scheduled_at"], seen["blocked_by"]) == (None, None)


@pytest.mark.parametrize(
    ("action", "body", "pointer"),
    [
        ("reschedule", {}, ""),
        ("reschedule", {"scheduled_at": "2027-03-01T09:00:00"}, "/scheduled_at"),
        ("reschedule", {"scheduled_at": "tomorrow"}, "/scheduled_at"),
        ("reschedule", {"scheduled_at": "2127-03-01T09:00:00Z"}, "/scheduled_at"),
        ("pause", {"reason": 1}, "/reason"),
        ("pause", {"reason": "x" * 501}, "/reason"),
        ("cancel", {"reason": "a\x00b"}, "/reason"),
        ("cancel", {"why": "no"}, ""),
        ("resume", [], ""),
    ],
)
async def test_what_is_wrong_with_a_body_is_named(
    client: httpx.AsyncClient, action: str, body: Any, pointer: str
) -> None:
    batch_id = await post_batch(client)
    problem = assert_problem(await act(client, batch_id, action, body), 400, "invalid-request")
    assert [error["pointer"] for error in problem["errors"]] == [pointer]
    assert (await client.get(f"/api/v1/batches/{batch_id}")).json()["status"] == "pending"


async def test_what_is_no_json_is_refused(client: httpx.AsyncClient) -> None:
    path = f"/api/v1/batches/{await post_batch(client)}/cancel"
    assert_problem(await client.post(path, content=b"{"), 400, "invalid-request")
    form = {"content-type": "application/x-www-form-urlencoded"}
    assert_problem(await client.post(path, content=b"reason=x", headers=form), 415, "unsupported-media-type")


async def test_an_illegal_change_is_told_with_what_is_allowed(client: httpx.AsyncClient, pool: Pool) -> None:
    batch_id = await post_batch(client)
    problem = assert_problem(await act(client, batch_id, "pause"), 409, "illegal-transition")
    assert (problem["state"], problem["allowed"]) == ("pending", ["cancel", "reschedule"])
    await move(pool, "processing", "started")
    problem = assert_problem(await act(client, batch_id, "reschedule", BODIES["reschedule"]), 409, "illegal-transition")
    assert (problem["state"], problem["allowed"]) == ("processing", ["cancel", "pause"])
    assert problem["detail"] == "In state processing it cannot be rescheduled."
    await move(pool, "completed", "completed")
    problem = assert_problem(await act(client, batch_id, "cancel"), 409, "illegal-transition")
    assert problem["allowed"] == []


async def test_what_failed_is_retried_as_a_batch_of_its_own(client: httpx.AsyncClient, pool: Pool) -> None:
    parent = await post_batch(client, 2)
    problem = assert_problem(await act(client, parent, "retry-failed"), 409, "not-settled")
    assert problem["state"] == "pending"
    async with pool.connection() as conn:
        await conn.execute("UPDATE batch SET status = 'processing', event = 'started'")
        await conn.execute("UPDATE message SET status = 'failed', event = 'guarded' WHERE seq = 2")
        await conn.execute("UPDATE message SET status = 'unsent', event = 'withdrawn' WHERE seq = 1")
    await finalise_due(pool, Settings())
    first, repeat = [await act(client, parent, "retry-failed") for _ in range(2)]
    assert (first.status_code, repeat.status_code) == (202, 202)
    child = first.json()
    assert (child["parent_batch_id"], child["total"], child["status"]) == (parent, 1, "pending")
    assert first.headers["location"] == repeat.headers["location"] == f"/api/v1/batches/{child['id']}"
    assert (first.headers.get("idempotent-replayed"), repeat.headers["idempotent-replayed"]) == (None, "true")
    assert (await client.get(f"/api/v1/batches/{parent}")).json()["retried_as"] == child["id"]
    assert (await client.get(first.headers["location"])).json() == repeat.json()


@pytest.mark.parametrize("action", ACTIONS)
async def test_a_key_needs_the_scope(client: httpx.AsyncClient, pool: Pool, action: str) -> None:
    batch_id = await post_batch(client)
    client.headers["authorization"] = f"Bearer {await add_key(pool, scopes=['batches:read'])}"
    assert_problem(await act(client, batch_id, action, BODIES.get(action)), 403, "forbidden")
    del client.headers["authorization"]
    assert_problem(await act(client, batch_id, action, BODIES.get(action)), 401, "unauthorized")


@pytest.mark.parametrize("action", ACTIONS)
async def test_another_accounts_batch_is_not_there(client: httpx.AsyncClient, pool: Pool, action: str) -> None:
    batch_id = await post_batch(client)
    async with pool.connection() as conn:
        await conn.execute("INSERT INTO account (id, callback_secret) VALUES ('rival', 'whsec_none')")
    own = client.headers["authorization"]
    client.headers["authorization"] = f"Bearer {await add_key(pool, account='rival')}"
    theirs = assert_problem(await act(client, batch_id, action, BODIES.get(action)), 404, "not-found")
    client.headers["authorization"] = own
    for nobodys in (uuid4(), "7"):
        problem = assert_problem(await act(client, nobodys, action, BODIES.get(action)), 404, "not-found")
        assert problem["detail"] == theirs["detail"]
    assert await value(pool, "SELECT array_agg(DISTINCT event) FROM batch_event") == ["created", "opened"]


async def test_the_history_names_the_key(client: httpx.AsyncClient, pool: Pool) -> None:
    key_id = client.headers["authorization"].split("_")[2]
    await act(client, await post_batch(client), "cancel", {"reason": "ordered twice"})
    last = "SELECT (actor, reason)::text FROM batch_event ORDER BY id DESC LIMIT 1"
    assert await value(pool, last) == f'(key:{key_id},"ordered twice")'
