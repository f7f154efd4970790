"""How senders and templates stand, as `POST /_sim/senders` and `POST /_sim/templates` set it."""

from collections.abc import Iterable
from typing import Annotated

import msgspec

Word = Annotated[str, msgspec.Meta(min_length=1, max_length=100)]


class SenderOrder(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Words are the provider's; any will do. What is not given stays as it is."""

    sender: str | None = None
    """None: every sender that was not set by its number, also those to come."""
    quality: Word | None = None
    status: Word | None = None
    limit: Word | None = None
    account: Word | None = None
    """Of a number of Meta's: its WhatsApp business account."""


class TemplateOrder(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    name: Word
    language: Word = "pt_BR"
    status: Word
    sender: str | None = None
    """None: at every sender. At Meta's a WhatsApp business account."""
    account: str | None = None
    """Of this WhatsApp business account Meta's webhook is posted. None: it has to be asked for."""
    notify_url: str | None = None
    """Where a TEMPLATE_STATUS_UPDATE is posted. None: it has to be asked for."""


class SenderStanding(msgspec.Struct, kw_only=True, frozen=True):
    """Until told otherwise a sender is connected, and nothing is said of its quality and limit."""

    quality: str = "UNKNOWN"
    status: str = "CONNECTED"
    limit: str = "LIMIT_NA"
    account: str = "1"


class Standings:
    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._usual = SenderStanding()
        self._senders: dict[str, SenderStanding] = {}
        self._templates: dict[tuple[str | None, str, str], str] = {}

    def set_sender(self, order: SenderOrder) -> None:
        given = {name: getattr(order, name) for name in SenderStanding.__struct_fields__}
        told = {name: word for name, word in given.items() if word is not None}
        if order.sender is None:
            self._usual = msgspec.structs.replace(self._usual, **told)
        else:
            self._senders[order.sender] = msgspec.structs.replace(self.of_sender(order.sender), **told)

    def of_sender(self, sender: str) -> SenderStanding:
        return self._senders.get(sender, self._usual)

    def set_template(self, order: TemplateOrder) -> None:
        self._templates[order.sender, order.name, order.language] = order.status

    def templates_of(self, sender: str, sent: Iterable[str]) -> list[tuple[str, str, str]]:
        """(name, language, status): what was set, and what the sender sent with, which is approved until told."""
        found = {(name, "pt_BR"): "APPROVED" for name in sent}
        for owner in (None, sender):
            found |= {(name, language): word for (of, name, language), word in self._templates.items() if of == owner}
        return [(name, language, word) for (name, language), word in sorted(found.items())]
