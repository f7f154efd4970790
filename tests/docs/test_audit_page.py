"""docs/audit.md: its queries run, and answer what the page shows."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from carteiro.storage.pool import open_pool
from tests.support.databases import DatabaseServer
from tests.support.lives import World, live

PAGE = (Path(__file__).parents[2] / "docs" / "audit.md").read_text(encoding="utf-8")

EXAMPLE = "019ad0f2-6d3e-7c41-9b1a-00000000000"
ANSWERED = re.compile(r"```sql\n(.*?)```\n\n```text\n(.*?)```", re.DOTALL)
BLOCKS = ANSWERED.findall(PAGE)


@pytest.fixture(scope="module")
def lived(postgres_server: DatabaseServer) -> Iterator[tuple[str, World]]:
    async def make(dsn: str) -> World:
        async with open_pool(dsn, min_size=1, max_size=2, application_name="tests") as pool:
            return await live(pool)

    with postgres_server.fresh_database() as dsn:
        world = asyncio.run(make(dsn))
        with psycopg.connect(dsn) as session:  # nothing moved for an hour, for want of capacity
            session.execute("SET session_replication_role = replica")
            session.execute("UPDATE message_event SET at = at - interval '1 hour'")
            session.execute("UPDATE batch_event SET at = at - interval '1 hour'")
            session.execute("UPDATE batch SET blocked_by = 'capacity', next_attempt_at = now() + interval '1 hour'")
        yield dsn, world


def test_every_query_of_the_page_shows_its_answer() -> None:
    assert len(BLOCKS) == PAGE.count("```sql") > 10


@pytest.mark.parametrize(("query", "answer"), BLOCKS, ids=[str(number) for number in range(1, len(BLOCKS) + 1)])
def test_a_query_answers_as_shown(lived: tuple[str, World], query: str, answer: str) -> None:
    dsn, world = lived
    for number, batch_id in (("1", world.settled), ("2", world.running)):
        query = query.replace(EXAMPLE + number, str(batch_id))
    with psycopg.connect(dsn) as session:
        session.execute("SET ROLE carteiro_auditor")
        cursor = session.execute(query.encode())
        assert cursor.description is not None
        shown = [name.strip() for name in answer.splitlines()[0].split("|")]
        assert [column.name for column in cursor.description] == shown
        assert bool(cursor.fetchall()) is ("(0 rows)" not in answer)


def test_the_page_names_every_view_and_table_of_the_schema(lived: tuple[str, World]) -> None:
    with psycopg.connect(lived[0]) as session:
        rows = session.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'audit'::regnamespace AND relkind IN ('v', 'r')"
        ).fetchall()
    named = set(re.findall(r"`(\w+)`", PAGE))
    assert {name for (name,) in rows} <= named
