"""What a provider can say about a message: the vocabulary between the providers and the use cases.

`submit` answers one `Outcome` per message and never raises for an expected failure. A receipt is the provider's later
word, given as `Fact`s; facts commute (see `facts.py`). Source of the rules: docs/architecture.md, "Outcomes".
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from carteiro.domain.standing import AccountState, TemplateState


class Kind(StrEnum):
    """What a refusal does beyond its own message."""

    CONTACT = "contact"
    CONTACT_MARKETING = "contact-marketing"
    COOL_DOWN = "cool-down"
    BLOCKED = "contact-blocked"
    """On the provider's own list of numbers that it does not deliver to."""
    TEMPLATE = "template"
    SENDER = "sender"
    ACCOUNT = "account"
    REQUEST = "request"
    TRANSIENT = "transient"
    RATE = "rate"
    DUPLICATE = "duplicate"


class Scope(StrEnum):
    """Who waits when a provider asks to slow down."""

    SERVICE = "service"
    SENDER = "sender"
    CONTACT = "contact"
    """This sender to this contact: nobody else is held up."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """The provider took the message; `provider_id` is its own id for it, or ours echoed."""

    provider_id: str
    note: str | None = None
    """A code to show while the provider keeps the message back."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """A business refusal. Kinds template, sender and account say nothing against the contact: its message goes back."""

    code: str
    kind: Kind
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Throttled:
    """The provider asked to slow down; never an attempt, never a failure. `retry_after_s` None: it did not say."""

    retry_after_s: float | None = None
    code: str = "429"
    scope: Scope = Scope.SERVICE


@dataclass(frozen=True, slots=True)
class NotSent:
    """Certainly did not leave, or the provider's own envelope says that it took nothing."""

    code: str
    detail: str = ""
    tries_max: int | None = None
    """How often the message is tried at most, where that is fewer than its batch allows."""


@dataclass(frozen=True, slots=True)
class Ambiguous:
    """Bytes were written and no usable answer came: it may have been sent. `duplicate` when the id was already known
    there.
    """

    code: str
    detail: str = ""
    duplicate: bool = False


@dataclass(frozen=True, slots=True)
class RefusedTogether:
    """A request of several messages was refused as a whole, and which one is to blame is not said. None was sent."""

    code: str
    messages: int
    """In that request."""


Outcome = Accepted | Rejected | Throttled | NotSent | Ambiguous | RefusedTogether


class FactKind(StrEnum):
    """What can be known of a message, strongest first: seen > delivered > failed > assumed > sent > given up."""

    SEEN = "seen"
    DELIVERED = "delivered"
    FAILED = "failed"
    ASSUMED = "assumed"
    SENT = "sent"
    GIVEN_UP = "given_up"


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing the provider said of one message. `at` is the provider's time (UTC); `code` only with FAILED."""

    batch_id: UUID
    seq: int
    kind: FactKind
    at: datetime
    provider_id: str | None = None
    code: str | None = None
    failure: Kind | None = None
    followup: bool = False
    """It speaks of the message's follow-up, not of the message itself."""
    via: str | None = None
    """Which of our numbers it was told under, as the provider names it. None: the address it was posted to says whose
    it is.
    """
    wait_s: float | None = None
    """With a failure RATE: how long its sender should wait."""


@dataclass(frozen=True, slots=True)
class ForeignFact:
    """A fact that names its message by the provider's id only."""

    provider_id: str
    kind: FactKind
    at: datetime
    code: str | None = None
    failure: Kind | None = None
    via: str | None = None
    wait_s: float | None = None


@dataclass(frozen=True, slots=True)
class Inbound:
    """A contact wrote to one of our senders. Never logged: neither who nor what."""

    phone: str | None = field(repr=False)
    """International digits, perhaps without the ninth one; None where WhatsApp hides the number."""
    text: str = field(repr=False)
    """What was written, or the title of the button or list row that was chosen; empty where it has no words."""
    at: datetime | None
    message_id: str | None = None
    """The provider's id of what was written: the same each time it is told."""
    context_id: str | None = None
    """The id of the message that it answers: ours (`message_key`, `followup_key`) or the provider's; None: not said."""
    sender: str | None = None
    """Which of our numbers received it, as the provider names it."""
    is_button: bool = False
    """A button or a row of a list was chosen."""


@dataclass(frozen=True, slots=True)
class Preference:
    """A contact turned our marketing messages off (`stop`) or on again in WhatsApp."""

    phone: str | None = field(repr=False)
    stop: bool
    at: datetime | None
    sender: str | None = None
    """Which of our numbers it was told under, as the provider names it."""


@dataclass(frozen=True, slots=True)
class Notice:
    """Something the provider tells about an account of ours that is written down."""

    kind: str
    word: str | None
    """What happened, in the provider's words."""
    at: datetime | None
    account: str
    """As the provider names it."""
    syncs: bool
    """The provider has to be asked how things stand now."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """A webhook payload read item by item: one bad item never spoils the rest."""

    facts: tuple[Fact, ...] = ()
    orphans: tuple[str, ...] = ()
    """Ids that are not of our making, as given."""
    malformed: int = 0
    ignored: int = 0
    """Well-formed items of kinds we store but do not act on."""
    inbound: tuple[Inbound, ...] = ()
    preferences: tuple[Preference, ...] = ()
    templates: tuple[TemplateState, ...] = ()
    foreign: tuple[ForeignFact, ...] = ()
    accounts: tuple[AccountState, ...] = ()
    notices: tuple[Notice, ...] = ()


@dataclass(slots=True)  # not frozen, which costs four times as much to make: there is one a message
class Outgoing:
    """One message ready to leave: everything the provider needs and nothing else."""

    batch_id: UUID
    seq: int
    sender: str
    """As the provider names it."""
    to: str = field(repr=False)
    """E.164 digits without the plus."""
    template_name: str
    """The physical name in the sender's business manager."""
    language: str
    placeholders: tuple[str, ...] = field(default=(), repr=False)
    header: Mapping[str, str] | None = field(default=None, repr=False)
    """{"type": "IMAGE"|"VIDEO"|"DOCUMENT", "mediaUrl": ..., "filename": ...} or {"type": "TEXT", "placeholder":
    ...}.
    """
    buttons: tuple[Mapping[str, str], ...] = field(default=(), repr=False)
    """Those that take a parameter, in template order: {"type": "QUICK_REPLY"|"URL"|"COPY_CODE", "parameter": ...,
    "index": ...}, the last one its place among all buttons of the template, from "0" on.
    """
    parameter_names: tuple[str, ...] = ()
    """What the body calls its placeholders, in their order; empty: they are numbered."""
    notify_url: str | None = None


@dataclass(frozen=True, slots=True)
class FreeForm:
    """A text or media to a contact who wrote to us less than 24 hours ago: the follow-up of a message."""

    batch_id: UUID
    seq: int
    """Of the message that it follows."""
    sender: str
    """As the provider names it."""
    to: str = field(repr=False)
    """E.164 digits without the plus."""
    text: str | None = field(default=None, repr=False)
    media: Mapping[str, str] | None = field(default=None, repr=False)
    """Instead of a text: {"type": "IMAGE"|"VIDEO"|"DOCUMENT", "mediaUrl": ..., "caption": ..., "filename": ...}, the
    last two optional, a file name only of a document.
    """
    notify_url: str | None = None


def message_key(batch_id: UUID, seq: int) -> str:
    """Our id for a message at the provider: a receipt can always be traced to its row, and the log can be asked for
    it.
    """
    return f"{batch_id.hex}-{seq}"


def parse_message_key(key: str) -> tuple[UUID, int] | None:
    """The inverse of `message_key`; None when the id is not of our making."""
    head, separator, tail = key.partition("-")
    if not separator or len(head) != 32 or not (tail.isascii() and tail.isdigit()) or len(tail) > 10:
        return None
    try:
        return UUID(hex=head), int(tail)
    except ValueError:
        return None


def followup_key(batch_id: UUID, seq: int) -> str:
    """Our id for a message's follow-up at the provider."""
    return f"{message_key(batch_id, seq)}f"


def parse_followup_key(key: str) -> tuple[UUID, int] | None:
    """The inverse of `followup_key`; None for any other id, a message's own included."""
    return parse_message_key(key[:-1]) if key.endswith("f") else None
