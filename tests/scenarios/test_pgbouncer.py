"""The API behind PgBouncer in transaction mode, the worker beside it: three connections for twenty."""

import asyncio
import json
from collections import Counter
from typing import Any
from uuid import UUID

import httpx
import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from carteiro.settings import SettingsError
from carteiro.storage.migrations import migrate
from carteiro.storage.pool import open_pool
from tests.scenarios.conftest import StackStarter
from tests.support.factories import batch_body, value
from tests.support.pooler import PROGRAM, running_pooler
from tests.support.stack import Api, Stack
from tests.support.waiting import until

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="pgbouncer is not installed (apt-get install pgbouncer)")

CONNECTIONS = 3
ROOM = 3_600
"""Messages a day."""
CATALOG = {"bms": 3, "bm_limit": ROOM // 3, "messages_per_second": 1_500}
ORDERS, CONTACTS = 20, 20
STREAMED, WHOLE, SMALL = 1_500, 1_100, 20
TAKEN = ORDERS * CONTACTS + STREAMED + WHOLE + SMALL


async def test_the_api_keeps_its_promises_behind_a_pooler_in_transaction_mode(
    start: StackStarter, postgres_dsn: str
) -> None:
    async with running_pooler(postgres_dsn, connections=CONNECTIONS) as pooler_dsn:
        await give_sessions_what_they_need(postgres_dsn, pooler_dsn)
        settings = {"CARTEIRO_DATABASE_POOLER_URL": pooler_dsn, "CARTEIRO_POOL_MAX_SIZE": "20"}
        async with start(CATALOG, settings=settings) as stack:
            api = await stack.client()

            # Each of twenty requests twice at once, by a key of its own: one batch each.
            callback_url = stack.simulator.callback_url
            orders = [batch_body(CONTACTS, start=CONTACTS * n, callback_url=callback_url) for n in range(ORDERS)]
            answers = await asyncio.gather(
                *(api.post(body, f"order-{n}") for n, body in enumerate(orders)),
                *(api.post(body, f"order-{n}") for n, body in enumerate(orders)),
            )
            assert {answer.status_code for answer in answers} == {202}
            replayed = Counter(answer.headers.get("idempotent-replayed") for answer in answers)
            assert replayed == {None: ORDERS, "true": ORDERS}
            assert (await api.post(orders[1], "order-0")).status_code == 422

            # A stream, and a body of more rows than one transaction takes, beside small ones.
            answers += await asyncio.gather(
                stream(api, STREAMED, start=1_000),
                api.post(batch_body(WHOLE, start=4_000)),
                *(api.post(batch_body(1, start=6_000 + n)) for n in range(SMALL)),
            )
            assert {answer.status_code for answer in answers} == {202}
            refused = (await stream(api, 1_000, start=8_000)).json()
            assert (refused["code"], refused["available"]) == ("capacity-exhausted", ROOM - TAKEN)
            finished = {UUID(answer.json()["id"]) for answer in answers}
            assert len(finished) == ORDERS + SMALL + 2

            await stack.set_pace(bm_per_minute=3_000)
            halted, ended = await api.create(150, start=9_000), await api.create(150, start=9_300)
            for batch_id, action in ((halted, "pause"), (ended, "cancel")):
                await stack.counted(api, batch_id, 20, gone=1)
                answer = await api.http.post(f"/batches/{batch_id}/{action}")
                assert answer.status_code == 200, answer.text
            before = len((await stack.simulator.evidence()).of(halted))
            await stack.set_pace(bm_per_minute=None)
            for batch_id in finished:
                seen = await stack.settled(api, batch_id)
                assert seen["counts"]["delivered"] + seen["counts"]["seen"] == seen["total"], seen
            assert len((await stack.simulator.evidence()).of(halted)) == before
            answer = await api.http.post(f"/batches/{halted}/resume")
            assert answer.status_code == 200, answer.text
            assert (await stack.settled(api, halted))["money"]["charged"] == 150
            assert (await stack.settled(api, ended))["counts"]["unsent"] > 0

            evidence = await stack.check()
            assert sum(len(evidence.of(batch_id).accepted) for batch_id in finished) == TAKEN
            assert len(evidence.of(halted).accepted) == 150

            async def called_back() -> bool:
                return len(await stack.simulator.callbacks()) == ORDERS

            await until(called_back, 5, "a callback for each order")
            # It had no connection beside the pooler's.
            sessions = await value(
                stack.pool,
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
                " AND application_name = 'carteiro-api'",
            )
            assert 1 <= sessions <= CONNECTIONS
            await sessions_lose_it_again(stack, postgres_dsn, pooler_dsn)


async def give_sessions_what_they_need(dsn: str, pooler_dsn: str) -> None:
    """Nothing of ours runs through the pooler unless it may, and its sessions are as they must be; the refusal says how
    to make them so.
    """
    with pytest.raises(SettingsError, match="must be a direct connection"):
        migrate(pooler_dsn)
    with pytest.raises(SettingsError, match="must be a direct connection"):
        await connect(pooler_dsn, pooled=False)
    with pytest.raises(SettingsError, match="idle_in_transaction_session_timeout = 0") as refusal:
        await connect(pooler_dsn, pooled=True)
    remedy = str(refusal.value).partition("Run: ")[2].partition("; then RECONNECT in the pooler")[0]
    with psycopg.connect(dsn, autocommit=True) as session:
        session.execute(remedy.encode())
    with psycopg.connect(pooler_dsn, dbname="pgbouncer", autocommit=True) as console:
        console.execute("RECONNECT")
    await connect(pooler_dsn, pooled=True)


async def sessions_lose_it_again(stack: Stack, dsn: str, pooler_dsn: str) -> None:
    """An API that runs already says so, too."""
    with psycopg.connect(dsn, autocommit=True) as session:
        session.execute(SQL("ALTER ROLE CURRENT_USER IN DATABASE {} RESET ALL").format(Identifier(session.info.dbname)))
    with psycopg.connect(pooler_dsn, dbname="pgbouncer", autocommit=True) as console:
        console.execute("RECONNECT")
    async with httpx.AsyncClient(base_url=stack.api_url) as anybody:

        async def says_so() -> bool:
            return "ALTER ROLE" in (await anybody.get("/readyz")).text

        await until(says_so, 5, "the API says what its sessions lack")


async def connect(dsn: str, *, pooled: bool) -> None:
    async with open_pool(dsn, min_size=1, max_size=1, application_name="tests", pooled=pooled):
        pass


async def stream(api: Api, n: int, *, start: int) -> httpx.Response:
    body: dict[str, Any] = batch_body(n, start=start)
    contacts = body.pop("contacts")
    lines = "".join(json.dumps(line) + "\n" for line in (body, *contacts))
    return await api.http.post("/batches", content=lines.encode(), headers={"content-type": "application/x-ndjson"})
