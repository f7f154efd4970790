"""The job queue's schema, as Procrastinate 3.10 ships it.

Pinned here because a migration must not change with what is installed; tests/storage/test_schema.py compares the two.
A later Procrastinate comes with a revision of its own that runs its `pre` and `post` migration files.

Revision ID: 0001
Revises:
"""

from pathlib import Path

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

SQL = Path(__file__).parents[1] / "sql"


def upgrade() -> None:
    op.get_bind().exec_driver_sql(
        (SQL / "procrastinate_3.10.sql").read_text(encoding="utf-8"), execution_options={"no_parameters": True}
    )


def downgrade() -> None:
    raise NotImplementedError("Roll a release back by restoring a backup.")
