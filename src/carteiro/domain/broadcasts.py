"""Broadcasts: what a client sends, the recipients that come of a group, and the words of this door."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from typing import Annotated, Any

import msgspec

from carteiro.domain import phones
from carteiro.domain.contacts import Row
from carteiro.domain.errors import FieldError
from carteiro.domain.lifecycle import BatchState, MessageState
from carteiro.domain.phones import Phone
from carteiro.domain.templates import GuardFailure, Template, forbidden_terms, render_parameters

FAULTS_MAX = 100
"""Of one kind that are named in one answer."""

Variable = Annotated[str, msgspec.Meta(max_length=1024)]
"""As long as WhatsApp lets a body be. Each recipient's row has a copy, so there must be a bound."""


class BroadcastRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    group_id: Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
    template_name: Annotated[str, msgspec.Meta(min_length=1, max_length=512)]
    language: str = "pt_BR"
    variables: dict[str, Variable] = {}
    """By the number of the placeholder, from "1". They say the same to every recipient."""


class BroadcastStatus(StrEnum):
    QUEUED = "queued"
    SENDING = "sending"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"


class RecipientStatus(StrEnum):
    PENDING = "pending"
    SENT = "sent"
    DELIVERED = "delivered"
    READ = "read"
    FAILED = "failed"


B, M = BatchState, MessageState
# A draft is not to be seen.
STATUS_OF_BATCH: Mapping[str, BroadcastStatus] = {
    B.PENDING_MODERATION: BroadcastStatus.QUEUED,
    B.PENDING: BroadcastStatus.QUEUED,
    B.PROCESSING: BroadcastStatus.SENDING,
    B.PAUSED: BroadcastStatus.SENDING,
    B.COMPLETED: BroadcastStatus.COMPLETED,
    B.CANCELLED: BroadcastStatus.CANCELED,
    B.ERROR: BroadcastStatus.FAILED,
}
STATUS_OF_MESSAGE: Mapping[str, RecipientStatus] = {
    M.PENDING: RecipientStatus.PENDING,
    M.PENDING_SEND: RecipientStatus.PENDING,
    M.UNKNOWN: RecipientStatus.PENDING,
    M.SENT: RecipientStatus.SENT,
    M.DELIVERED: RecipientStatus.DELIVERED,
    M.SEEN: RecipientStatus.READ,
    M.FAILED: RecipientStatus.FAILED,
    M.UNSENT: RecipientStatus.FAILED,
}


def states_of(status: RecipientStatus) -> list[str]:
    """The states of messages that this word stands for."""
    return [str(state) for state, word in STATUS_OF_MESSAGE.items() if word is status]


@dataclass(frozen=True, slots=True)
class Progress:
    """Recipients by how far they are. A step includes those beyond it; pending + sent + failed is the total."""

    pending: int
    sent: int
    delivered: int
    read: int
    failed: int


def progress_of(counts: Mapping[str, int]) -> Progress:
    """From a batch's counts by state of message, which neither repetition nor disorder of receipts can spoil."""
    by_word: Counter[str] = Counter()
    for state, count in counts.items():
        by_word[STATUS_OF_MESSAGE[state]] += count
    read = by_word[RecipientStatus.READ]
    delivered = read + by_word[RecipientStatus.DELIVERED]
    sent = delivered + by_word[RecipientStatus.SENT]
    return Progress(by_word[RecipientStatus.PENDING], sent, delivered, read, by_word[RecipientStatus.FAILED])


def request_faults(
    request: BroadcastRequest, content: Mapping[str, Any], *, forbidden: Sequence[str] = ()
) -> Iterator[FieldError]:
    """What is wrong with a request for a template with this frozen content. `forbidden`: the service's barred terms."""
    needed = content["placeholders"]
    wanted = {str(number) for number in range(1, needed + 1)}
    told = f"the template takes {_listed(needed)}"
    for name in sorted(request.variables.keys() - wanted)[:FAULTS_MAX]:
        yield FieldError(f"/variables/{_escaped(name)}", "unexpected", told)
    for name in sorted(wanted - request.variables.keys(), key=int):
        yield FieldError("/variables", "missing", f"{told}: there is no {name!r}")
    if request.variables.keys() == wanted:
        values = placeholders_of(request)
        yield from (
            FieldError(f"/variables/{number}", "blank", "WhatsApp refuses a blank placeholder")
            for number, value in enumerate(values, start=1)
            if not value or value.isspace()
        )
        rendered = render_parameters(content, values)
        if isinstance(rendered, GuardFailure) and rendered.field != "placeholders":
            told = f"{rendered.detail} A broadcast has none to give: post a batch."
            yield FieldError("/template_name", rendered.code.lower().replace("_", "-"), told)
    barred = forbidden_terms("\n".join([Template.from_content(content).texts, *request.variables.values()]), forbidden)
    if barred:
        yield FieldError("/variables", "forbidden-term", f"the service refuses promotional words: {', '.join(barred)}")


def request_hash(owner_id: str, request: BroadcastRequest) -> bytes:
    """What the row of its batch shows of a request; broadcasts do not go by it."""
    return sha256(msgspec.json.encode(["broadcast", owner_id, request])).digest()


def placeholders_of(request: BroadcastRequest) -> list[str]:
    """The values in the order of the placeholders; `request_faults` found nothing."""
    return [request.variables[str(number)] for number in range(1, len(request.variables) + 1)]


def recipients(written: Sequence[str], placeholders: list[str]) -> tuple[list[Row], dict[str, Any] | None]:
    """A row for each phone identity among the phones as the directory writes them; and what was left out.

    That is {"counts": {code: n}, "rows": []}, as a batch keeps it: places in somebody else's table say nothing.
    """
    parsed = [phones.parse(phone) for phone in written]
    kept, duplicates = phones.dedupe(parsed)
    left_out = Counter(str(phone) for phone in parsed if not isinstance(phone, Phone))
    if duplicates:
        left_out["duplicate"] = len(duplicates)
    rows = [
        Row(seq, phone.identity, phone.address, placeholders, None) for seq, phone in enumerate(kept.values(), start=1)
    ]
    return rows, {"counts": dict(left_out), "rows": []} if left_out else None


def _listed(needed: int) -> str:
    if not needed:
        return "no variables"
    return 'the variable "1"' if needed == 1 else f'the variables "1" to "{needed}"'


def _escaped(name: str) -> str:
    """As a step of a JSON pointer."""
    return name.replace("~", "~0").replace("/", "~1")
