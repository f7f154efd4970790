"""Broadcasts over HTTP: who may, to whom, how often, and what is told of them."""

import asyncio
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest
import structlog

from carteiro.api.app import create_app
from carteiro.services import broadcast as services
from carteiro.services.broadcast import open_directory
from carteiro.services.catalog import apply_catalog
from carteiro.settings import Settings, SettingsError
from carteiro.storage.pool import Pool
from tests.api.problems import assert_problem
from tests.api.test_batches import move_messages
from tests.support import factories
from tests.support.directories import GROUP, LEADER, LEFT_OUT, RECIPIENTS, load_directory
from tests.support.factories import TEMPLATE, add_key, value

PATH = "/api/v1/broadcasts"
BROADCAST_SERVICE = {"kind": "broadcast", "charge_rule": "free"}


@pytest.fixture
async def http(pool: Pool, postgres_dsn: str, anonymous: httpx.AsyncClient) -> httpx.AsyncClient:
    """A client without a key. The account has a service for broadcasts, no credits, and room for 1,000 messages."""
    load_directory(postgres_dsn)
    await factories.add_account(pool, **BROADCAST_SERVICE)
    return anonymous


async def bearer(pool: Pool, owner: str | None = LEADER, **options: Any) -> dict[str, str]:
    return {"authorization": f"Bearer {await add_key(pool, owner=owner, **options)}"}


def body(**changes: Any) -> dict[str, Any]:
    return {
        "group_id": GROUP,
        "template_name": TEMPLATE,
        "variables": {"1": "all", "2": "7"},
        **changes,
    }


async def test_a_broadcast_is_a_batch_of_the_groups_members(http: httpx.AsyncClient, pool: Pool) -> None:
    leader = await bearer(pool)
    response = await http.post(PATH, json=body(), headers=leader)
    assert response.status_code == 202, response.text
    posted = response.json()
    assert posted.keys() == {"broadcast_id", "public_id", "status", "total_recipients"}
    assert (posted["status"], posted["total_recipients"]) == ("queued", RECIPIENTS)
    assert response.headers["location"] == f"{PATH}/{posted['broadcast_id']}"
    assert "idempotent-replayed" not in response.headers

    for id in (posted["broadcast_id"], posted["public_id"]):
        seen = (await http.get(f"{PATH}/{id}", headers=leader)).json()
        assert (seen["broadcast_id"], seen["public_id"]) == (posted["broadcast_id"], posted["public_id"])
        assert (seen["status"], seen["group_id"], seen["total"]) == ("queued", GROUP, RECIPIENTS)
        assert seen["left_out"] == LEFT_OUT
        assert [seen[step] for step in ("pending", "sent", "delivered", "read", "failed")] == [RECIPIENTS, 0, 0, 0, 0]

    batch = (await http.get(f"/api/v1/batches/{posted['broadcast_id']}", headers=leader)).json()
    assert batch["money"] == {"debited": 0, "charged": 0, "refunded": 0, "held": 0}
    assert batch["on_capacity"] == "spill"
    assert (await http.get("/api/v1/capacity", headers=leader)).json()["business_managers"][0]["held"] == RECIPIENTS
    async with pool.connection() as conn:
        rows = await conn.execute("SELECT DISTINCT placeholders FROM message_content")
        assert await rows.fetchall() == [(["all", "7"],)]
    assert await value(pool, "SELECT variables FROM broadcast") == {"1": "all", "2": "7"}

    # The same content once more is another broadcast: only an Idempotency-Key makes it the same.
    again = (await http.post(PATH, json=body(), headers=leader)).json()
    assert again["broadcast_id"] != posted["broadcast_id"]


async def test_only_an_active_leader_of_the_groups_team_or_its_owner_may(http: httpx.AsyncClient, pool: Pool) -> None:
    refusals = []
    for owner, group in (
        ("carla", GROUP),  # of the team, and no leader
        ("bruno", GROUP),  # an inactive leader
        ("davi", GROUP),  # leads another team
        (LEADER, "suppliers"),
        (LEADER, "neighbours"),
        (LEADER, "nowhere"),
        ("nobody", GROUP),
        (None, GROUP),
    ):
        key = {"idempotency-key": "k"}
        response = await http.post(PATH, json=body(group_id=group), headers=await bearer(pool, owner) | key)
        refusals.append({**assert_problem(response, 403, "forbidden"), "request_id": ""})
    assert all(refusal == refusals[0] for refusal in refusals)
    assert await value(pool, "SELECT count(*) FROM batch") == 0

    # Whoever may not, hears nothing of templates either.
    response = await http.post(PATH, json=body(template_name="gone"), headers=await bearer(pool, "davi"))
    assert_problem(response, 403, "forbidden")
    owned = await http.post(PATH, json=body(group_id="neighbours"), headers=await bearer(pool, "carla"))
    assert (owned.status_code, owned.json()["total_recipients"]) == (202, 1)


async def test_what_is_wrong_with_a_request_is_named(http: httpx.AsyncClient, pool: Pool) -> None:
    leader = await bearer(pool)

    async def refused(code: str, **changes: Any) -> list[dict[str, str]]:
        response = await http.post(PATH, json=body(**changes), headers=leader)
        return assert_problem(response, 400, code)["errors"]

    assert (await refused("template-unknown", template_name="gone"))[0]["pointer"] == "/template_name"
    assert "pt_PT" in (await refused("template-unknown", language="pt_PT"))[0]["detail"]
    for variables, pointer, code in (
        ({"1": "a"}, "/variables", "missing"),
        ({"1": "a", "2": "b", "x/y": "c"}, "/variables/x~1y", "unexpected"),
        ({"1": "a", "2": " "}, "/variables/2", "blank"),
        ({"1": "a", "2": "promoção"}, "/variables", "forbidden-term"),
    ):
        errors = await refused("invalid-request", variables=variables)
        assert [(error["pointer"], error["code"]) for error in errors] == [(pointer, code)]
    for changes, pointer in (
        ({"group_id": 5}, "/group_id"),
        ({"group_id": ""}, "/group_id"),
        ({"variables": {"1": 1}}, "/variables/..."),
        ({"variables": {"1": "x" * 1025, "2": "b"}}, "/variables/..."),
        ({"contacts": []}, ""),
    ):
        assert [error["pointer"] for error in await refused("invalid-request", **changes)] == [pointer]
    assert (await refused("invalid-request", group_id="empty"))[0]["code"] == "too-few"

    async with pool.connection() as conn:
        await conn.execute("UPDATE submission SET status = 'PAUSED'")
    errors = await refused("template-not-approved")
    assert (errors[0]["pointer"], TEMPLATE in errors[0]["detail"]) == ("/template_name", True)
    async with pool.connection() as conn:
        await conn.execute("UPDATE submission SET status = 'APPROVED', signature = '\\x00'")
    assert await refused("template-not-approved")
    # Approved, and held by a sender of another provider only.
    async with pool.connection() as conn:
        await conn.execute("UPDATE submission s SET signature = t.signature FROM template t")
        await conn.execute("UPDATE service SET provider = 'meta'")
    assert await refused("template-not-approved")
    assert await value(pool, "SELECT count(*) FROM batch") == 0


async def test_without_a_service_for_broadcasts_there_are_none(
    pool: Pool, postgres_dsn: str, anonymous: httpx.AsyncClient
) -> None:
    load_directory(postgres_dsn)
    await factories.add_account(pool)
    leader = await bearer(pool)
    assert_problem(await anonymous.post(PATH, json=body(), headers=leader), 409, "conflict")
    # And a service for broadcasts sends no batches.
    await apply_catalog(pool, factories.catalog_text(**BROADCAST_SERVICE))
    response = await anonymous.post("/api/v1/batches", json=factories.batch_body(), headers=leader)
    assert_problem(response, 409, "conflict")


async def test_an_idempotency_key_belongs_to_the_owner(http: httpx.AsyncClient, pool: Pool) -> None:
    key = {"idempotency-key": "k-1"}
    ana, other_of_ana = await bearer(pool), await bearer(pool)
    first = await http.post(PATH, json=body(), headers=ana | key)
    assert first.status_code == 202
    for headers in (ana, other_of_ana):
        repeated = await http.post(PATH, json=body(), headers=headers | key)
        assert repeated.status_code == 202
        assert repeated.json() == first.json()
        assert repeated.headers["idempotent-replayed"] == "true"
    other = await http.post(PATH, json=body(variables={"1": "x", "2": "y"}), headers=ana | key)
    assert_problem(other, 422, "idempotency-key-reused")
    assert await value(pool, "SELECT count(*) FROM batch") == 1

    async with pool.connection() as conn:
        await conn.execute("INSERT INTO demo_directory.team_members VALUES ('south', 'carla', 'LEADER', 'ACTIVE')")
    theirs = await http.post(PATH, json=body(group_id="neighbours"), headers=await bearer(pool, "carla") | key)
    assert theirs.status_code == 202
    assert theirs.json()["broadcast_id"] != first.json()["broadcast_id"]
    # What was accepted stays so for whoever repeats the request, although it would be refused today.
    async with pool.connection() as conn:
        await conn.execute("UPDATE demo_directory.team_members SET status = 'INACTIVE'")
    assert (await http.post(PATH, json=body(), headers=ana | key)).json() == first.json()
    assert_problem(await http.post(PATH, json=body(), headers=ana), 403, "forbidden")


async def test_each_owner_reads_its_own_broadcasts(http: httpx.AsyncClient, pool: Pool) -> None:
    posted = (await http.post(PATH, json=body(), headers=await bearer(pool))).json()
    strangers = [
        await bearer(pool, "davi"),
        await bearer(pool, None),
    ]
    for headers in strangers:
        for id in (posted["broadcast_id"], posted["public_id"]):
            assert_problem(await http.get(f"{PATH}/{id}", headers=headers), 404, "not-found")
            assert_problem(await http.get(f"{PATH}/{id}/recipients", headers=headers), 404, "not-found")
    leader = await bearer(pool)
    for id in ("nothing", "%00", "x" * 16, str(UUID(int=1))):
        assert_problem(await http.get(f"{PATH}/{id}", headers=leader), 404, "not-found")

    sends, reads, neither = [
        await bearer(pool, scopes=[scope]) for scope in ("broadcast:send", "broadcast:read", "batches:read")
    ]
    path = f"{PATH}/{posted['public_id']}"
    assert [(await http.get(path, headers=headers)).status_code for headers in (sends, reads)] == [200, 200]
    told = assert_problem(await http.get(path, headers=neither), 403, "forbidden")
    assert told["required_scope"] == "broadcast:read"
    assert_problem(await http.post(PATH, json=body(), headers=reads), 403, "forbidden")


async def test_progress_and_recipients_are_told_in_this_doors_words(http: httpx.AsyncClient, pool: Pool) -> None:
    async with pool.connection() as conn:
        await conn.execute(
            "DELETE FROM demo_directory.group_members WHERE user_id > 'member-08' AND group_id = 'customers'"
        )
        await conn.execute("DELETE FROM demo_directory.group_members WHERE user_id IN ('left', 'mute', 'wrong')")
    leader = await bearer(pool)
    id = (await http.post(PATH, json=body(), headers=leader)).json()["broadcast_id"]
    await move_messages(pool, id)  # one in each state
    async with pool.connection() as conn:
        await conn.execute("UPDATE message SET code = 'EC_7032' WHERE status = 'failed'")
        await conn.execute("UPDATE message SET code = 'SUPPRESSED' WHERE status = 'unsent'")
    seen = (await http.get(f"{PATH}/{id}", headers=leader)).json()
    assert [seen[step] for step in ("total", "pending", "sent", "delivered", "read", "failed")] == [8, 3, 3, 2, 1, 2]

    path = f"{PATH}/{id}/recipients"
    first = (await http.get(path, params={"limit": 5}, headers=leader)).json()
    rest = (await http.get(path, params={"limit": 5, "cursor": first["next_cursor"]}, headers=leader)).json()
    assert rest["next_cursor"] is None
    items = first["items"] + rest["items"]
    assert [item["seq"] for item in items] == list(range(1, 9))
    words = ["pending", "pending", "pending", "sent", "delivered", "read", "failed", "failed"]
    assert [item["status"] for item in items] == words
    assert [item["attempts"] for item in items] == [0, 1, 1, 1, 1, 1, 1, 0]
    assert items[0]["phone"] == "+5511981000001"
    for word in set(words):
        listed = (await http.get(path, params={"status": word}, headers=leader)).json()["items"]
        assert listed == [item for item in items if item["status"] == word]
    failed = [item["error"] for item in items if item["status"] == "failed"]
    assert failed[0] == {"code": "EC_7032", "detail": "frequency capping"}
    assert failed[1]["code"] == "SUPPRESSED"
    assert "suppression list" in failed[1]["detail"]
    assert [item["error"] for item in items[:6]] == [None] * 6
    assert_problem(await http.get(path, params={"status": "seen"}, headers=leader), 400, "invalid-request")

    # A broadcast is a batch: what ends a batch ends it.
    assert (await http.post(f"/api/v1/batches/{id}/cancel", json={}, headers=leader)).status_code == 200
    assert (await http.get(f"{PATH}/{id}", headers=leader)).json()["status"] == "canceled"


async def test_suppressed_members_are_unsent_and_the_rest_waits_for_room(http: httpx.AsyncClient, pool: Pool) -> None:
    leader = await bearer(pool)
    phones = {"phones": ["+5511981000001", "11 98100-0002"]}
    assert (await http.post("/api/v1/suppressions", json=phones, headers=leader)).status_code == 200
    async with pool.connection() as conn:
        await conn.execute("UPDATE business_manager SET daily_limit_override = 5")
    response = await http.post(PATH, json=body(), headers=leader)
    assert response.status_code == 202
    seen = (await http.get(response.headers["location"], headers=leader)).json()
    assert (seen["total"], seen["pending"], seen["failed"]) == (RECIPIENTS, RECIPIENTS - 2, 2)
    assert await value(pool, "SELECT held FROM capacity_meter WHERE kind = 'bm'") == 5


async def test_a_priced_or_moderated_service_has_its_way(http: httpx.AsyncClient, pool: Pool) -> None:
    leader = await bearer(pool)
    await apply_catalog(pool, factories.catalog_text(kind="broadcast", charge_rule="sent_only", test_mode=True))
    assert_problem(await http.post(PATH, json=body(), headers=leader), 402, "insufficient-credits")
    await factories.grant_credits(pool, "acme", RECIPIENTS, cause="test", actor="test")
    posted = (await http.post(PATH, json=body(), headers=leader)).json()
    batch = (await http.get(f"/api/v1/batches/{posted['broadcast_id']}", headers=leader)).json()
    assert (batch["status"], batch["money"]["debited"]) == ("pending_moderation", RECIPIENTS)
    assert (await http.get(f"{PATH}/{posted['broadcast_id']}", headers=leader)).json()["status"] == "queued"


async def test_without_its_directory_nothing_is_done(http: httpx.AsyncClient, pool: Pool) -> None:
    leader = await bearer(pool)
    async with pool.connection() as conn:
        await conn.execute("DROP SCHEMA demo_directory CASCADE")
    response = await http.post(PATH, json=body(), headers=leader)
    told = assert_problem(response, 503, "unavailable")
    assert "directory" in told["detail"]
    assert response.headers["retry-after"]
    assert await value(pool, "SELECT count(*) FROM batch") == 0


async def test_a_large_group_is_read_in_pages_and_loaded_before_the_locks(
    http: httpx.AsyncClient, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services.directory, "PHONES_IN_PAGE", 300)
    monkeypatch.setattr(services.post, "CONTACTS_MAX", 1_300)
    async with pool.connection() as conn:
        await conn.execute(
            "WITH more AS (INSERT INTO demo_directory.users SELECT format('big-%s', n), 'Member',"
            " '+55119820' || to_char(n, 'FM00000') FROM generate_series(1, 1200) AS n RETURNING id)"
            " INSERT INTO demo_directory.group_members SELECT 'empty', id, 'ACTIVE' FROM more"
        )
    key = {"idempotency-key": "big"}
    leader = await bearer(pool) | key
    answers = await asyncio.gather(*(http.post(PATH, json=body(group_id="empty"), headers=leader) for _ in range(5)))
    assert {answer.status_code for answer in answers} == {202}
    assert {answer.json()["total_recipients"] for answer in answers} == {1_200}
    assert len({answer.json()["public_id"] for answer in answers}) == 1
    assert [answer.headers.get("idempotent-replayed") for answer in answers].count("true") == 4
    # What the others had loaded is gone.
    assert await value(pool, "SELECT count(*) FROM batch") == 1
    assert await value(pool, "SELECT count(*) FROM message") == 1_200
    assert await value(pool, "SELECT count(*) FROM broadcast") == 1

    async with pool.connection() as conn:
        await conn.execute(
            "INSERT INTO demo_directory.group_members SELECT 'empty', id, 'ACTIVE' FROM demo_directory.users"
            " WHERE id LIKE 'member-%' ON CONFLICT DO NOTHING"
        )
    monkeypatch.setattr(services.post, "CONTACTS_MAX", 1_210)
    response = await http.post(PATH, json=body(group_id="empty"), headers=await bearer(pool))
    assert assert_problem(response, 400, "invalid-request")["errors"][0]["code"] == "too-many"


async def test_a_directory_that_is_away_is_told_apart_from_our_own_database(
    pool: Pool, http: httpx.AsyncClient
) -> None:
    away = Settings(database_url="host=127.0.0.1 port=1 dbname=x", directory_timeout_s=0.5)
    async with open_directory(away, application_name="tests directory") as unreachable:
        with structlog.testing.capture_logs() as told_of:
            await unreachable.check(pool)
        assert [line["event"] for line in told_of if line["log_level"] == "warning"] == ["directory_unusable"]
        app = create_app(Settings(), pool, unreachable)
        transport = httpx.ASGITransport(app)  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url="http://carteiro.test") as client:
            leader = await bearer(pool)
            told = assert_problem(await client.post(PATH, json=body(), headers=leader), 503, "unavailable")
            assert told["detail"] == "The directory of groups cannot be reached."
            assert (await client.get("/readyz")).status_code == 200
            assert (await client.get("/api/v1/batches", headers=leader)).json()["items"] == []


async def test_a_file_of_names_that_cannot_be_used_ends_the_start(tmp_path: Path) -> None:
    path = tmp_path / "names.toml"
    for text in ("[users]\nfone = 'x'", None):
        path.unlink(missing_ok=True)
        if text is not None:
            path.write_text(text)
        settings = Settings(database_url="host=127.0.0.1 port=1", directory_names=str(path))
        with pytest.raises(SettingsError, match="CARTEIRO_DIRECTORY_NAMES"):
            async with open_directory(settings, application_name="tests directory"):
                pass
