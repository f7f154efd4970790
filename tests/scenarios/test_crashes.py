"""Workers and the database come and go under load; nothing is lost, and nothing is sent twice.

One fault at a time, in a known order; the rig of tests/chaos strikes at random.
"""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from carteiro.embedded import Cluster
from carteiro.storage.migrations import migrate
from tests.scenarios.conftest import StackStarter
from tests.support.dispatching import counts
from tests.support.factories import value
from tests.support.processes import ChildProcess, Processes, running_processes
from tests.support.stack import Stack, running_stack
from tests.support.waiting import until

LOAD = {"bms": 4, "bm_limit": None, "messages_per_second": 300}
N = 1_200


async def finished(stack: Stack, batch_id: object, timeout_s: float = 40) -> None:
    seen = await stack.settled(stack.clients[0], batch_id, timeout_s)  # type: ignore[arg-type]
    assert seen["status"] == "completed"
    assert seen["counts"]["delivered"] + seen["counts"]["seen"] == N, seen["counts"]
    evidence = await stack.check()
    assert len(evidence.accepted) == N


async def freeze_at_work(stack: Stack) -> ChildProcess:
    """SIGSTOP a worker in the middle of its calls. A claim's worker is named by host, process id and a random part."""

    async def freeze() -> ChildProcess | None:
        for worker in stack.workers:
            if worker.running:
                worker.signal(signal.SIGSTOP)
                if await value(stack.pool, OPEN, worker.pid):
                    return worker
                worker.signal(signal.SIGCONT)
        return None

    found: ChildProcess = await until(freeze, 10, "a worker is at work")
    return found


OPEN = "SELECT count(*) FROM claim WHERE closed_at IS NULL AND split_part(worker_id, '-', -2) = %s::text"
LAPSED = "SELECT count(*) FROM claim WHERE closed_at > lease_until AND split_part(worker_id, '-', -2) = %s::text"


async def test_kill_9_of_a_worker_sends_nothing_twice_and_loses_nothing(start: StackStarter) -> None:
    async with start(LOAD, workers=2, simulator=["--latency-ms", "150"]) as stack:
        api = await stack.client()
        batch_id = await api.create(N)
        await stack.counted(api, batch_id, 20, gone=200)
        dead = await freeze_at_work(stack)
        dead.kill()
        # The other goes on, and what the dead one had begun is looked up when its leases lapse.
        await stack.counted(api, batch_id, 20, gone=400)
        await stack.start_workers(1)
        await finished(stack, batch_id)
        assert await value(stack.pool, LAPSED, dead.pid) > 0
        assert await value(stack.pool, "SELECT count(*) FROM claim WHERE closed_at IS NULL") == 0


async def test_sigterm_leaves_nothing_unknown(start: StackStarter) -> None:
    async with start(LOAD, workers=2, simulator=["--latency-ms", "100"]) as stack:
        api = await stack.client()
        batch_id = await api.create(N)
        await stack.counted(api, batch_id, 20, gone=200)
        assert [worker.stop() for worker in stack.workers] == [0, 0]
        left = await counts(stack.pool)
        assert left["pending"] > 0
        assert left.keys() <= {"pending", "sent", "delivered", "seen"}
        assert await value(stack.pool, "SELECT count(*) FROM claim WHERE closed_at IS NULL") == 0
        assert await value(stack.pool, "SELECT max(attempt) FROM message") == 0
        await stack.start_workers(1)
        await finished(stack, batch_id)
        assert await value(stack.pool, "SELECT count(*) FROM message_event WHERE event = 'lost'") == 0


async def test_a_frozen_worker_that_thaws_after_its_lease_sends_nothing_late(start: StackStarter) -> None:
    async with start(LOAD, workers=2, simulator=["--latency-ms", "150"]) as stack:
        api = await stack.client()
        batch_id = await api.create(N)
        await stack.counted(api, batch_id, 20, gone=200)
        frozen = await freeze_at_work(stack)
        await until(lambda: value(stack.pool, LAPSED, frozen.pid), 20, "the frozen worker's leases lapsed")
        frozen.signal(signal.SIGCONT)
        await finished(stack, batch_id)


@pytest.fixture
def own_processes(own_cluster: Cluster, tmp_path: Path) -> Iterator[Processes]:
    migrate(own_cluster.dsn())
    with running_processes(tmp_path, {"CARTEIRO_DATABASE_URL": own_cluster.dsn()}) as started:
        yield started


@pytest.mark.parametrize("how", ["restarted", "killed"])
async def test_workers_go_on_by_themselves_when_postgres_comes_back(
    own_cluster: Cluster, own_processes: Processes, how: str
) -> None:
    async with running_stack(own_cluster.dsn(), own_processes, LOAD, workers=2) as stack:
        api = await stack.client()
        batch_id = await api.create(N)
        await stack.counted(api, batch_id, 20, gone=300)
        if how == "killed":
            own_cluster.kill()
        else:
            own_cluster.stop()
        before = await stack.simulator.accepted()
        own_cluster.start()
        back_s = time.monotonic()

        async def goes_on() -> bool:
            stack.check_alive()
            return await stack.simulator.accepted() > before + 100

        await until(goes_on, 20, "calls go out again")
        assert time.monotonic() - back_s < 10.0
        await finished(stack, batch_id)
