"""The migrated schema is what the code believes it to be."""

from importlib.resources import files
from pathlib import Path

from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from carteiro.storage.migrations import (
    connecting_engine,
    current_revision,
    include_name,
    migrate,
)
from carteiro.storage.revisions import head_revision
from carteiro.storage.tables import metadata

PINNED = Path(__file__).parents[2] / "alembic" / "sql" / "procrastinate_3.10.sql"


def test_metadata_equals_the_migrated_schema(postgres_dsn: str) -> None:
    with connecting_engine(postgres_dsn).connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"include_name": include_name, "compare_server_default": True, "compare_type": True}
        )
        assert compare_metadata(context, metadata) == []


def test_pinned_queue_schema_is_what_the_installed_procrastinate_ships() -> None:
    installed = (files("procrastinate") / "sql" / "schema.sql").read_text(encoding="utf-8")
    assert PINNED.read_text(encoding="utf-8") == installed


def test_migrating_a_migrated_database_changes_nothing(postgres_dsn: str) -> None:
    assert migrate(postgres_dsn) == (head_revision(), head_revision())
    assert current_revision(postgres_dsn) == head_revision()
