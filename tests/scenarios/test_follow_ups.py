"""Two-step batches through real processes: whoever answers is followed up once, whoever is killed meanwhile."""

from collections import Counter
from uuid import UUID

from carteiro.domain.outcomes import followup_key, message_key
from tests.scenarios.conftest import StackStarter
from tests.support.factories import value
from tests.support.stack import Stack
from tests.support.waiting import until

FREE = {"bms": 2, "bm_limit": None, "messages_per_second": 300}
N = 60


async def answered(stack: Stack, batch_id: UUID, seqs: range, **order: object) -> None:
    body = {"message_ids": [message_key(batch_id, seq) for seq in seqs], **order}
    answer = await stack.simulator.http.post("/answers", json=body)
    assert answer.status_code == 200, answer.text
    assert answer.json() == {"contacts": len(seqs)}


async def follow_ups(stack: Stack, *statuses: str) -> int:
    found: int = await value(stack.pool, "SELECT count(*) FROM follow_up WHERE status = ANY(%s)", list(statuses))
    return found


async def test_ten_answers_are_followed_up_once_also_when_workers_are_killed(start: StackStarter) -> None:
    async with start(FREE, workers=2, simulator=["--latency-ms", "20"]) as stack:
        api = await stack.client()
        batch_id = await api.create(N, follow_up={"text": "Aqui estão os detalhes."})
        await stack.settled(api, batch_id)

        # At once, by context and by phone, and told twice.
        await answered(stack, batch_id, range(1, 21), times=10, posts=2)
        await answered(stack, batch_id, range(1, 21), times=10, context=False, short=True)
        await until(lambda: first_left(stack), 5, "the first follow-up leaves")
        await until(lambda: all_delivered(stack, 20), 15, "twenty follow-ups are delivered")

        # A worker dies between claim and record: what it had in hand stays unknown, or its receipt settles it.
        await stack.simulator.http.post("/settings", json={"latency_ms": 400})
        await answered(stack, batch_id, range(21, N + 1), kind="button")
        await until(lambda: follow_ups(stack, "pending_send"), 10, "follow-ups are on their way")
        for worker in stack.workers[:2]:
            worker.kill()
        await stack.start_workers(1)
        await answered(stack, batch_id, range(1, N + 1), times=2)
        await until(lambda: all_delivered(stack, N), 25, "every follow-up is delivered or known to be lost")

        seen = Counter(arrival.message_id for arrival in (await stack.simulator.evidence()).arrivals)
        assert max(seen.values()) == 1
        listed = await api.messages(batch_id)
        for message in listed:
            sent = seen[followup_key(batch_id, message["seq"])]
            assert message["follow_up"]["status"] in (("delivered", "seen") if sent else ("unknown",)), message
        counts = (await api.batch(batch_id))["counts"]
        assert counts["delivered"] + counts["seen"] == N
        assert await api.credits() == 100_000 - N
        await stack.check()


async def first_left(stack: Stack) -> bool:
    arrivals = (await stack.simulator.evidence()).arrivals
    return any(arrival.message_id.endswith("f") for arrival in arrivals)


async def all_delivered(stack: Stack, n: int) -> bool:
    """What no call was made for is unknown for good: nothing tells that it had not gone."""
    called = {arrival.message_id for arrival in (await stack.simulator.evidence()).arrivals}
    gone = sum(key.endswith("f") for key in called)
    settled = await follow_ups(stack, "delivered", "seen")
    return settled == gone and settled + await follow_ups(stack, "unknown") == n
