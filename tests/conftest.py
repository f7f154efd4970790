"""The database fixtures.

With pytest-xdist the controlling process owns the server and the test processes share it: it outlives each of them.
Without, it starts when the first test asks for a database.
"""

import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.rows import TupleRow

from carteiro.embedded import Cluster, throwaway_cluster
from carteiro.storage.pool import Pool, open_pool, session_dsn
from tests.support.databases import DatabaseServer, chosen_binaries, memory_folder, running_server
from tests.support.processes import Processes, running_processes

_SERVER = pytest.StashKey[DatabaseServer]()
_STACK = pytest.StashKey[contextlib.ExitStack]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_STACK] = contextlib.ExitStack()


def pytest_unconfigure(config: pytest.Config) -> None:
    config.stash[_STACK].close()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: object) -> None:
    """In the controlling process of pytest-xdist, before each test process starts."""
    server = _server(node.config)  # type: ignore[attr-defined]
    node.workerinput["postgres"] = (server.admin_dsn, server.template)  # type: ignore[attr-defined]


def _server(config: pytest.Config) -> DatabaseServer:
    if _SERVER not in config.stash:
        config.stash[_SERVER] = config.stash[_STACK].enter_context(running_server(memory_folder()))
    return config.stash[_SERVER]


@pytest.fixture(scope="session")
def postgres_server(request: pytest.FixtureRequest) -> DatabaseServer:
    """The server that all tests of this run share. Do not stop it: take `own_cluster` for that."""
    workerinput = getattr(request.config, "workerinput", None)
    if workerinput is not None:
        return DatabaseServer(*workerinput["postgres"])
    return _server(request.config)


@pytest.fixture
def postgres_dsn(postgres_server: DatabaseServer) -> Iterator[str]:
    """A fresh, migrated database."""
    with postgres_server.fresh_database() as dsn:
        yield dsn


@pytest.fixture
async def pool(postgres_dsn: str) -> AsyncIterator[Pool]:
    """An open pool on `postgres_dsn`, as the product opens it."""
    async with open_pool(postgres_dsn, min_size=1, max_size=10, application_name="tests") as opened:
        yield opened


@pytest.fixture
async def conn(postgres_dsn: str) -> AsyncIterator[psycopg.AsyncConnection[TupleRow]]:
    """One connection to `postgres_dsn`, autocommit off; what the test does not commit is rolled back."""
    connection = await psycopg.AsyncConnection.connect(session_dsn(postgres_dsn, "tests"))
    try:
        yield connection
    finally:
        await connection.rollback()
        await connection.close()


@pytest.fixture
def own_cluster() -> Iterator[Cluster]:
    """A running Postgres of the test's own, to be stopped, killed and started at will. Nothing in it is migrated."""
    with throwaway_cluster(binaries=chosen_binaries(), folder=memory_folder()) as cluster:
        yield cluster


@pytest.fixture
def processes(postgres_dsn: str, tmp_path: Path) -> Iterator[Processes]:
    """Starts `carteiro` processes on `postgres_dsn`; their logs are in `tmp_path`. All are gone after the test."""
    with running_processes(tmp_path, {"CARTEIRO_DATABASE_URL": postgres_dsn}) as started:
        yield started
