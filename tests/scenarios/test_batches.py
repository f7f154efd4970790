"""Batches side by side: each with its own parameters, none held up by another, none created twice."""

import asyncio
import time
from collections import Counter

from tests.scenarios.conftest import StackStarter
from tests.support.factories import batch_body, contacts, value

FREE = {"bms": 2, "bm_limit": None, "messages_per_second": 1_000}


async def test_five_batches_of_one_template_at_once_keep_their_parameters(start: StackStarter) -> None:
    n = 80
    async with start(FREE, workers=2) as stack:
        api = await stack.client()
        bodies = []
        for number in range(5):
            # The same people in all of them: only the parameters tell the batches apart.
            body = batch_body(n)
            for seq, contact in enumerate(body["contacts"], start=1):
                contact["placeholders"] = [f"batch {number}", f"order {number}-{seq}"]
            bodies.append(body)
        answers = await asyncio.gather(*(api.post(body) for body in bodies))
        assert [answer.status_code for answer in answers] == [202] * 5
        batch_ids = [answer.json()["id"] for answer in answers]
        for batch_id in batch_ids:
            seen = await stack.settled(api, batch_id)
            assert seen["counts"]["delivered"] + seen["counts"]["seen"] == n
            assert seen["money"]["charged"] == n
        evidence = await stack.check()
        assert len(evidence) == 5 * n
        for number, batch_id in enumerate(batch_ids):
            for arrival in evidence.of(batch_id).arrivals:
                seq = int(arrival.message_id.partition("-")[2])
                assert arrival.placeholders == [f"batch {number}", f"order {number}-{seq}"]
                assert arrival.to == contacts(n)[seq - 1].phone.lstrip("+")


async def test_a_batch_of_ten_finishes_beside_a_large_one(start: StackStarter) -> None:
    async with start({**FREE, "messages_per_second": 200}, workers=2) as stack:
        api = await stack.client()
        large = await api.create(3_000)
        await stack.counted(api, large, 20, gone=100)
        created_s = time.monotonic()
        small = await api.create(10, start=3_000)
        await stack.counted(api, small, 10, gone=10)
        assert time.monotonic() - created_s < 2.0
        assert (await api.batch(large))["counts"]["pending"] > 0


async def test_max_inflight_of_one_is_strictly_serial(start: StackStarter) -> None:
    async with start({**FREE, "max_inflight": 1}, workers=2, simulator=["--latency-ms", "40"]) as stack:
        api = await stack.client()
        batch_id = await api.create(12)
        await stack.settled(api, batch_id)
        evidence = await stack.check()
        assert len(evidence) == 12
        # Each call is answered 40 ms after its arrival, and only then may the next one be claimed.
        assert evidence.smallest_gap_s() >= 0.04


async def test_fifty_identical_creates_at_once_are_one_batch_and_one_debit(start: StackStarter) -> None:
    async with start(FREE, credits=1_000) as stack:
        api = await stack.client()
        answers = await asyncio.gather(*(api.post(batch_body(20)) for _ in range(50)))
        assert [answer.status_code for answer in answers] == [202] * 50
        assert len({answer.json()["id"] for answer in answers}) == 1
        replayed = Counter(answer.headers.get("idempotent-replayed") for answer in answers)
        assert replayed == {None: 1, "true": 49}
        assert await api.credits() == 980
        await stack.settled(api, answers[0].json()["id"])
        assert len(await stack.check()) == 20


async def test_fifty_creates_at_once_on_credits_for_ten(start: StackStarter) -> None:
    async with start(FREE, credits=50) as stack:
        api = await stack.client()
        answers = await asyncio.gather(*(api.post(batch_body(5, start=5 * number)) for number in range(50)))
        by_status = Counter(answer.status_code for answer in answers)
        assert by_status == {202: 10, 402: 40}
        refusals = {answer.json()["code"] for answer in answers if answer.status_code == 402}
        assert refusals == {"insufficient-credits"}
        assert await api.credits() == 0
        assert await value(stack.pool, "SELECT count(*) FROM batch") == 10
        for answer in answers:
            if answer.status_code == 202:
                await stack.settled(api, answer.json()["id"])
        assert len(await stack.check()) == 50
