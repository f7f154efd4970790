"""Schema `audit`: readable views, a `violation_*` view per promise, and who may read them.

Revision ID: 0003
Revises: 0002
"""

from pathlib import Path

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

SQL = Path(__file__).parents[1] / "sql"


def upgrade() -> None:
    for name in ("0003_audit.sql", "0003_violations.sql"):
        op.get_bind().exec_driver_sql((SQL / name).read_text(), execution_options={"no_parameters": True})


def downgrade() -> None:
    raise NotImplementedError("Roll a release back by restoring a backup: the history of limits would be lost.")
