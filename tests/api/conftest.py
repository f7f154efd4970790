"""The application, called in process over its ASGI interface."""

from collections.abc import AsyncIterator

import httpx
import pytest

from carteiro.api.app import create_app
from carteiro.settings import Settings
from carteiro.storage.pool import Pool
from tests.support.factories import add_account, add_key


@pytest.fixture
async def anonymous(pool: Pool) -> AsyncIterator[httpx.AsyncClient]:
    """A client without a key, on an empty database."""
    transport = httpx.ASGITransport(create_app(Settings(), pool), raise_app_exceptions=False)  # type: ignore[arg-type]
    async with httpx.AsyncClient(transport=transport, base_url="http://carteiro.test") as client:
        yield client


@pytest.fixture
async def client(pool: Pool, anonymous: httpx.AsyncClient) -> httpx.AsyncClient:
    """A client of an account with 1,000 credits, ten BMs of 100 a day, one sender each."""
    await add_account(pool, credits=1_000, bms=10, bm_limit=100)
    anonymous.headers["authorization"] = f"Bearer {await add_key(pool)}"
    return anonymous
