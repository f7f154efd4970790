"""The pool and the transaction, on a Postgres that is restarted under them."""

from collections.abc import Callable

import psycopg
import pytest
from psycopg.errors import DeadlockDetected, SerializationFailure, UniqueViolation
from psycopg.sql import SQL, Identifier

from carteiro.embedded import Cluster
from carteiro.storage.pool import IDLE_TRANSACTION_S, Pool, open_pool, retry_serialization, session_dsn, transact
from tests.support.waiting import until


async def test_sessions_are_in_utc_read_committed_and_named(pool: Pool) -> None:
    async with pool.connection() as conn:
        assert conn.autocommit
        cursor = await conn.execute(
            "SELECT current_setting('TimeZone'), current_setting('transaction_isolation'),"
            " current_setting('application_name')"
        )
        assert await cursor.fetchone() == ("UTC", "read committed", "tests")


async def test_a_session_that_goes_silent_inside_a_transaction_loses_its_locks(pool: Pool, postgres_dsn: str) -> None:
    async with await psycopg.AsyncConnection.connect(session_dsn(postgres_dsn, "frozen")) as frozen:
        cursor = await frozen.execute("SHOW idle_in_transaction_session_timeout")
        assert await cursor.fetchone() == (f"{IDLE_TRANSACTION_S}s",)
        await frozen.execute("SET idle_in_transaction_session_timeout = 100")
        await frozen.execute("SELECT pg_advisory_xact_lock(1)")
        async with transact(pool) as conn:
            await conn.execute("SELECT pg_advisory_xact_lock(1)")
        with pytest.raises(psycopg.Error):
            await frozen.execute("SELECT 1")


def test_options_that_the_dsn_already_has_are_kept() -> None:
    dsn = session_dsn("host=/tmp options='-c work_mem=8MB'", "carteiro")
    assert "-c work_mem=8MB -c TimeZone=UTC" in psycopg.conninfo.conninfo_to_dict(dsn)["options"]


async def test_a_transaction_is_committed_at_the_end_and_rolled_back_on_an_error(pool: Pool) -> None:
    async with transact(pool) as conn:
        await conn.execute("CREATE TABLE t (n int)")
    with pytest.raises(psycopg.errors.UndefinedTable):
        await insert_twice(pool, "t", "no_such_table")
    async with transact(pool) as conn:
        cursor = await conn.execute("SELECT count(*) FROM t")
        assert await cursor.fetchone() == (0,)


async def insert_twice(pool: Pool, first: str, second: str) -> None:
    async with transact(pool) as conn:
        for table in (first, second):
            await conn.execute(SQL("INSERT INTO {} VALUES (1)").format(Identifier(table)))


@pytest.mark.parametrize("ending", ["stop", "kill"])
async def test_no_caller_sees_the_dead_connections_after_a_restart(own_cluster: Cluster, ending: str) -> None:
    async with open_pool(own_cluster.dsn(), min_size=10, max_size=10, application_name="tests") as pool:
        getattr(own_cluster, ending)()
        own_cluster.start()
        for _ in range(20):
            async with transact(pool) as conn:
                await conn.execute("SELECT 1")


async def test_it_comes_back_after_postgres_was_away_while_callers_tried(own_cluster: Cluster) -> None:
    async with open_pool(own_cluster.dsn(), min_size=1, max_size=2, application_name="tests") as pool:

        async def answers() -> bool:
            try:
                async with pool.connection(timeout=0.2) as conn:
                    await conn.execute("SELECT 1")
                    return True
            except psycopg.OperationalError:  # PoolTimeout is one too
                return False

        own_cluster.stop()
        assert not await answers()
        own_cluster.start()
        await until(answers, 15, "the pool has connected again")


def fails_then_answers(*errors: Exception) -> tuple[Callable[[], object], list[int]]:
    calls: list[int] = []

    async def work() -> str:
        calls.append(1)
        if len(calls) <= len(errors):
            raise errors[len(calls) - 1]
        return "done"

    return work, calls


async def test_deadlocks_and_conflicts_are_tried_again() -> None:
    work, calls = fails_then_answers(DeadlockDetected(), SerializationFailure())
    assert await retry_serialization(work) == "done"
    assert len(calls) == 3


async def test_tries_are_bounded_and_the_last_error_is_raised() -> None:
    work, calls = fails_then_answers(*[DeadlockDetected()] * 5)
    with pytest.raises(DeadlockDetected):
        await retry_serialization(work, tries=3)
    assert len(calls) == 3


async def test_other_errors_are_not_tried_again() -> None:
    work, calls = fails_then_answers(UniqueViolation())
    with pytest.raises(UniqueViolation):
        await retry_serialization(work)
    assert len(calls) == 1
