"""The directory of another application: who leads which group, and who is in it. Read, never written.

Its connections are apart from ours, even where it is in the same database: read-only, and with a time limit for each
statement.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from psycopg import AsyncConnection, DataError
from psycopg.sql import SQL as Statement
from psycopg.sql import Composed

from carteiro.storage.directory_names import Names
from carteiro.storage.pool import Pool, open_pool
from carteiro.storage.statements import load

SQL = load("directory")

CONNECTIONS_MAX = 4


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the directory's tables are and what they are called."""

    schema: str
    names: Names

    def __post_init__(self) -> None:
        for statement in (SQL.leads, SQL.phones, SQL.probe):
            self.compose(statement)

    def compose(self, statement: Any) -> Composed:
        return Statement(statement).format(**self.names.identifiers(self.schema))


@asynccontextmanager
async def open_read_only(dsn: str, *, application_name: str, timeout_s: float) -> AsyncIterator[Pool]:
    """A pool that connects when it is asked, so that a directory that is away stops nobody from starting."""
    async with open_pool(
        dsn,
        min_size=0,
        max_size=CONNECTIONS_MAX,
        application_name=application_name,
        options=("default_transaction_read_only=on", f"statement_timeout={round(timeout_s * 1000)}ms"),
        acquire_timeout_s=timeout_s,
    ) as pool:
        yield pool


async def may_address(conn: AsyncConnection[Any], layout: Layout, *, owner_id: str, group_id: str) -> bool:
    """Whether the person leads the team of the group, or owns the group. False also for what is none of either."""
    members = layout.names.team_members
    ids = {"owner_id": owner_id, "group_id": group_id}
    try:
        leads = {**ids, "leader": list(members.leader), "active": list(members.active)}
        if await _exists(conn, layout.compose(SQL.leads), leads):
            return True
        return bool(layout.names.groups.owner) and await _exists(conn, layout.compose(SQL.owns), ids)
    except DataError:
        # Its ids are numbers, say, and this is none.
        return False


async def read_phones(conn: AsyncConnection[Any], layout: Layout, group_id: str, *, page: int, most: int) -> list[str]:
    """The phones of a group's active members as they are written there, read page by page out of one snapshot.

    Once there are more than `most` the rest is not read. The caller has opened a transaction.
    """
    found: list[str] = []
    async with conn.cursor(name="audience") as cursor:
        active = list(layout.names.group_members.active)
        await cursor.execute(layout.compose(SQL.phones), {"group_id": group_id, "active": active})
        while len(found) <= most and (rows := await cursor.fetchmany(page)):
            found += [phone for (phone,) in rows]
    return found


async def probe(conn: AsyncConnection[Any], layout: Layout) -> None:
    """Name every table and column once. Raises what Postgres says of one that is missing or may not be read."""
    await conn.execute(layout.compose(SQL.probe))
    if layout.names.groups.owner:
        await conn.execute(layout.compose(SQL.probe_owner))


async def _exists(conn: AsyncConnection[Any], query: Composed, params: dict[str, Any]) -> bool:
    cursor = await conn.execute(query, params)
    row = await cursor.fetchone()
    return bool(row and row[0])
