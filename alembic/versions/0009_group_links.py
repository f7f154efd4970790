"""Group links and reminders.

Revision ID: 0009
Revises: 0008
"""

from pathlib import Path

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

SQL = Path(__file__).parents[1] / "sql"


def upgrade() -> None:
    op.get_bind().exec_driver_sql((SQL / "0009_group_links.sql").read_text(), execution_options={"no_parameters": True})


def downgrade() -> None:
    raise NotImplementedError("Roll a release back by restoring a backup.")
