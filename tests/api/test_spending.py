"""Capacity and credits over HTTP."""

import httpx

from carteiro.storage.pool import Pool
from tests.support.factories import add_batch, bm_id, sender_id


async def test_capacity_is_told_per_business_manager(client: httpx.AsyncClient, pool: Pool) -> None:
    async with pool.connection() as conn:
        for kind, owner in (("bm", bm_id(1)), ("sender", sender_id(1))):
            await conn.execute("UPDATE capacity_meter SET used = 30 WHERE kind = %s AND owner = %s", (kind, owner))
            await conn.execute(
                "INSERT INTO capacity_bucket VALUES (%s, %s, date_trunc('minute', now()), 30)", (kind, owner)
            )
    await add_batch(pool, 930)
    body = (await client.get("/api/v1/capacity")).json()
    assert body["available"] == 1_000 - 30 - 930
    first = next(room for room in body["business_managers"] if room["business_manager"] == bm_id(1))
    assert (first["limit"], first["used"], first["available"]) == (100, 30, 70 - first["held"])
    assert first["frees_at"]
    assert sum(room["held"] for room in body["business_managers"]) == 930
    assert [room["frees_at"] for room in body["business_managers"]].count(None) == 9


async def test_what_has_left_the_window_counts_no_more(client: httpx.AsyncClient, pool: Pool) -> None:
    async with pool.connection() as conn:
        await conn.execute("UPDATE capacity_meter SET used = 30 WHERE owner = %s", (bm_id(1),))
        await conn.execute(
            "INSERT INTO capacity_bucket VALUES ('bm', %s, now() - interval '24 h 2 min', 30)", (bm_id(1),)
        )
    body = (await client.get("/api/v1/capacity")).json()
    assert body["available"] == 1_000
    assert body["business_managers"][0]["used"] == 0


async def test_without_a_limit_there_is_no_number(client: httpx.AsyncClient, pool: Pool) -> None:
    async with pool.connection() as conn:
        await conn.execute("UPDATE business_manager SET daily_limit_override = NULL WHERE id = %s", (bm_id(1),))
    body = (await client.get("/api/v1/capacity")).json()
    assert body["available"] is None
    assert [room["available"] for room in body["business_managers"]].count(None) == 1


async def test_a_senders_own_limit_bounds_its_business_manager(client: httpx.AsyncClient, pool: Pool) -> None:
    async with pool.connection() as conn:
        await conn.execute("UPDATE sender SET daily_limit = 40, use_waba_limit = false WHERE id = %s", (sender_id(1),))
    assert (await client.get("/api/v1/capacity")).json()["available"] == 940


async def test_senders_that_are_stopped_give_no_capacity(client: httpx.AsyncClient, pool: Pool) -> None:
    async with pool.connection() as conn:
        await conn.execute("UPDATE sender SET active = false WHERE id = %s", (sender_id(1),))
        await conn.execute("UPDATE sender SET stopped_until = now() + interval '1 h' WHERE id = %s", (sender_id(2),))
    assert (await client.get("/api/v1/capacity")).json()["available"] == 800


async def test_credits_and_what_moved_them(client: httpx.AsyncClient, pool: Pool) -> None:
    batch_id = await add_batch(pool, 3)
    assert (await client.get("/api/v1/credits")).json() == {
        "account": "acme",
        "billing_account": "acme",
        "balance": 997,
    }
    first = (await client.get("/api/v1/credits/entries?limit=1")).json()
    entry = first["items"][0]
    assert (entry["kind"], entry["amount"], entry["balance_after"]) == ("debit", -3, 997)
    assert entry["batch_id"] == str(batch_id)
    rest = (await client.get("/api/v1/credits/entries", params={"cursor": first["next_cursor"]})).json()
    assert [(item["kind"], item["amount"]) for item in rest["items"]] == [("grant", 1_000)]
    assert rest["next_cursor"] is None
