"""Pause and cancel tell the truth: no call starts after the answer."""

import asyncio
import json
import random
import time
from collections.abc import Awaitable, Callable
from uuid import UUID

import httpx
import pytest

from carteiro.domain.errors import IllegalTransition
from carteiro.services import control
from carteiro.services.audit import violations
from carteiro.services.control import (
    cancel_batch,
    pause_batch,
    resume_batch,
)
from carteiro.services.dispatch.model import Nothing
from carteiro.storage.pool import Pool
from carteiro.worker.signals import hear_halts
from tests.support.dispatching import FakeProvider, counts, meter
from tests.support.factories import add_account, add_key, batch_body, bm_id, value
from tests.support.processes import Processes, free_port
from tests.support.steering import (
    FAST,
    PATIENT,
    SETTINGS,
    add_owner,
    bench,
    change,
    events,
    post,
    running_fleet,
    settle,
    status,
)
from tests.support.waiting import until

# No call starts after the answer


@pytest.mark.parametrize("seed", [1])
async def test_no_call_starts_after_the_answer_to_a_pause(pool: Pool, postgres_dsn: str, seed: int) -> None:
    """Two dispatchers, pauses at random moments. The answer comes by the signal, long before the last slot is past."""
    dice = random.Random(seed)
    owner = await add_owner(pool, messages_per_second=1_000)
    batch_id = await post(pool, owner, 4_000)
    provider = FakeProvider(latency_s=0.03)
    async with running_fleet(pool, postgres_dsn, provider, PATIENT) as fleet:
        for _ in range(25):
            wanted = len(provider.calls) + dice.randint(1, 40)
            await until(lambda wanted=wanted: len(provider.calls) >= wanted, 30, "some calls")
            asked_s = time.monotonic()
            halted = await pause_batch(pool, PATIENT, owner, batch_id)
            answered_s = time.monotonic()
            on_its_way = provider.in_flight
            assert answered_s - asked_s < PATIENT.lateness_s
            assert halted.seen.report.status == "paused"
            assert halted.already_on_their_way >= on_its_way
            assert sum(halted.seen.counts.values()) == 4_000
            await fleet.went_round()
            assert [call for call in provider.calls if call.at_s > answered_s] == []
            assert await counts(pool) == {"sent": len(provider.calls), "pending": 4_000 - len(provider.calls)}
            await resume_batch(pool, owner, batch_id)
    assert provider.most_calls_for_one_message == 1
    assert await events(pool, batch_id) == ["created", "opened", "started", *["paused", "resumed"] * 25]
    assert await violations(pool) == {}


async def test_the_answer_comes_when_the_last_slot_is_past_where_no_worker_hears(pool: Pool, postgres_dsn: str) -> None:
    """Calls that take longer than the slots: their claims stay open, and say nothing about what may still start."""
    owner = await add_owner(pool, messages_per_second=100)
    batch_id = await post(pool, owner, 1_000)
    provider = FakeProvider(latency_s=1.5)
    async with running_fleet(pool, postgres_dsn, provider, SETTINGS, hears=False) as fleet:
        for halt in (pause_batch, pause_batch, cancel_batch):
            wanted = len(provider.calls) + 10
            await until(lambda wanted=wanted: len(provider.calls) >= wanted, 30, "some calls")
            halted = await halt(pool, SETTINGS, owner, batch_id)
            answered_s = time.monotonic()
            assert halted.already_on_their_way >= provider.in_flight > 0
            await fleet.went_round()
            assert [call for call in provider.calls if call.at_s > answered_s] == []
            if halt is pause_batch:
                await resume_batch(pool, owner, batch_id)
    assert await violations(pool) == {}


async def test_a_dead_workers_claim_delays_the_answer_only_until_its_last_slot(pool: Pool) -> None:
    owner = await add_owner(pool)
    batch_id = await post(pool, owner, 3)
    await bench(pool).claimed()
    asked_s = time.monotonic()
    halted = await pause_batch(pool, SETTINGS, owner, batch_id)
    assert time.monotonic() - asked_s < SETTINGS.slice_s + SETTINGS.lateness_s + control.FIRST_BYTE_S + 1
    assert halted.already_on_their_way == 3
    assert await value(
        pool, "SELECT clock_timestamp() > max(last_slot_at) + make_interval(secs => %s) FROM claim", SETTINGS.lateness_s
    )


@pytest.mark.parametrize("seed", [2])
async def test_no_call_starts_after_the_answer_to_a_cancellation(pool: Pool, postgres_dsn: str, seed: int) -> None:
    dice = random.Random(seed)
    owner = await add_owner(pool, messages_per_second=1_000)
    provider = FakeProvider(latency_s=0.03)
    cancelled = []
    async with running_fleet(pool, postgres_dsn, provider, PATIENT) as fleet:
        for start in range(0, 2_400, 200):
            batch_id = await post(pool, owner, 200, start=start)
            wanted = len(provider.calls) + dice.randint(1, 40)
            await until(lambda wanted=wanted: len(provider.calls) >= wanted, 30, "some calls")
            asked_s = time.monotonic()
            halted = await cancel_batch(pool, PATIENT, owner, batch_id)
            answered_s = time.monotonic()
            assert answered_s - asked_s < PATIENT.lateness_s
            assert halted.seen.report.status == "cancelled"
            assert halted.already_on_their_way >= provider.in_flight
            assert halted.seen.counts["pending"] == 0
            await fleet.went_round()
            assert [call for call in provider.calls if call.at_s > answered_s] == []
            found = await counts(pool, batch_id)
            assert set(found) <= {"sent", "unsent"}
            assert sum(found.values()) == 200
            assert await meter(pool, "bm", bm_id(1)) == (len(provider.calls), 0)
            cancelled.append(batch_id)
    assert sorted(await settle(pool, PATIENT)) == sorted(cancelled)
    assert await value(pool, "SELECT sum(charged)::int FROM batch") == len(provider.calls)
    assert await value(pool, "SELECT balance FROM account WHERE id = 'acme'") == 10_000 - len(provider.calls)
    assert provider.most_calls_for_one_message == 1
    assert await violations(pool) == {}


async def test_a_halt_does_not_outlive_a_resumption(pool: Pool, postgres_dsn: str) -> None:
    """Many quick pauses and resumptions: everything is sent in the end, once."""
    owner = await add_owner(pool, messages_per_second=1_000)
    batch_id = await post(pool, owner, 150)
    provider = FakeProvider(latency_s=0.02)
    async with running_fleet(pool, postgres_dsn, provider, PATIENT):
        await until(lambda: provider.calls, 30, "a call")
        for _ in range(15):
            if (await status(pool, batch_id)) == "processing":
                await asyncio.gather(
                    pause_batch(pool, PATIENT, owner, batch_id), pause_batch(pool, PATIENT, owner, batch_id)
                )
                await resume_batch(pool, owner, batch_id)
        await until(lambda: len(provider.calls) == 150, 30, "everything is sent")
    assert await counts(pool) == {"sent": 150}
    assert provider.most_calls_for_one_message == 1
    assert await violations(pool) == {}


async def test_a_pause_while_a_claim_commits_is_seen_by_one_of_them(pool: Pool) -> None:
    """Whichever comes first: either the claim was made before, or it finds the batch paused."""
    owner = await add_owner(pool, **FAST)
    batch_id = await post(pool, owner, 100)
    await bench(pool).claimed()
    for _ in range(10):
        claimed, halted = await asyncio.gather(bench(pool).claim(), pause_batch(pool, SETTINGS, owner, batch_id))
        if not isinstance(claimed, Nothing):
            assert claimed.claim_id in await value(pool, "SELECT array_agg(id) FROM claim")
            assert halted.already_on_their_way >= len(claimed.due)
        assert isinstance(await bench(pool).claim(), Nothing)
        await resume_batch(pool, owner, batch_id)
    assert (await violations(pool)).get("violation_control") is None


async def test_workers_hear_again_after_their_connection_was_cut(pool: Pool, postgres_dsn: str) -> None:
    owner = await add_owner(pool)
    batch_id = await post(pool, owner, 3_000)
    provider = FakeProvider(latency_s=0.03)
    async with running_fleet(pool, postgres_dsn, provider, PATIENT, size=1) as fleet:
        cut = await value(
            pool,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND starts_with(application_name, 'carteiro-signals')",
        )
        assert cut
        await until(fleet.listens, 10, "the dispatcher listens again")
        await until(lambda: provider.calls, 30, "a call")
        asked_s = time.monotonic()
        await pause_batch(pool, PATIENT, owner, batch_id)
        assert time.monotonic() - asked_s < PATIENT.lateness_s


async def test_every_worker_is_told_once(pool: Pool, postgres_dsn: str) -> None:
    """Of each pause and cancellation that was made, and of no attempt."""
    owner = await add_owner(pool)
    first, second = await post(pool, owner, 1), await post(pool, owner, 1, start=1)
    told: list[UUID] = []
    async with running_fleet(pool, postgres_dsn, FakeProvider(), SETTINGS, size=0) as fleet:
        for name in ("w1", "w2"):
            fleet.parts.append(asyncio.create_task(hear_halts(postgres_dsn, name, told.append)))
        await until(lambda: fleet.listens(2), 10, "both listen")
        with pytest.raises(IllegalTransition):
            await pause_batch(pool, SETTINGS, owner, first)
        await change(pool, "UPDATE batch SET status = 'processing', event = 'started'")
        for _ in range(2):
            await pause_batch(pool, SETTINGS, owner, first)
        await cancel_batch(pool, SETTINGS, owner, second)
        await until(lambda: len(told) >= 4, 10, "both were told")
    assert sorted(told) == sorted([first, first, second, second])


# In processes of their own


@pytest.mark.process
async def test_nothing_arrives_at_the_provider_after_the_answer(
    pool: Pool, processes: Processes, postgres_dsn: str
) -> None:
    """Two workers and an API; arrivals are read from the provider's record, on the clock that all processes share."""
    dice = random.Random(3)
    simulated, served = f"http://127.0.0.1:{(port := free_port())}", f"http://127.0.0.1:{(api_port := free_port())}"
    processes.environment |= {"INFOBIP_KEY": "any", "CARTEIRO_PORT": str(api_port), "CARTEIRO_PUBLIC_URL": served}
    await add_account(pool, credits=5_000, bm_limit=100_000, base_url=simulated, messages_per_second=150)
    key = await add_key(pool)
    simulator = processes.start("simulator", "--port", str(port), "--latency-ms", "40", "--no-receipts")
    api = processes.start("serve")
    for _ in range(2):
        processes.start("worker")
    await simulator.ready_at(f"{simulated}/_sim/health")
    await api.ready_at(f"{served}/readyz")
    headers = {"authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(base_url=served, headers=headers, timeout=30) as client:
        posted = await client.post("/api/v1/batches", json=batch_body(5_000))
        batch = posted.headers["location"]

        async def arrivals() -> list[int]:
            told = await client.get(f"{simulated}/_sim/calls", params={"limit": 10_000})
            return [json.loads(line)["arrived_ns"] for line in told.text.splitlines()]

        for _ in range(6):
            wanted = len(await arrivals()) + dice.randint(5, 60)
            await until(lambda wanted=wanted: _more_than(arrivals, wanted), 30, "some calls")
            paused = await client.post(f"{batch}/pause")
            answered_ns = time.monotonic_ns()
            assert (paused.status_code, paused.json()["status"]) == (200, "paused")
            await until(lambda: _quiet(pool), 30, "what was on its way is recorded")
            arrived = await arrivals()
            assert [at_ns for at_ns in arrived if at_ns > answered_ns] == []
            assert (await counts(pool))["sent"] == len(arrived)
            assert (await client.post(f"{batch}/resume")).json()["status"] == "processing"
        cancelled = (await client.post(f"{batch}/cancel")).json()
        assert cancelled["status"] == "cancelled"
        await until(lambda: _quiet(pool), 30, "what was on its way is recorded")
        assert await counts(pool) == {"sent": len(await arrivals()), "unsent": 5_000 - len(await arrivals())}
    assert "violation_control" not in await violations(pool)


async def _more_than(arrivals: Callable[[], Awaitable[list[int]]], wanted: int) -> bool:
    return len(await arrivals()) >= wanted


async def _quiet(pool: Pool) -> bool:
    return bool(await value(pool, "SELECT NOT EXISTS (SELECT FROM claim WHERE closed_at IS NULL)"))


@pytest.mark.process
async def test_a_paused_batch_stays_paused_when_workers_are_killed_and_started(
    pool: Pool, processes: Processes
) -> None:
    owner = await add_owner(pool, messages_per_second=20)
    batch_id = await post(pool, owner, 500)
    worker = processes.start("worker", environment={"INFOBIP_KEY": "any"})
    await worker.ready(lambda: value(pool, "SELECT count(*) FROM claim"))
    await pause_batch(pool, SETTINGS, owner, batch_id)
    worker.kill()
    claims = await value(pool, "SELECT max(id) FROM claim")
    worker.start()
    swept = "SELECT count(*) FROM worker WHERE seen_at > started_at + interval '1.5 s'"
    await worker.ready(lambda: value(pool, f"{swept} AND started_at > (SELECT min(started_at) FROM worker)"))
    assert (await status(pool, batch_id), await value(pool, "SELECT max(id) FROM claim")) == ("paused", claims)
    await resume_batch(pool, owner, batch_id)
    await worker.ready(lambda: value(pool, f"SELECT max(id) > {claims} FROM claim"))
