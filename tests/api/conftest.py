"""The application, called in process over its ASGI interface."""

from collections.abc import AsyncIterator

import httpx
import pytest

from carteiro.api.app import create_app
from carteiro.services.broadcast import Directory, open_directory
from carteiro.settings import Settings
from carteiro.storage.pool import Pool
from tests.support.directories import directory_settings
from tests.support.factories import add_account, add_key


@pytest.fixture
async def directory(postgres_dsn: str) -> AsyncIterator[Directory]:
    """The directory of the database, which nobody has loaded."""
    async with open_directory(directory_settings(postgres_dsn), application_name="tests directory") as opened:
        yield opened


@pytest.fixture
async def anonymous(pool: Pool, directory: Directory) -> AsyncIterator[httpx.AsyncClient]:
    """A client without a key, on an empty database."""
    app = create_app(Settings(), pool, directory)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)  # type: ignore[arg-type]
    async with httpx.AsyncClient(transport=transport, base_url="http://carteiro.test") as client:
        yield client


@pytest.fixture
async def client(pool: Pool, anonymous: httpx.AsyncClient) -> httpx.AsyncClient:
    """A client of an account with 1,000 credits, ten BMs of 100 a day, one sender each."""
    await add_account(pool, credits=1_000, bms=10, bm_limit=100)
    anonymous.headers["authorization"] = f"Bearer {await add_key(pool)}"
    return anonymous
