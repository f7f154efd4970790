"""Views of broken promises that read a batch of a million once.

Revision ID: 0013
Revises: 0012
"""

from pathlib import Path

from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

SQL = Path(__file__).parents[1] / "sql"


def upgrade() -> None:
    op.get_bind().exec_driver_sql(
        (SQL / "0013_audit_of_millions.sql").read_text(), execution_options={"no_parameters": True}
    )


def downgrade() -> None:
    raise NotImplementedError("Roll a release back by restoring a backup.")
