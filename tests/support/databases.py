"""Databases for tests: one server for the whole run, one migrated template in it, a copy of it per test."""

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.sql import SQL, Identifier

from carteiro.embedded import Binaries, throwaway_cluster
from carteiro.storage.migrations import migrate

DATABASE_URL_VARIABLE = "CARTEIRO_TEST_DATABASE_URL"
BIN_VARIABLE = "CARTEIRO_TEST_POSTGRES_BIN"

SERVER_SETTINGS = {
    # Several test processes share the server, each with pools and child processes of its own.
    "max_connections": "400",
    # A database lives for a second: nothing is replicated or worth vacuuming, and statistics are as a test makes them.
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "autovacuum": "off",
}
MEMORY = Path("/dev/shm")
MEMORY_BYTES = 3 * 2**30
"""What has to be free there: a database takes 11 MB, the write-ahead log up to one gigabyte."""


@dataclass(frozen=True, slots=True)
class DatabaseServer:
    """A running server. `admin_dsn` may create databases; `template` is the migrated database to copy."""

    admin_dsn: str
    template: str

    def dsn(self, database: str) -> str:
        return make_conninfo(self.admin_dsn, dbname=database)

    @contextlib.contextmanager
    def fresh_database(self) -> Iterator[str]:
        """The DSN of a migrated database that nobody used before; dropped after the block, whoever is connected."""
        name = f"carteiro_test_{secrets.token_hex(8)}"
        with self._admin() as admin:
            # Copied as files: through the buffers and the write-ahead log it would cost three times as much.
            admin.execute(
                SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY file_copy").format(
                    Identifier(name), Identifier(self.template)
                )
            )
        try:
            yield self.dsn(name)
        finally:
            with self._admin() as admin:
                admin.execute(SQL("DROP DATABASE {} WITH (FORCE)").format(Identifier(name)))

    def _admin(self) -> psycopg.Connection:
        return psycopg.connect(self.admin_dsn, autocommit=True)


def chosen_binaries() -> Binaries | None:
    """The binaries that CARTEIRO_TEST_POSTGRES_BIN names; None for the ones that the product itself would choose."""
    named = os.environ.get(BIN_VARIABLE)
    return Binaries(Path(named), BIN_VARIABLE) if named else None


def memory_folder() -> Path | None:
    """A folder in memory, where there is one with room enough; None: any temporary folder."""
    with contextlib.suppress(OSError):
        if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= MEMORY_BYTES:
            return MEMORY
    return None


@contextlib.contextmanager
def running_server(folder: Path | None = None) -> Iterator[DatabaseServer]:
    """A server with a migrated template: the one of CARTEIRO_TEST_DATABASE_URL, or one of our own in `folder`."""
    external = os.environ.get(DATABASE_URL_VARIABLE)
    with contextlib.ExitStack() as stack:
        if external:
            admin_dsn = external
        else:
            admin_dsn = stack.enter_context(
                throwaway_cluster(settings=SERVER_SETTINGS, binaries=chosen_binaries(), folder=folder)
            ).dsn()
        server = DatabaseServer(admin_dsn, f"carteiro_template_{secrets.token_hex(4)}")
        template = Identifier(server.template)
        with psycopg.connect(admin_dsn, autocommit=True) as admin:
            admin.execute(SQL("CREATE DATABASE {}").format(template))
        try:
            migrate(server.dsn(server.template))
            yield server
        finally:
            if external:
                with psycopg.connect(admin_dsn, autocommit=True) as admin:
                    admin.execute(SQL("DROP DATABASE {} WITH (FORCE)").format(template))
