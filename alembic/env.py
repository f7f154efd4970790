"""Run by Alembic: by `carteiro.storage.migrations` with a connection, or by the `alembic` command for developers."""

import os

from alembic import context
from sqlalchemy import Connection

from carteiro.storage.migrations import connecting_engine, include_name
from carteiro.storage.tables import metadata


def run(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=metadata,
        include_name=include_name,
        compare_server_default=True,
        transaction_per_migration=True,
    )
    with context.begin_transaction():
        context.run_migrations()


if context.is_offline_mode():
    raise SystemExit("The migrations need a database: there is no offline mode.")

given = context.config.attributes.get("connection")
if given is not None:
    run(given)
else:
    with connecting_engine(os.environ["CARTEIRO_DATABASE_URL"]).connect() as connection:
        run(connection)
