"""What Meta's answers and webhooks are traced by.

Revision ID: 0007
Revises: 0006
"""

from pathlib import Path

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

SQL = Path(__file__).parents[1] / "sql"


def upgrade() -> None:
    op.get_bind().exec_driver_sql((SQL / "0007_meta.sql").read_text(), execution_options={"no_parameters": True})


def downgrade() -> None:
    raise NotImplementedError("Roll a release back by restoring a backup.")
