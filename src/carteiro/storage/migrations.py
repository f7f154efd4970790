"""Bring a database to this release's schema.

Needs a direct connection: the lock below belongs to the session, and a transaction pooler hands sessions around.
"""

import re
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from typing import Literal

import psycopg
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, Engine, NullPool, create_engine, text

from carteiro.settings import SettingsError
from carteiro.storage.pool import DIRECT_NEEDED
from carteiro.storage.revisions import alembic_dir

# Names the lock in pg_locks; any bigint that nothing else of ours uses.
MIGRATION_LOCK = 0x63617274  # "cart"

_NOT_OURS = re.compile(r"procrastinate_|alembic_version$")
_PARTITION = re.compile(r".+_p\d+$")

# Alembic's words for its callback.
NameType = Literal[
    "schema", "table", "column", "index", "unique_constraint", "foreign_key_constraint", "check_constraint"
]
ParentNames = MutableMapping[Literal["schema_name", "table_name", "schema_qualified_table_name"], str | None]


def migrate(dsn: str) -> tuple[str | None, str]:
    """Upgrade to the newest revision; returns (before, after).

    Each revision is one transaction. Safe to call from several processes at once: they take an advisory lock for the
    session, and whoever waited finds nothing left to do. Raises SettingsError where the DSN leads to a pooler.
    """
    with _locked(dsn) as connection:
        before = _revision(connection)
        config = _config()
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
        connection.commit()
        after = _revision(connection)
    assert after is not None
    return before, after


def current_revision(dsn: str) -> str | None:
    """The revision that a database is at; None when it was never migrated."""
    with connecting_engine(dsn).connect() as connection:
        return _revision(connection)


def connecting_engine(dsn: str) -> Engine:
    """A SQLAlchemy engine for any DSN that libpq takes. It keeps no connections."""
    return create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(dsn), poolclass=NullPool)


def include_name(name: str | None, kind: NameType, parents: ParentNames) -> bool:
    """Which objects of the database Alembic compares: not Procrastinate's, and partitions only through their parent."""
    if kind != "table" or name is None:
        return True
    return not (_NOT_OURS.match(name) or _PARTITION.match(name))


@contextmanager
def _locked(dsn: str) -> Iterator[Connection]:
    with connecting_engine(dsn).connect() as connection:
        driver = connection.connection.driver_connection
        assert isinstance(driver, psycopg.Connection)
        # A pooler gives its clients numbers of its own.
        if connection.execute(text("SELECT pg_backend_pid()")).scalar_one() != driver.info.backend_pid:
            raise SettingsError(DIRECT_NEEDED)
        connection.execute(text("SELECT pg_advisory_lock(:key)"), {"key": MIGRATION_LOCK})
        connection.commit()
        yield connection  # closing the session frees the lock


def _revision(connection: Connection) -> str | None:
    revision = MigrationContext.configure(connection).get_current_revision()
    connection.commit()
    return revision


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(alembic_dir()).replace("%", "%%"))
    return config
