"""The database as the edges see it: whether it can be used, and what it looks like when it cannot."""

from psycopg.errors import UndefinedTable

from carteiro.storage.pool import UNREACHABLE, Pool, find_session_fault
from carteiro.storage.revisions import head_revision

__all__ = ["UNREACHABLE", "Pool", "find_obstacle", "required_revision"]

READY_TIMEOUT_S = 2.0


def required_revision() -> str:
    """The schema revision of this release."""
    return head_revision()


async def find_obstacle(pool: Pool, revision: str) -> str | None:
    """Why requests cannot be served now, in words; None when they can."""
    try:
        async with pool.connection(timeout=READY_TIMEOUT_S) as conn:
            cursor = await conn.execute("SELECT version_num FROM alembic_version")
            row = await cursor.fetchone()
            fault = await find_session_fault(conn)
    except UNREACHABLE:
        return "The database cannot be reached."
    except UndefinedTable:
        row = fault = None
    found = row[0] if row else "nothing"
    if found != revision:
        return f"The database is at schema revision {found}, this release needs {revision}: run `carteiro migrate`."
    return fault
