from collections.abc import AsyncIterator

import httpx
import pytest

from carteiro.providers.contract import Provider
from carteiro.providers.registry import open_provider
from carteiro.providers.simulator.app import running_simulator
from carteiro.providers.simulator.options import Options
from tests.providers.driving import Driver


@pytest.fixture
async def simulator() -> AsyncIterator[Driver]:
    """A simulator without latency, on the test's own event loop."""
    options = Options(latency_ms=0, receipt_delay_ms=0, seen_ratio=0, seen_delay_ms=0, receipt_retry_ms=1)
    async with running_simulator(options) as address, httpx.AsyncClient() as client:
        yield Driver(address, client)


@pytest.fixture
async def provider(simulator: Driver) -> AsyncIterator[Provider]:
    """The real client, pointed at the simulator; it waits 0.5 s at most, and half of that to connect."""
    provider = open_provider("infobip", base_url=simulator.address, api_key="key", timeout_s=1.0, max_connections=4)
    yield provider
    await provider.close()
