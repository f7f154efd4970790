"""Taking one person out of what others wrote: raw receipts and inbound messages. Pure."""

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from carteiro.domain.phones import Phone

ERASED = "ERASED"
"""The code of a message that was withdrawn because its contact was erased."""
STUB = {"erased": True}
"""What stands where something was."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def spellings(phone: Phone) -> list[str]:
    """The digits by which a provider may name a phone: with and without the ninth one of a Brazilian mobile."""
    return sorted({phone.address, str(phone.identity)})


def redact(body: bytes, words: Iterable[str]) -> bytes | None:
    """The body without what mentions one of the words (digits of a phone, an id of a message); None: nothing does.

    The smallest item of a list that mentions one goes whole, with everything that it says; the other items stay. What
    is not JSON goes whole.
    """
    mentioned = _pattern(words)
    if not mentioned.search(body):
        return None
    try:
        return _encode(_without(_decode(body), mentioned))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _encode(STUB)


def _without(value: Any, mentioned: "re.Pattern[bytes]") -> Any:
    """The value, or a stub where it mentions a word outside of the lists in it; in those, item by item."""
    lists: list[list[Any]] = []
    bare = _bare(value, lists)
    if mentioned.search(_encode(bare)):
        return STUB
    for items in lists:
        items[:] = [_without(item, mentioned) for item in items]
    return value


def _bare(value: Any, lists: list[list[Any]]) -> Any:
    """The value with its lists empty, at any depth; they are added to `lists`."""
    if isinstance(value, dict):
        return {key: _bare(member, lists) for key, member in value.items()}
    if isinstance(value, list):
        lists.append(value)
        return []
    return value


def _pattern(words: Iterable[str]) -> "re.Pattern[bytes]":
    """Whole words only: the digits of a phone inside longer ones are another number."""
    listed = b"|".join(re.escape(word.encode()) for word in words)
    return re.compile(rb"(?<![0-9A-Za-z])(?:" + listed + rb")(?![0-9A-Za-z])")
