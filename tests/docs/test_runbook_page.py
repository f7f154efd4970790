"""docs/runbook.md: its statements run, and change what they say."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from carteiro.storage.pool import open_pool
from tests.support.databases import DatabaseServer
from tests.support.lives import World, live

PAGE = (Path(__file__).parents[2] / "docs" / "runbook.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)
RUNNING = "019ad0f2-6d3e-7c41-9b1a-000000000002"
"""In the examples, the batch that is under way."""


@pytest.fixture(scope="module")
def lived(postgres_server: DatabaseServer) -> Iterator[tuple[str, World]]:
    async def make(dsn: str) -> World:
        async with open_pool(dsn, min_size=1, max_size=2, application_name="tests") as pool:
            return await live(pool)

    with postgres_server.fresh_database() as dsn:
        yield dsn, asyncio.run(make(dsn))


@pytest.fixture
def session(lived: tuple[str, World]) -> Iterator[psycopg.Connection]:
    """What a test changes is rolled back."""
    with psycopg.connect(lived[0], autocommit=True) as opened:
        opened.execute("BEGIN")
        yield opened
        opened.execute("ROLLBACK")


def statements(block: str, world: World) -> list[str]:
    """Without its own BEGIN and COMMIT: the test's transaction stands around it."""
    found = block.replace(RUNNING, str(world.running)).split(";\n")
    return [statement for statement in found if statement.strip() not in ("", "BEGIN", "COMMIT")]


def block_with(words: str) -> str:
    found = [block for block in BLOCKS if words in block]
    assert len(found) == 1, found
    return found[0]


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.split("\n")[0][:60])
def test_every_statement_runs(session: psycopg.Connection, lived: tuple[str, World], block: str) -> None:
    for statement in statements(block, lived[1]):
        session.execute(statement.encode())


def test_a_batch_is_paused_by_sql_as_by_the_api(session: psycopg.Connection, lived: tuple[str, World]) -> None:
    world = lived[1]
    for statement in statements(block_with("pg_notify"), world):
        cursor = session.execute(statement.encode())
        assert cursor.rowcount == 1, statement
    told = session.execute(
        "SELECT event, to_status, actor, reason FROM batch_event ORDER BY id DESC LIMIT 1"
    ).fetchone()
    assert told == ("paused", "paused", "ops:ana", "complaints")


@pytest.mark.parametrize("words", ["max_inflight = 1", "UPDATE business_manager", "wait_until = NULL"])
def test_what_the_examples_name_is_there(session: psycopg.Connection, lived: tuple[str, World], words: str) -> None:
    for statement in statements(block_with(words), lived[1]):
        assert session.execute(statement.encode()).rowcount == 1, statement
