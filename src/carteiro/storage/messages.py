"""Messages as rows: loaded in bulk, read page by page."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
from psycopg import AsyncConnection
from psycopg.rows import args_row

from carteiro.domain.contacts import Row
from carteiro.storage.statements import load

SQL = load("messages")

# What COPY's text form and an array literal inside it give a meaning to.
_SPECIAL = re.compile(r'[\\"\t\n\r]')
_ESCAPED = {
    "\\": "\\\\\\\\",  # once for the array, once more for COPY
    '"': '\\\\"',
    "\t": "\\t",
    "\n": "\\n",
    "\r": "\\r",
}


@dataclass(frozen=True, slots=True)
class Listed:
    seq: int
    address: str
    status: str
    code: str | None
    attempt: int
    sender_id: str | None
    business_manager_id: str | None
    provider_id: str | None
    sent_at: datetime | None
    delivered_at: datetime | None
    seen_at: datetime | None
    failed_at: datetime | None
    follow_up_status: str | None
    """None: the contact has not answered, or nothing was to follow."""
    follow_up_at: datetime | None
    """When it came to be so."""
    follow_up_code: str | None


class CopyText(NamedTuple):
    """Rows as COPY reads them, for each of the two tables."""

    messages: bytes
    content: bytes


def copy_text(batch_id: UUID, rows: Sequence[Row]) -> CopyText:
    """No text may hold a NUL character: Postgres has none. Takes about 1.5 us a row: thousands belong in a thread."""
    return CopyText(
        "".join([f"{batch_id}\t{row.seq}\t{row.identity}\n" for row in rows]).encode(),
        "".join(
            [f"{batch_id}\t{row.seq}\t{row.address}\t{_array(row.placeholders)}\t{_json(row.extra)}\n" for row in rows]
        ).encode(),
    )


async def load_messages(conn: AsyncConnection[Any], text: CopyText) -> None:
    """Insert rows of a batch by COPY."""
    async with conn.cursor() as cursor:
        async with cursor.copy(SQL.copy_messages) as copy:
            await copy.write(text.messages)
        async with cursor.copy(SQL.copy_content) as copy:
            await copy.write(text.content)


async def read_page(
    conn: AsyncConnection[Any], batch_id: UUID, *, after_seq: int, status: str | None, limit: int
) -> list[Listed]:
    """Messages in order of seq, after `after_seq`, of one state or all."""
    async with conn.cursor(row_factory=args_row(Listed)) as cursor:
        await cursor.execute(SQL.page, {"batch_id": batch_id, "after_seq": after_seq, "status": status, "limit": limit})
        return await cursor.fetchall()


def _array(values: Sequence[str]) -> str:
    if not values:
        return "{}"
    if _SPECIAL.search("".join(values)):
        values = [_SPECIAL.sub(lambda found: _ESCAPED[found[0]], value) for value in values]
    return '{"' + '","'.join(values) + '"}'


def _json(value: dict[str, Any] | None) -> str:
    if value is None:
        return "\\N"
    return msgspec.json.encode(value).decode().replace("\\", "\\\\")
