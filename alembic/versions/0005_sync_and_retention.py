"""What the provider says of senders and templates, what was dropped for its age, and who was erased.

Revision ID: 0005
Revises: 0004
"""

from pathlib import Path

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

SQL = Path(__file__).parents[1] / "sql"


def upgrade() -> None:
    op.get_bind().exec_driver_sql(
        (SQL / "0005_sync_and_retention.sql").read_text(), execution_options={"no_parameters": True}
    )


def downgrade() -> None:
    raise NotImplementedError("Roll a release back by restoring a backup: what was erased must stay erased.")
