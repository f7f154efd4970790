"""Cursors: opaque to clients, the last item's key to us."""

import base64
import binascii
from collections.abc import Callable, Sequence
from typing import TypeVar
from uuid import UUID

from carteiro.domain.errors import InvalidRequest

Key = TypeVar("Key", int, UUID)
Row = TypeVar("Row")


def encode(key: int | UUID) -> str:
    return base64.urlsafe_b64encode(str(key).encode()).decode().rstrip("=")


def decode(cursor: str | None, kind: type[Key]) -> Key | None:
    """Raises InvalidRequest for anything that `encode` did not make."""
    if cursor is None:
        return None
    try:
        text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode("ascii")
        key = kind(text)
    except (ValueError, binascii.Error):
        raise InvalidRequest("`cursor` is not one that this API gave.") from None
    if isinstance(key, int) and not 0 <= key < 2**63:
        raise InvalidRequest("`cursor` is not one that this API gave.")
    return key


def next_cursor(
    rows: Sequence[Row], limit: int, key_of: Callable[[Row], int | UUID]
) -> tuple[Sequence[Row], str | None]:
    """The page and its cursor, from up to `limit` + 1 rows: the surplus one only tells that there is more."""
    page = rows[:limit]
    return page, encode(key_of(page[-1])) if len(rows) > limit else None
