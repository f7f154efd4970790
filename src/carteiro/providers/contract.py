"""What the use cases ask of a provider. The answers' vocabulary is `carteiro.domain.outcomes`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from carteiro.domain.outcomes import Fact, FreeForm, Outcome, Outgoing, Parsed
from carteiro.domain.standing import SenderState, TemplateState

MessageId = tuple[UUID, int]
"""(batch id, seq)."""


class LogUnreachable(Exception):
    """The provider's log gave no answer that can be relied on: nothing was found, and nothing proven absent."""


class KeyMissing(LookupError):
    """This process does not have the key of the service's provider: others may."""


class StatesUnreadable(Exception):
    """The provider gave no answer about senders or templates that can be relied on."""


@dataclass(frozen=True, slots=True)
class LookUp:
    """What the log says. An id in neither field is known there, but not with an outcome: ask again later."""

    facts: tuple[Fact, ...] = ()
    """In any order; one message may have several."""
    absent: tuple[MessageId, ...] = ()
    """The log was read and holds no trace of these."""


class Provider(Protocol):
    """One provider account: an address and a key. Safe to use from many tasks of one event loop."""

    @property
    def name(self) -> str: ...

    @property
    def has_log(self) -> bool:
        """Whether `look_up` can tell a message that was never taken from one that was."""
        ...

    @property
    def messages_per_request_max(self) -> int:
        """How many messages one `submit` takes as one request."""
        ...

    async def submit(self, messages: Sequence[Outgoing]) -> list[Outcome]:
        """Send as one request, and answer one outcome per message in the given order. Nothing is sent twice in here.

        No expected failure is raised. Little more than the encoding comes before the write, so that a check made by
        the caller right before is still true when the bytes leave.
        """
        ...

    async def submit_free(self, message: FreeForm) -> Outcome:
        """Send one message that is no template, once, under its `followup_key`. No expected failure is raised."""
        ...

    async def look_up(self, ids: Sequence[MessageId], *, followups: bool = False) -> LookUp:
        """Ask the log of these messages, or of their follow-ups. Raises LogUnreachable, also when only a part could be
        read.
        """
        ...

    async def read_senders(self, senders: Sequence[str]) -> list[SenderState]:
        """What the provider says of these senders; one that it does not know is left out. Raises StatesUnreadable."""
        ...

    async def read_templates(self, account: str) -> list[TemplateState]:
        """All templates of a WhatsApp business account, named by its own id where the provider has one, else by one of
        its senders. Raises StatesUnreadable.
        """
        ...

    def parse_webhook(self, body: bytes) -> Parsed:
        """Read a webhook's body item by item. Never raises: what cannot be read is counted."""
        ...

    async def close(self) -> None: ...
