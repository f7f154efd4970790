"""What the provider says, and what is too old, with real processes and batches under way."""

from typing import Any

from tests.scenarios.conftest import StackStarter
from tests.support.ages import make_partitions, partition_of, tables
from tests.support.factories import sender_id, value
from tests.support.stack import Stack
from tests.support.waiting import until

SENDERS = {"senders_per_bm": 2, "bm_limit": None, "messages_per_second": 60}
OFTEN = {"CARTEIRO_SYNC_EVERY_S": "0.5"}
ONE, OTHER = sender_id(1, 1), sender_id(1, 2)


async def tell(stack: Stack, path: str, **body: Any) -> None:
    assert (await stack.simulator.http.post(f"/{path}", json=body)).is_success


async def status_is(stack: Stack, query: str, status: str) -> None:
    async def told() -> bool:
        return bool(await value(stack.pool, query) == status)

    await until(told, 10, f"{query} is {status}")


async def test_a_banned_sender_is_called_no_more_and_again_when_it_is_connected(start: StackStarter) -> None:
    query = f"SELECT status FROM sender WHERE id = '{ONE}'"
    async with start(SENDERS, workers=2, settings=OFTEN) as stack:
        api = await stack.client()
        batch_id = await api.create(360)
        await stack.counted(api, batch_id, 20, gone=40)
        await tell(stack, "senders", sender=ONE, status="BANNED")
        await status_is(stack, query, "BANNED")
        seen = await stack.counted(api, batch_id, 20, pending_send=0)
        # What was claimed before has left once so many more are gone.
        await stack.counted(api, batch_id, 20, gone=seen["counts"]["gone"] + 40)
        before = (await stack.simulator.evidence()).arrivals
        await stack.counted(api, batch_id, 20, gone=seen["counts"]["gone"] + 80)
        after = (await stack.simulator.evidence()).arrivals[len(before) :]
        assert {arrival.sender for arrival in after} == {OTHER}
        await tell(stack, "senders", sender=ONE, status="CONNECTED")
        await status_is(stack, query, "ACTIVE")
        await stack.settled(api, batch_id)
        evidence = await stack.check()
        assert {arrival.sender for arrival in evidence.arrivals[-40:]} == {ONE, OTHER}
        assert len(evidence.arrivals) == 360


async def test_a_lowered_limit_holds_while_batches_run(start: StackStarter) -> None:
    async with start(SENDERS, workers=2, settings=OFTEN) as stack:
        await tell(stack, "senders", limit="LIMIT_1K")
        await status_is(stack, "SELECT daily_limit_synced::text FROM business_manager", "1000")
        api = await stack.client()
        batches = [await api.create(100, start=at * 1_000) for at in range(3)]
        await stack.counted(api, batches[0], 20, gone=10)
        await tell(stack, "senders", limit="LIMIT_250")
        await status_is(stack, "SELECT daily_limit_synced::text FROM business_manager", "250")
        assert await value(stack.pool, "SELECT used + held FROM capacity_meter WHERE kind = 'bm'") <= 250
        for batch_id in batches[:2]:
            await stack.settled(api, batch_id)
        await stack.waiting(api, batches[2], "capacity", timeout_s=20)
        assert (await api.batch(batches[2]))["counts"]["pending"] == 50
        assert await stack.simulator.accepted() == 250
        await tell(stack, "senders", limit="LIMIT_1K")
        await stack.settled(api, batches[2])
        await stack.check()


async def test_a_template_stops_by_webhook_and_goes_on(start: StackStarter) -> None:
    never = {"CARTEIRO_SYNC_EVERY_S": "3600"}
    async with start(SENDERS, settings=never) as stack:
        api = await stack.client()
        token = await value(stack.pool, "SELECT webhook_token FROM service")
        notice = {"name": "order_update_v1", "notify_url": f"{stack.api_url}/webhooks/infobip/{token}"}
        batch_id = await api.create(200)
        await stack.counted(api, batch_id, 20, gone=20)
        await tell(stack, "templates", status="FIRST_PAUSED", **notice)
        await status_is(stack, "SELECT status FROM submission", "FIRST_PAUSED")
        await stack.waiting(api, batch_id, "no_active_senders")
        await tell(stack, "templates", status="APPROVED", **notice)
        await status_is(stack, "SELECT status FROM submission", "APPROVED")
        async with stack.pool.connection() as conn:
            await conn.execute("UPDATE batch SET next_attempt_at = NULL")  # a minute in production
        await stack.settled(api, batch_id)
        await stack.check()


async def test_a_worker_lets_go_of_what_is_old(start: StackStarter) -> None:
    async with start(SENDERS, workers=0) as stack:
        await make_partitions(stack.pool, weeks_back=16)
        old = await partition_of(stack.pool, "message", 100)
        assert old in await tables(stack.pool, "message")
        await stack.start_workers(2)
        api = await stack.client()
        batch_id = await api.create(40)

        async def gone() -> bool:
            # Weeks are decided and dropped one after the other.
            undone = await value(stack.pool, "SELECT count(*) FROM partition_drop WHERE dropped_at IS NULL")
            return not undone and old not in await tables(stack.pool, "message")

        await until(gone, 20, "old weeks are dropped")
        await stack.settled(api, batch_id)
        await stack.check()
