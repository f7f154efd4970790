"""Reading what others wrote: every field may be missing, new, or of another type."""

import re
from datetime import UTC, datetime
from typing import Any

import msgspec

_decode = msgspec.json.Decoder().decode

# What a provider quotes back may hold a phone.
_LONG_NUMBER = re.compile(r"\d{6,}")
_DETAIL_MAX = 200
_WORD_MAX = 512


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


def read_unix(value: Any) -> datetime | None:
    """An instant given in seconds since 1970, as a number or as text."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 18:
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    try:
        return datetime.fromtimestamp(value, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def read_digits(value: Any) -> str | None:
    """A phone in international digits; None for anything else."""
    return value if isinstance(value, str) and value.isascii() and value.isdigit() else None


def read_number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def read_word(value: Any) -> str | None:
    """A word as Postgres can hold it; None for anything else."""
    if not isinstance(value, str) or not 0 < len(value) <= _WORD_MAX or not value.isascii() or not value.isprintable():
        return None
    return value


def detail_of(*parts: Any) -> str:
    """What an error says, in one line without long numbers."""
    text = "; ".join(str(part) for part in parts if part)
    return _LONG_NUMBER.sub("...", text)[:_DETAIL_MAX]
