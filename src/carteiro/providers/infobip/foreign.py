"""Reading what others wrote: every field may be missing, new, or of another type."""

from datetime import UTC, datetime
from typing import Any

import msgspec

_decode = msgspec.json.Decoder().decode


def decode_json(body: bytes) -> Any:
    """The document, or None for what is not JSON."""
    try:
        return _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def rows_of(document: Any, field: str) -> list[Any] | None:
    """The list in one field of a document; None when there is none."""
    rows = document.get(field) if isinstance(document, dict) else None
    return rows if isinstance(rows, list) else None


def read_time(value: Any) -> datetime | None:
    """An instant in UTC; None for anything else, and for times without an offset.

    Infobip writes milliseconds and an offset without a colon (`-0300`), in places `Z`.
    """
    if not isinstance(value, str):
        return None
    try:
        at = datetime.fromisoformat(value)
        return at.astimezone(UTC) if at.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None
