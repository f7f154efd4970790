"""A hundred messages in one request keep every promise that one in each keeps."""

from tests.scenarios.conftest import StackStarter
from tests.scenarios.test_crashes import freeze_at_work
from tests.support.factories import phone

N = 900
BAD = phone(450).lstrip("+")
LOST = phone(300).lstrip("+")


async def test_limits_a_bad_message_a_lost_answer_and_a_dead_worker(start: StackStarter) -> None:
    catalog = {"bms": 3, "bm_limit": 320, "messages_per_second": 600, "messages_per_request": 100}
    async with start(catalog, workers=2, simulator=["--latency-ms", "100"]) as stack:
        refusal = {"answer": "http", "http_status": 400, "error": "BAD_REQUEST", "text": "Bad request"}
        await stack.simulator.fault(plan=refusal, to=BAD)
        await stack.simulator.fault(plan={"answer": "reset", "accept": True}, to=LOST, calls=1)
        api = await stack.client()
        batch_id = await api.create(N)
        await stack.counted(api, batch_id, 20, gone=100)
        (await freeze_at_work(stack)).kill()
        seen = await stack.settled(api, batch_id, 60)
        assert seen["counts"]["failed"] == 1
        assert seen["counts"]["delivered"] + seen["counts"]["seen"] == N - 1
        # The promises in SQL, no call without its row, nothing twice, never above a limit.
        evidence = await stack.check()
        assert len(evidence.accepted) == N - 1
        requests = {arrival.arrived_ns for arrival in evidence.arrivals}
        assert len(requests) < N / 3
