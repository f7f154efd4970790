"""Arrays as parameters of statements. Slices go to Postgres as arrays of some hundred elements; converting those one by
one cost a claim or a record a fifth of its CPU.
"""

from datetime import datetime
from types import NoneType
from typing import Any

from psycopg import AsyncConnection
from psycopg.abc import Buffer
from psycopg.types.array import ListDumper


class QuickListDumper(ListDumper):
    """Converts flat lists of one plain type at once, and leaves all others to psycopg."""

    def dump(self, obj: list[Any]) -> Buffer | None:
        kinds = {*map(type, obj)}
        if kinds == {int}:
            return f"{{{','.join(map(str, obj))}}}".encode()
        if not kinds:
            return b"{}"
        if kinds == {NoneType}:
            return f"{{{','.join(['NULL'] * len(obj))}}}".encode()
        quoted = None
        if kinds <= {datetime, NoneType}:
            quoted = [f'"{item}"' if item is not None else "NULL" for item in obj]
        elif kinds <= {str, NoneType} and self._tx.encoding == "utf-8":
            quoted = [f'"{item}"' if item is not None else "NULL" for item in obj]
            told = "".join(quoted)
            # Nothing but the quotes just added, and no character that Postgres has not.
            if told.count('"') != 2 * (len(obj) - obj.count(None)) or "\\" in told or "\0" in told:
                quoted = None
        return super().dump(obj) if quoted is None else f"{{{','.join(quoted)}}}".encode()


async def use_quick_arrays(conn: AsyncConnection[Any]) -> None:
    """For all statements of this connection."""
    conn.adapters.register_dumper(list, QuickListDumper)
