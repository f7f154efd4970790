"""The 24-hour limit in a window of seconds: refused, spilled, scheduled, shared; never above it at the simulator."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.scenarios.conftest import StackStarter
from tests.support.factories import SERVICE_FIELDS, batch_body, catalog_text, sender_id
from tests.support.stack import window

WINDOW_S = 15.0
"""Long enough for a busy machine to send a thousand before the first of them leaves it."""
TEN_OF_A_HUNDRED = {"bms": 10, "sender_limit": 100, "bm_limit": 2_000, "messages_per_second": 500}


async def test_more_than_there_is_gets_402_with_what_there_is(start: StackStarter) -> None:
    async with start(TEN_OF_A_HUNDRED) as stack:
        api = await stack.client()
        before = await api.credits()
        answer = await api.post(batch_body(1_200))
        problem = answer.json()
        assert (answer.status_code, problem["code"]) == (402, "capacity-exhausted")
        assert (problem["available"], problem["required"]) == (1_000, 1_200)
        assert await api.credits() == before
        assert (await api.capacity())["available"] == 1_000

        one_above = await api.post(batch_body(1_001))
        assert one_above.json()["available"] == 1_000
        exactly = await api.create(1_000)
        await stack.settled(api, exactly)
        assert len(await stack.check()) == 1_000


@pytest.mark.parametrize("way", ["spill", "scheduled"])
async def test_the_rest_waits_with_a_reason_and_goes_when_the_window_frees(start: StackStarter, way: str) -> None:
    async with start(TEN_OF_A_HUNDRED, workers=2, settings=window(WINDOW_S)) as stack:
        api = await stack.client()
        soon = (datetime.now(UTC) + timedelta(seconds=1)).isoformat()
        options: dict[str, Any] = {"on_capacity": "spill"} if way == "spill" else {"scheduled_at": soon}
        batch_id = await api.create(1_200, **options)
        await stack.counted(api, batch_id, WINDOW_S, gone=1_000)
        seen = await stack.waiting(api, batch_id, "capacity")
        assert seen["status"] == "processing"
        assert seen["counts"]["pending"] == 200
        assert 0 < (datetime.fromisoformat(seen["next_attempt_at"]) - datetime.now(UTC)).total_seconds() <= WINDOW_S + 1

        seen = await stack.settled(api, batch_id, WINDOW_S + 10)
        assert seen["counts"]["delivered"] + seen["counts"]["seen"] == 1_200
        evidence = await stack.check()
        assert len(evidence.accepted) == 1_200
        assert evidence.accepted.most_in(WINDOW_S) == 1_000
        assert evidence.accepted.most_in(WINDOW_S, by=lambda arrival: arrival.sender) == 100
        first = evidence.where(lambda arrival: arrival.at_s < evidence.times_s[0] + WINDOW_S)
        assert first.per_sender == {sender_id(n): 100 for n in range(1, 11)}


async def test_of_two_batches_at_once_the_second_is_refused(start: StackStarter) -> None:
    async with start(TEN_OF_A_HUNDRED) as stack:
        api = await stack.client()
        answers = await asyncio.gather(api.post(batch_body(600)), api.post(batch_body(600, start=600)))
        by_status = {answer.status_code: answer.json() for answer in answers}
        assert set(by_status) == {202, 402}
        assert by_status[402]["available"] == 400
        await stack.settled(api, by_status[202]["id"])
        assert len(await stack.check()) == 600


async def test_two_spilled_batches_at_once_never_exceed_the_window(start: StackStarter) -> None:
    async with start(TEN_OF_A_HUNDRED, workers=2, settings=window(WINDOW_S)) as stack:
        api = await stack.client()
        batch_ids = await asyncio.gather(*(api.create(600, start=first, on_capacity="spill") for first in (0, 600)))
        for batch_id in batch_ids:
            seen = await stack.settled(api, batch_id, 2 * WINDOW_S + 10)
            assert seen["counts"]["delivered"] + seen["counts"]["seen"] == 600
        evidence = (await stack.check()).accepted
        assert len(evidence) == 1_200
        assert evidence.most_in(WINDOW_S) <= 1_000
        assert evidence.most_in(WINDOW_S, by=lambda arrival: arrival.sender) <= 100


async def test_two_accounts_on_the_same_senders_share_limit_and_pace(start: StackStarter) -> None:
    window_s = 6.0
    catalog = catalog_text(bms=2, bm_limit=50, messages_per_second=100) + (
        '[[account]]\nid = "zeta"\n'
        '[[service]]\nid = "zeta-utility"\naccount = "zeta"\nprovider = "infobip"\nmessages_per_second = 100\n'
        f'base_url = "{SERVICE_FIELDS["base_url"]}"\napi_key_env = "INFOBIP_KEY"\n'
    )
    async with start(catalog, workers=2, settings=window(window_s)) as stack:
        async with stack.pool.connection() as conn:
            await conn.execute("INSERT INTO sender_account (account_id, sender_id) SELECT 'zeta', id FROM sender")
        await stack.set_pace(sender_per_second=20)
        ours, theirs = await stack.client(), await stack.client("zeta")
        batch_ids = [
            await ours.create(60),
            await theirs.create(140, service="zeta-utility", on_capacity="spill"),
        ]
        for api, batch_id in zip((ours, theirs), batch_ids, strict=True):
            await stack.settled(api, batch_id, 30)
        evidence = (await stack.check()).accepted
        assert len(evidence) == 200
        assert evidence.most_in(window_s, by=lambda arrival: arrival.sender) == 50
        # Both were at work in the first window, and the pace of a sender is in the audit of `check`.
        first = evidence.where(lambda arrival: arrival.at_s < evidence.times_s[0] + window_s)
        assert [len(first.of(batch_id)) for batch_id in batch_ids] == [60, 40]


async def test_only_where_the_template_is_approved_capacity_counts(start: StackStarter) -> None:
    async with start({**TEN_OF_A_HUNDRED, "approved_bms": 1}) as stack:
        api = await stack.client()
        answer = await api.post(batch_body(101))
        assert (answer.status_code, answer.json()["available"]) == (402, 100)
        batch_id = await api.create(100)
        await stack.settled(api, batch_id)
        evidence = await stack.check()
        assert evidence.per_sender == {sender_id(1): 100}
        assert {arrival.template for arrival in evidence.arrivals} == {"order_update_v1"}


@pytest.mark.parametrize("use_waba_limit", [True, False])
async def test_a_senders_own_limit_counts_unless_only_its_managers_does(
    start: StackStarter, use_waba_limit: bool
) -> None:
    async with start({"bm_limit": 60, "sender_limit": 25, "messages_per_second": 200}) as stack:
        async with stack.pool.connection() as conn:
            await conn.execute("UPDATE sender SET use_waba_limit = %s", (use_waba_limit,))
        api = await stack.client()
        limit = 60 if use_waba_limit else 25
        answer = await api.post(batch_body(limit + 1))
        assert (answer.status_code, answer.json()["available"]) == (402, limit)
        await stack.settled(api, await api.create(limit))
        assert len((await stack.check()).accepted) == limit


async def test_limits_of_one_two_and_three_hold_with_four_workers_and_never_stall(start: StackStarter) -> None:
    window_s, rounds = 2.0, 5
    catalog = {"bms": 3, "bm_limit": 1, "messages_per_second": 100}
    async with start(catalog, workers=4, settings=window(window_s, bucket_s=0.1)) as stack:
        async with stack.pool.connection() as conn:
            await conn.execute("UPDATE business_manager SET daily_limit_override = right(id, 1)::int")
        api = await stack.client()
        # Two batches, so that workers claim for both at once.
        batch_ids = [await api.create(3 * rounds, start=first, on_capacity="spill") for first in (0, 3 * rounds)]
        for batch_id in batch_ids:
            await stack.settled(api, batch_id, 60)
        evidence = (await stack.check()).accepted
        assert len(evidence) == 6 * rounds
        for limit in (1, 2, 3):
            of_manager = evidence.where(lambda arrival, n=limit: arrival.sender == sender_id(n))
            assert of_manager.most_in(window_s) == limit
        # A round takes the window, a bucket, the tolerated lateness and the call's deadline; and the waking up.
        assert evidence.span_s < (rounds - 1) * (window_s + 0.1 + 0.05 + 0.3) + rounds * 1.0
