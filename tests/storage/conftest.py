"""A lived-in database for the tests of schema `audit`, made once a module."""

import asyncio
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from carteiro.storage.pool import open_pool
from tests.support.databases import DatabaseServer
from tests.support.lives import World, live


@pytest.fixture(scope="module")
def lived(postgres_server: DatabaseServer) -> Iterator[tuple[str, World]]:
    async def make(dsn: str) -> World:
        async with open_pool(dsn, min_size=1, max_size=2, application_name="tests") as pool:
            return await live(pool)

    with postgres_server.fresh_database() as dsn:
        yield dsn, asyncio.run(make(dsn))


@pytest.fixture
def world(lived: tuple[str, World]) -> World:
    return lived[1]


@pytest.fixture
def session(lived: tuple[str, World]) -> Iterator[psycopg.Connection[dict[str, Any]]]:
    """What the test does is rolled back, and no trigger stands in its way after `tamper`."""
    with psycopg.connect(lived[0], row_factory=dict_row) as connection:
        yield connection
        connection.rollback()
