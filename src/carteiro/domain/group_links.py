"""Group links: one template to one person after an enrolment, with the link of a group. A reminder is one that is sent
at once, by the request itself.

The structs are the wire format. The template's body takes two placeholders: {{1}} is the name, {{2}} the link.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from hashlib import sha256
from typing import Annotated, Any

import msgspec

from carteiro.domain import phones
from carteiro.domain.errors import FieldError
from carteiro.domain.lifecycle import ENDED, BatchState, MessageState
from carteiro.domain.phones import Phone
from carteiro.domain.requests import MOST_ATTEMPTS, TemplateName
from carteiro.domain.templates import ButtonType, HeaderType, Template, forbidden_terms, is_https_url

PLACEHOLDERS = 2
DELAY_MAX_MS = 365 * 24 * 3600 * 1000
_PATH = re.compile("[/?]")
ATTEMPTS = 5
"""Unless the request says otherwise."""


class Flow(StrEnum):
    """Which enrolment it was; an account may have a service for each."""

    PERSONAL = "personal"
    BUSINESS = "business"


class Door(StrEnum):
    """As `batch.door` has it."""

    GROUP_LINK = "group_link"
    REMINDER = "reminder"


class LinkState(StrEnum):
    """The words of these doors. Schema `audit` has the same mapping (tests/storage/test_group_links.py)."""

    PENDING = "pending"
    PROCESSING = "processing"
    SENT = "sent"
    FAILED = "failed"


class Invitation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What both doors take."""

    flow: Flow
    phone: str
    """In any usual spelling; +5511987654321."""
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
    """{{1}} of the template's body."""
    group_link: Annotated[str, msgspec.Meta(min_length=1, max_length=2048)]
    """An https URL. {{2}} of the template's body; a URL button with a suffix gets its path."""
    template: TemplateName
    max_attempts: Annotated[int, msgspec.Meta(ge=1, le=MOST_ATTEMPTS)] = ATTEMPTS
    """Calls that may end without having left before it counts as failed. A reminder makes one call at most."""
    reference: Annotated[str, msgspec.Meta(min_length=1, max_length=255)] | None = None
    """The caller's own name for it, unique within the account: the same one twice is one send."""


class GroupLinkRequest(Invitation, frozen=True, forbid_unknown_fields=True, kw_only=True):
    delay_ms: Annotated[int, msgspec.Meta(ge=0, le=DELAY_MAX_MS)] = 0
    """Until it is due."""


class ReminderRequest(Invitation, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """To be sent at once."""


def request_hash(door: Door, request: Invitation) -> bytes:
    """Equal for requests that say the same."""
    return sha256(msgspec.json.encode([door, request])).digest()


def request_faults(request: Invitation) -> Iterator[FieldError]:
    """What is wrong whatever the template."""
    phone = phones.parse(request.phone)
    if not isinstance(phone, Phone):
        yield FieldError("/phone", str(phone), phone.remedy)
    if request.name.isspace():
        yield FieldError("/name", "blank", "WhatsApp refuses a blank placeholder.")
    if not is_https_url(request.group_link):
        yield FieldError("/group_link", "not-https", "It must be an https URL of 2,048 characters at most.")


def template_faults(request: Invitation, content: Mapping[str, Any], forbidden: Sequence[str]) -> Iterator[FieldError]:
    """Why this template cannot carry the link. `forbidden`: words that the service refuses."""
    count = content["placeholders"]
    if count != PLACEHOLDERS:
        told = f"It takes {count} placeholders; a group link fills two: {{{{1}}}} the name and {{{{2}}}} the link."
        yield FieldError("/template", "template-placeholders", told)
    header = content["header"]
    if header is not None and (header["type"] != HeaderType.TEXT or "{{" in header["text"]):
        yield FieldError("/template", "template-header", "Its header takes media or a text, which a group link lacks.")
    if any(button["type"] == ButtonType.COPY_CODE for button in content["buttons"]):
        yield FieldError("/template", "template-button", "Its button takes a code, which a group link lacks.")
    if _suffixed(content) and not url_suffix(request.group_link):
        yield FieldError("/group_link", "no-path", "The template's button needs the link's path, and it has none.")
    texts = "\n".join([Template.from_content(content).texts, request.name])
    if found := forbidden_terms(texts, forbidden):
        yield FieldError("/template", "forbidden-term", f"the service refuses promotional words: {', '.join(found)}")


def url_suffix(link: str) -> str:
    """What a URL button gets of the link: its path and query without the first slash."""
    rest = link.partition("://")[2].partition("#")[0]
    begins = _PATH.search(rest)
    return rest[begins.start() :].removeprefix("/") if begins else ""


def extra_of(request: Invitation, content: Mapping[str, Any]) -> dict[str, Any] | None:
    """What the message takes beyond its two placeholders, as `templates.render_parameters` takes it."""
    count = _suffixed(content)
    return {"buttons": [url_suffix(request.group_link)] * count} if count else None


def _suffixed(content: Mapping[str, Any]) -> int:
    """URL buttons that end in a suffix."""
    return sum("{{" in button["url"] for button in content["buttons"])


def link_state(batch_status: str, message_status: str) -> LinkState:
    match message_status:
        case MessageState.PENDING:
            return LinkState.FAILED if BatchState(batch_status) in ENDED else LinkState.PENDING
        case MessageState.PENDING_SEND | MessageState.UNKNOWN:
            return LinkState.PROCESSING
        case MessageState.SENT | MessageState.DELIVERED | MessageState.SEEN:
            return LinkState.SENT
        case _:
            return LinkState.FAILED
