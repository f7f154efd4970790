"""Schema `audit` from the program's side: its violation views by name, and the settings that they judge by."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from psycopg import AsyncConnection
from psycopg.rows import dict_row
from psycopg.sql import SQL as Statement
from psycopg.sql import Identifier

from carteiro.storage.statements import load

SQL = load("audit")


async def violation_views(conn: AsyncConnection[Any]) -> list[tuple[str, str]]:
    """(name, meaning) of each; none where the schema is missing."""
    cursor = await conn.execute(SQL.violation_views, {})
    return await cursor.fetchall()


async def read_violations(
    conn: AsyncConnection[Any], view: str, *, limit: int, lookback: timedelta | None
) -> tuple[int, list[dict[str, Any]]]:
    """How many rows a view has, and the first `limit` of them.

    The caller has opened a transaction: `lookback` holds inside it. None looks back as far as `audit.setting` says.
    """
    await conn.execute(SQL.give_room)
    if lookback is not None:
        await conn.execute(SQL.look_back, {"lookback": f"{lookback.total_seconds()} seconds"})
    query = Statement("SELECT count(*) OVER () AS counted, v.* FROM audit.{} AS v LIMIT %s").format(Identifier(view))
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(query, (limit,))
        rows = await cursor.fetchall()
    counted = rows[0]["counted"] if rows else 0
    return counted, [{name: value for name, value in row.items() if name != "counted"} for row in rows]


async def put_settings(conn: AsyncConnection[Any], values: Mapping[str, float]) -> None:
    await conn.execute(SQL.put_setting, {"names": list(values), "values": list(values.values())})


async def put_codes(conn: AsyncConnection[Any], meanings: Mapping[str, str]) -> None:
    """In one order: two workers that start at once do not wait for each other in a circle."""
    codes = sorted(meanings)
    await conn.execute(SQL.put_code, {"codes": codes, "meanings": [meanings[code] for code in codes]})
