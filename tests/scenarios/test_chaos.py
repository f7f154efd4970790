"""Everything at once: short windows, a provider that fails in every way, workers killed and frozen, jobs lost."""

import random
import signal

import pytest

from tests.scenarios.conftest import StackStarter
from tests.scenarios.test_faults import LOST, RETURNED
from tests.support.stack import window

N = 600
WINDOW_S = 8.0
LIMIT = 100
SEED = 7


@pytest.mark.chaos
async def test_every_promise_holds_under_faults_kills_and_freezes(start: StackStarter) -> None:
    dice = random.Random(SEED)
    settings = {**window(WINDOW_S), "CARTEIRO_LEASE_S": "2", "CARTEIRO_RECONCILE_AFTER_S": "1"}
    catalog = {"bms": 3, "bm_limit": LIMIT, "messages_per_second": 150}
    async with start(catalog, workers=3, settings=settings, simulator=["--jitter-ms", "60"]) as stack:
        for plan in (*RETURNED.values(), *LOST.values(), {"answer": "reject", "status_id": 52}):
            await stack.simulator.fault(plan=plan, probability=0.01)
        api = await stack.client()
        batch_ids = [await api.create(N // 3, start=first, on_capacity="spill") for first in range(0, N, N // 3)]
        frozen = None
        for gone in range(60, N - 120, 60):
            total = 0
            while total < gone:
                seen = [await api.batch(batch_id) for batch_id in batch_ids]
                total = sum(sum(each["counts"][state] for state in ("sent", "delivered", "seen")) for each in seen)
                stack.check_alive()
            if frozen is not None and frozen.running:
                frozen.signal(signal.SIGCONT)
            victims = [worker for worker in stack.workers if worker.running]
            victim = dice.choice(victims)
            if dice.random() < 0.5:
                victim.kill()
                await stack.start_workers(1)
            else:
                victim.signal(signal.SIGSTOP)
                frozen = victim
            async with stack.pool.connection() as conn:
                await conn.execute("TRUNCATE procrastinate_jobs, procrastinate_events RESTART IDENTITY CASCADE")
        for worker in stack.workers:
            if worker.running:
                worker.signal(signal.SIGCONT)
        for batch_id in batch_ids:
            seen_at_last = await stack.settled(api, batch_id, 90)
            counts = seen_at_last["counts"]
            assert counts["delivered"] + counts["seen"] + counts["failed"] == N // 3
        evidence = (await stack.check()).accepted
        assert evidence.most_in(WINDOW_S, by=lambda arrival: arrival.sender) <= LIMIT
