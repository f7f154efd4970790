"""Reading schema `audit`, and breaking what it watches over."""

from typing import Any, LiteralString

import psycopg
from psycopg.sql import SQL, Identifier

from tests.support.lives import World

Connection = psycopg.Connection[dict[str, Any]]


def views_of(session: Connection, pattern: str = "%") -> list[str]:
    rows = session.execute(
        "SELECT viewname FROM pg_views WHERE schemaname = 'audit' AND viewname LIKE %s ORDER BY viewname", (pattern,)
    )
    return [row["viewname"] for row in rows]


def read(session: Connection, view: str) -> list[dict[str, Any]]:
    return session.execute(SQL("SELECT * FROM audit.{}").format(Identifier(view))).fetchall()


def tamper(session: Connection, world: World, *statements: LiteralString) -> None:
    """Past every trigger, as only the database's superuser can."""
    session.execute("SET LOCAL session_replication_role = replica")
    names = {
        "settled": world.settled,
        "running": world.running,
        "cancelled": world.cancelled,
        "paused": world.paused,
        "claim": world.open_claim,
    }
    for statement in statements:
        session.execute(statement, names)
