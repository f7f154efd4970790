"""Infobip's wire format, seen from the other side. Only what the simulator needs; written apart from the client's
codec, so that a mistake in one is not repeated in the other.
"""

from functools import lru_cache
from time import gmtime, strftime
from typing import Annotated, Any, Literal
from zlib import crc32

import msgspec

from carteiro.providers.infobip.codes import ERRORS, STATUSES
from carteiro.providers.simulator.ledger import Ledger, unpack
from carteiro.providers.simulator.plan import Plan

encode = msgspec.json.Encoder().encode

_Id = Annotated[str, msgspec.Meta(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f]+$")]
_Phone = Annotated[str, msgspec.Meta(min_length=1, max_length=24, pattern=r"^[0-9]+$")]
_To = Annotated[str, msgspec.Meta(min_length=1, max_length=150, pattern=r"^[^\x00-\x1f]+$")]
_Filled = Annotated[str, msgspec.Meta(min_length=1)]
_Url = Annotated[str, msgspec.Meta(min_length=1, max_length=2048)]


class _Body(msgspec.Struct):
    placeholders: tuple[_Filled, ...]


class _Header(msgspec.Struct):
    type: Literal["TEXT", "IMAGE", "VIDEO", "DOCUMENT", "LOCATION"]
    mediaUrl: _Url | None = None


class _TemplateData(msgspec.Struct):
    body: _Body
    header: _Header | None = None
    buttons: Annotated[list[dict[str, Any]], msgspec.Meta(max_length=10)] = msgspec.field(default_factory=list)


class _Content(msgspec.Struct):
    templateName: Annotated[str, msgspec.Meta(min_length=1, max_length=512, pattern=r"^[a-z0-9_]+$")]
    language: _Filled
    templateData: _TemplateData


class Message(msgspec.Struct, rename={"sender": "from"}):
    """One message of a request, as far as it is checked."""

    sender: _Phone
    to: _To
    content: _Content
    messageId: _Id | None = None
    notifyUrl: _Url | None = None


class Send(msgspec.Struct):
    messages: Annotated[list[Message], msgspec.Meta(min_length=1)]


class _FreeContent(msgspec.Struct):
    text: Annotated[str, msgspec.Meta(min_length=1, max_length=4096)] | None = None
    mediaUrl: _Url | None = None
    caption: Annotated[str, msgspec.Meta(max_length=3000)] | None = None
    filename: Annotated[str, msgspec.Meta(max_length=240)] | None = None

    def __post_init__(self) -> None:
        if (self.text is None) == (self.mediaUrl is None):
            raise ValueError("either text or mediaUrl")

    def fits(self, kind: str) -> bool:
        """Whether it is a text, image, video or document, as the address says to which it was posted."""
        if kind == "text":
            return self.text is not None and self.caption is None and self.filename is None
        return self.mediaUrl is not None and (self.filename is None or kind == "document")


class FreeMessage(msgspec.Struct, rename={"sender": "from"}):
    """A text or media: the whole request is one message."""

    sender: _Phone
    to: _To
    content: _FreeContent
    messageId: _Id | None = None
    notifyUrl: _Url | None = None


decode_send = msgspec.json.Decoder(Send).decode
_decode_free = msgspec.json.Decoder(FreeMessage).decode


def decode_free(body: bytes, kind: str) -> FreeMessage:
    """Raises msgspec.DecodeError for what is not of that kind."""
    message = _decode_free(body)
    if not message.content.fits(kind):
        raise msgspec.ValidationError(f"Not the content of a message of kind {kind} - at `$.content`")
    return message


_GROUP_NAMES = {0: "OK", 1: "PENDING", 2: "UNDELIVERABLE", 3: "DELIVERED", 4: "EXPIRED", 5: "REJECTED"}
_GROUPS = {3: 1, 7: 1, 26: 1, 2: 3, 5: 3, 4: 2, 9: 2, 31: 2, 100: 2, 15: 4, 29: 4}
_PRICE = {"pricePerMessage": 0, "currency": "BRL"}
PENDING_STATUS_ID = 7


@lru_cache(maxsize=1024)
def status_object(status_id: int) -> msgspec.Raw:
    group_id = _GROUPS.get(status_id, 5)
    known = STATUSES.get(status_id)
    name = known.name if known else f"STATUS_{status_id}"
    return _raw({"groupId": group_id, "groupName": _GROUP_NAMES[group_id], "id": status_id, "name": name})


@lru_cache(maxsize=1024)
def error_object(error_id: int) -> msgspec.Raw:
    known = ERRORS.get(error_id)
    if error_id == 0:
        return _raw({"groupId": 0, "groupName": "OK", "id": 0, "name": "NO_ERROR", "permanent": False})
    name = known.name if known else f"EC_{error_id}"
    return _raw({"groupId": 1, "groupName": "HANDSET_ERRORS", "id": error_id, "name": name, "permanent": True})


def _raw(fields: dict[str, Any]) -> msgspec.Raw:
    return msgspec.Raw(encode({**fields, "description": str(fields["name"]).replace("_", " ").capitalize()}))


def answer_row(to: str, message_id: str, status_id: int, error_id: int = 0) -> dict[str, Any]:
    """One message of the answer to a send."""
    row = {"to": to, "messageCount": 1, "messageId": message_id, "status": status_object(status_id)}
    if error_id:
        row["error"] = error_object(error_id)
    return row


def error_body(plan: Plan) -> tuple[bytes, str]:
    """The body of a refused call and its content type."""
    match plan.envelope:
        case "legacy":
            exception = {"messageId": plan.error, "text": plan.text}
            return encode({"requestError": {"serviceException": exception}}), "application/json"
        case "newer":
            fields = {"errorCode": plan.error, "description": plan.text, "action": "Try again later."}
            return encode({**fields, "violations": [], "resources": []}), "application/json"
        case "none":
            return f"<html><body>{plan.http_status}</body></html>".encode(), "text/html"


def validation_body(problem: str) -> bytes:
    """400 for a request that does not keep the rules; `problem` is msgspec's message, the path at its end."""
    text, _, path = problem.partition(" - at `$.")
    errors = {path.rstrip("`") or "messages": [text]}
    exception = {"messageId": "BAD_REQUEST", "text": "Bad request", "validationErrors": errors}
    return encode({"requestError": {"serviceException": exception}})


def delivery_item(ledger: Ledger, row: int, outcome: int, done_wall_ns: int) -> dict[str, Any]:
    """One result of a delivery report."""
    status_id, error_id = unpack(outcome)
    to, message_id = ledger.address(row)
    return {
        "bulkId": "",
        "price": _PRICE,
        "status": status_object(status_id),
        "error": error_object(error_id),
        "messageId": message_id,
        "doneAt": clock_text(done_wall_ns),
        "messageCount": 1,
        "sentAt": clock_text(ledger.arrived_wall_ns(row)),
        "to": to,
    }


def seen_item(ledger: Ledger, row: int, seen_wall_ns: int) -> dict[str, Any]:
    """One result of a seen report: from the person, to the business."""
    to, message_id = ledger.address(row)
    sent_at, seen_at = clock_text(ledger.arrived_wall_ns(row)), clock_text(seen_wall_ns)
    return {"messageId": message_id, "from": to, "to": ledger.sender(row), "sentAt": sent_at, "seenAt": seen_at}


def template_id(name: str, language: str) -> str:
    """The same at every sender."""
    return str(crc32(f"{name} {language}".encode()))


def template_notice(name: str, language: str, status: str, wall_ns: int) -> dict[str, Any]:
    """The webhook of a template whose status changed."""
    return {
        "messageTemplateId": template_id(name, language),
        "messageTemplateName": name,
        "messageTemplateLanguage": language,
        "timestamp": clock_text(wall_ns),
        "change": {"type": "TEMPLATE_STATUS_UPDATE", "newStatus": status, "reason": "NONE"},
    }


def log_item(ledger: Ledger, row: int) -> dict[str, Any]:
    """One result of `GET /whatsapp/2/logs`."""
    status_id, error_id = unpack(ledger.outcome(row))
    to, message_id = ledger.address(row)
    sent_at = clock_text(ledger.arrived_wall_ns(row))
    item = {
        "messageId": message_id,
        "bulkId": "",
        "sender": ledger.sender(row),
        "destination": to,
        "sentAt": sent_at,
        "messageCount": 1,
        "status": status_object(status_id or PENDING_STATUS_ID),
        "error": error_object(error_id),
        "content": {"templateName": ledger.template(row)},
    }
    if status_id:
        item["doneAt"] = clock_text(ledger.done_wall_ns(row))
    return item


def clock_text(wall_ns: int) -> str:
    """Milliseconds, and an offset without a colon."""
    seconds, rest = divmod(wall_ns, 1_000_000_000)
    return f"{_second_text(seconds)}.{rest // 1_000_000:03d}+0000"


@lru_cache(maxsize=4096)
def _second_text(seconds: int) -> str:
    return strftime("%Y-%m-%dT%H:%M:%S", gmtime(seconds))
