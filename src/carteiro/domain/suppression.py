"""Who must not be written to: what puts a contact on an account's list, and how a contact's "stop" is recognised."""

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from carteiro.domain.outcomes import Kind

SUPPRESSED = "SUPPRESSED"
"""The code of a message that is not sent because its contact is on the list."""

COOL_DOWN_FIRST_S = 24 * 3600.0
COOL_DOWN_LONGEST_S = 30 * 24 * 3600.0
"""A cool-down is twice as long as the one before it, up to this; so long after the last one the count begins anew."""

TEXT_MAX = 200
"""Characters of a message that may be a stop word; longer ones are not looked at."""


class Scope(StrEnum):
    """What is not sent to the contact."""

    ALL = "all"
    MARKETING = "marketing"
    """Templates of category MARKETING only."""


class Source(StrEnum):
    """Whose word it is. Each has a word of its own on a contact: one that is taken back leaves the others standing."""

    API = "api"
    PREFERENCE = "preference"
    """The contact's own setting in WhatsApp, as the provider tells it or refuses by it."""
    BLOCKLIST = "blocklist"
    """The provider's list of numbers that it does not deliver to."""
    INBOUND = "inbound"
    """The contact wrote a stop word."""
    COOL_DOWN = "cool-down"
    """The contact has had enough marketing for now. The only word that lapses by itself."""


@dataclass(frozen=True, slots=True)
class Word:
    """What one source says of one contact of an account."""

    account_id: str
    phone_key: int = field(repr=False)
    """Phone identity (domain/phones.py)."""
    scope: Scope
    source: Source
    said_at: datetime | None = None
    """Of two words of one source the later one counts, in whatever order they arrive. None: now."""
    reason: str | None = None
    stop: bool = True
    """False: taken back."""


REFUSALS: dict[Kind, tuple[Scope, Source]] = {
    Kind.CONTACT_MARKETING: (Scope.MARKETING, Source.PREFERENCE),
    Kind.BLOCKED: (Scope.ALL, Source.BLOCKLIST),
    Kind.COOL_DOWN: (Scope.MARKETING, Source.COOL_DOWN),
}
"""The refusals that suppress their contact."""


def scopes_of(category: str | None) -> list[Scope]:
    """The scopes that stop a template of this category."""
    return [Scope.ALL, Scope.MARKETING] if category == "MARKETING" else [Scope.ALL]


class StopWords:
    """Recognises a message that is a stop word and nothing else, whatever its case, accents and punctuation."""

    def __init__(self, words: Iterable[str] = ()) -> None:
        self._words = {folded for word in words if (folded := _folded(word))}

    def __contains__(self, text: str) -> bool:
        return len(text) <= TEXT_MAX and _folded(text) in self._words


def _folded(text: str) -> str:
    """Letters and digits without accents, in words one space apart."""
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    kept = (char for char in decomposed if not unicodedata.combining(char))
    return " ".join("".join(char if char.isalnum() else " " for char in kept).split())
