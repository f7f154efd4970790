"""Broadcasts to a group.

Revision ID: 0008
Revises: 0007
"""

from pathlib import Path

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

SQL = Path(__file__).parents[1] / "sql"


def upgrade() -> None:
    op.get_bind().exec_driver_sql((SQL / "0008_broadcasts.sql").read_text(), execution_options={"no_parameters": True})


def downgrade() -> None:
    raise NotImplementedError("Roll a release back by restoring a backup.")
