"""Three doors into one engine: what batches, services, senders and keys know of them.

Revision ID: 0006
Revises: 0005
"""

from pathlib import Path

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

SQL = Path(__file__).parents[1] / "sql"


def upgrade() -> None:
    op.get_bind().exec_driver_sql((SQL / "0006_doors.sql").read_text(), execution_options={"no_parameters": True})


def downgrade() -> None:
    raise NotImplementedError("Roll a release back by restoring a backup.")
