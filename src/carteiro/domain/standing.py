"""What a provider says of senders, limits and templates, apart from any message; and what to make of it."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class Standing(StrEnum):
    """Whether a sender may be used, by the provider's word."""

    GOOD = "good"
    STOPPED = "stopped"
    UNCLEAR = "unclear"
    """The word settles nothing: a sender stays as it is."""


@dataclass(frozen=True, slots=True)
class Tier:
    """A daily limit as the provider names it."""

    word: str
    limit: int | None
    """Messages a window; None also where the word says that there is no limit, or is not known to us."""
    known: bool = True


@dataclass(frozen=True, slots=True)
class SenderState:
    """One sender. None: the provider did not say."""

    sender: str
    word: str
    """Its status, in the provider's words."""
    standing: Standing
    quality: str | None = None
    """HIGH, MEDIUM or LOW."""
    tier: Tier | None = None
    """Of the business portfolio that the sender belongs to."""


@dataclass(frozen=True, slots=True)
class TemplateState:
    """One physical copy of a template, by its name in its business manager."""

    name: str
    language: str
    word: str
    """Its status, in the provider's words."""
    usable: bool
    id: str | None = None
    """The provider's own."""
    at: datetime | None = None
    """Since when, where the provider says so."""
    account: str | None = None
    """Whose it is, as the provider names that account; None: not said."""


@dataclass(frozen=True, slots=True)
class AccountState:
    """Whether any sender of an account may send."""

    account: str
    """As the provider names it."""
    word: str
    standing: Standing
    at: datetime
    until: datetime | None = None
    """When a stop ends by itself; None: not known."""


def portfolio_tier(tiers: Iterable[Tier]) -> Tier | None:
    """The limit of a portfolio by what is said of its senders, which may be of different ages.

    The smallest number wins. "No limit" counts only where nothing else is said; a word that we do not know counts
    before it, because it may be a limit.
    """
    said = list(tiers)
    numbers = [tier for tier in said if tier.limit is not None]
    if numbers:
        return min(numbers, key=lambda tier: tier.limit or 0)
    unknown = [tier for tier in said if not tier.known]
    return next(iter(unknown or said), None)
