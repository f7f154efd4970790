"""What is sent to a contact who answers.

Revision ID: 0010
Revises: 0009
"""

from pathlib import Path

from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

SQL = Path(__file__).parents[1] / "sql"


def upgrade() -> None:
    op.get_bind().exec_driver_sql((SQL / "0010_follow_ups.sql").read_text(), execution_options={"no_parameters": True})


def downgrade() -> None:
    raise NotImplementedError("Roll a release back by restoring a backup.")
