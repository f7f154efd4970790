"""How integers and lists become parameters of statements."""

from datetime import datetime
from types import NoneType
from typing import Any

from psycopg import AsyncConnection
from psycopg.abc import Buffer, PyFormat
from psycopg.adapt import Dumper
from psycopg.types.array import ListDumper
from psycopg.types.numeric import Int4, Int4Dumper, IntDumper


class IntegerDumper(IntDumper):
    """No `smallint`: two small parameters may well have a sum that is none, and `%s + %s` fails where it would be one.

    Nor does a statement get a second plan for the same parameters when they grow.
    """

    _int4 = Int4Dumper(Int4)

    def upgrade(self, obj: int, format: PyFormat) -> Dumper:
        return self._int4 if -(2**31) <= obj < 2**31 else super().upgrade(obj, format)


class QuickListDumper(ListDumper):
    """Converts flat lists of one plain type at once, and leaves all others to psycopg.

    Slices go to Postgres as arrays of some hundred elements; converting those one by one cost a claim or a record a
    fifth of its CPU.
    """

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


async def convert_parameters(conn: AsyncConnection[Any]) -> None:
    """So for all statements of this connection."""
    conn.adapters.register_dumper(int, IntegerDumper)
    conn.adapters.register_dumper(list, QuickListDumper)
