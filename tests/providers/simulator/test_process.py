"""`carteiro simulator` as a real process."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from carteiro.domain.outcomes import Accepted, Ambiguous, FactKind
from carteiro.providers.registry import open_provider
from tests.providers.driving import Driver
from tests.providers.infobip.reports import outgoing
from tests.support.processes import ChildProcess, free_port, running_processes
from tests.support.waiting import until

pytestmark = pytest.mark.process


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[tuple[ChildProcess, Driver]]:
    port = free_port()
    options = ["--latency-ms", "1", "--receipt-delay-ms", "1", "--seen-ratio", "0"]
    with running_processes(tmp_path, {}) as processes:
        child = processes.start("simulator", "--port", str(port), *options)
        address = f"http://127.0.0.1:{port}"
        await child.ready_at(f"{address}/_sim/health")
        async with httpx.AsyncClient() as client:
            yield child, Driver(address, client)


async def test_messages_are_sent_to_another_process(running: tuple[ChildProcess, Driver]) -> None:
    _, simulator = running
    provider = open_provider("infobip", base_url=simulator.address, api_key="key")
    try:
        outcomes = await provider.submit([outgoing(seq, notify_url=simulator.callback_url) for seq in range(1, 101)])
    finally:
        await provider.close()
    assert all(isinstance(outcome, Accepted) for outcome in outcomes)

    async def all_delivered() -> bool:
        facts = [fact for report in await simulator.reports() for fact in report.facts]
        return sorted(fact.seq for fact in facts if fact.kind is FactKind.DELIVERED) == list(range(1, 101))

    await until(all_delivered, 10, "100 reports of delivery")


async def test_it_ends_at_once_though_a_call_hangs(running: tuple[ChildProcess, Driver]) -> None:
    child, simulator = running
    await simulator.add_fault({"answer": "hang"})
    provider = open_provider("infobip", base_url=simulator.address, api_key="key", timeout_s=20)
    try:
        call = asyncio.create_task(provider.submit([outgoing(1)]))

        async def arrived() -> bool:
            return len(await simulator.calls()) == 1

        await until(arrived, 5, "the call arrived")
        assert child.stop(timeout_s=5) == 0
        (outcome,) = await call
        assert isinstance(outcome, Ambiguous)
    finally:
        await provider.close()
