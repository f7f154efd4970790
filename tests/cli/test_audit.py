"""`carteiro audit`."""

import asyncio
import json

import psycopg
import pytest
from click.testing import CliRunner, Result

from carteiro.cli.audit import audit
from carteiro.storage.pool import open_pool
from tests.support.lives import World, live


@pytest.fixture
def world(postgres_dsn: str, monkeypatch: pytest.MonkeyPatch) -> World:
    async def make() -> World:
        async with open_pool(postgres_dsn, min_size=1, max_size=2, application_name="tests") as pool:
            return await live(pool)

    monkeypatch.setenv("CARTEIRO_DATABASE_URL", postgres_dsn)
    return asyncio.run(make())


def run(*arguments: str) -> Result:
    return CliRunner().invoke(audit, arguments)


def break_counts(dsn: str) -> None:
    with psycopg.connect(dsn) as session:
        session.execute("DELETE FROM batch_tally")


def test_a_clean_database(world: World) -> None:
    result = run()
    assert result.exit_code == 0
    assert "violation_counts" in result.output


def test_a_breach_ends_in_exit_code_1_and_says_what_and_where(world: World, postgres_dsn: str) -> None:
    break_counts(postgres_dsn)
    result = run("--rows", "100")
    assert result.exit_code == 1
    assert (
        f"the counts do not sum to the total: batch_id {world.settled}; expected 7, found 0, off by -7" in result.output
    )


def test_json_for_machines(world: World, postgres_dsn: str) -> None:
    assert {finding["count"] for finding in json.loads(run("--json").output)} == {0}
    break_counts(postgres_dsn)
    result = run("--json", "--all", "--rows", "1")
    assert result.exit_code == 1
    broken = [finding for finding in json.loads(result.output) if finding["count"]]
    assert [(finding["view"], len(finding["rows"])) for finding in broken] == [("violation_counts", 1)]


def test_a_database_that_was_never_migrated_is_an_error(world: World, postgres_dsn: str) -> None:
    with psycopg.connect(postgres_dsn) as session:
        session.execute("DROP SCHEMA audit CASCADE")
    result = run()
    assert result.exit_code == 1
    assert "run `carteiro migrate`" in result.output
