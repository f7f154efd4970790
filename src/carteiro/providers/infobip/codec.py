"""Infobip's wire format: requests out, webhooks and log rows in. Answers to a send are read in `answers.py`.

Everything that comes in is foreign: fields may be missing, new, or of another type, and one bad item never spoils the
next. Items are matched by our `messageId` only; phones may come back in another form, or not at all.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from carteiro.domain.outcomes import (
    Fact,
    FactKind,
    Inbound,
    Kind,
    Outgoing,
    Parsed,
    Preference,
    message_key,
    parse_message_key,
)
from carteiro.providers.contract import MessageId
from carteiro.providers.infobip.codes import Meaning, Progress, meaning_of
from carteiro.providers.infobip.foreign import decode_json, read_time, rows_of
from carteiro.providers.infobip.states import read_template_update

_encode = msgspec.json.Encoder().encode

# The defaults would rewrite the links in a message.
_URL_OPTIONS = {"shortenUrl": False, "trackClicks": False}

_WORDS = {"TEXT": "text", "BUTTON": "text", "INTERACTIVE_BUTTON_REPLY": "title", "INTERACTIVE_LIST_REPLY": "title"}
"""Where each type of inbound message has its words."""


def encode_send(messages: Sequence[Outgoing]) -> bytes:
    """The body of `POST /whatsapp/1/message/template`."""
    return _encode({"messages": [_message(message) for message in messages]})


def _message(message: Outgoing) -> dict[str, Any]:
    data: dict[str, Any] = {"body": {"placeholders": message.placeholders}}
    if message.header is not None:
        data["header"] = dict(message.header)
    if message.buttons:
        data["buttons"] = [dict(button) for button in message.buttons]
    row: dict[str, Any] = {
        "from": message.sender,
        "to": message.to,
        "messageId": message_key(message.batch_id, message.seq),
        "content": {"templateName": message.template_name, "templateData": data, "language": message.language},
        "urlOptions": _URL_OPTIONS,
    }
    if message.notify_url is not None:
        row["notifyUrl"] = message.notify_url
    return row


def parse_webhook(body: bytes) -> Parsed:
    """Read a webhook's body: delivery and seen reports become facts, what contacts write or choose is handed on, and
    everything else is counted. Never raises.
    """
    document = decode_json(body)
    rows = rows_of(document, "results")
    if rows is None:
        return _read_notice(document)
    facts: list[Fact] = []
    orphans: list[str] = []
    written: list[Inbound] = []
    malformed = ignored = 0
    for row in rows:
        match _read_report(row):
            case Fact() as fact:
                facts.append(fact)
            case str(orphan):
                orphans.append(orphan)
            case Inbound() as inbound:
                written.append(inbound)
            case None:
                ignored += 1
            case _:
                malformed += 1
    return Parsed(tuple(facts), tuple(orphans), malformed, ignored, tuple(written))


def _read_notice(document: Any) -> Parsed:
    """A payload of one item: a template's new status, a preference, or a kind that we do not act on."""
    if not isinstance(document, dict):
        return Parsed(malformed=1)
    if "change" in document:
        template = read_template_update(document)
        return Parsed(ignored=1) if template is None else Parsed(templates=(template,))
    content = document.get("content")
    if not isinstance(content, dict) or "notificationMessagesStatus" not in content:
        return Parsed(ignored=1) if "content" in document else Parsed(malformed=1)
    status = content["notificationMessagesStatus"]
    if status not in ("stop", "resume"):
        return Parsed(malformed=1)
    at = read_time(document.get("createdAt"))
    return Parsed(preferences=(Preference(_digits(content.get("from")), status == "stop", at),))


class _Malformed:
    """An item that cannot be read."""


_MALFORMED = _Malformed()


def _read_report(row: Any) -> Fact | Inbound | str | _Malformed | None:
    """A fact, what a contact wrote, an id that is not ours, None for what we do not act on, or that it cannot be
    read.
    """
    if not isinstance(row, dict):
        return _MALFORMED
    if "seenAt" not in row and "status" not in row:
        if "message" in row:
            return _read_inbound(row)
        return None if "deletedAt" in row else _MALFORMED
    key = row.get("messageId")
    if not isinstance(key, str) or not key:
        return _MALFORMED
    ours = parse_message_key(key)
    if ours is None:
        return key
    if "seenAt" in row:
        at = read_time(row["seenAt"])
        return _MALFORMED if at is None else Fact(*ours, FactKind.SEEN, at)
    return _read_delivery(ours, row)


def _read_inbound(row: dict[str, Any]) -> Inbound | None:
    """None for what has no words: media, reactions, locations."""
    message, contact = row["message"], row.get("contact")
    text = message.get(_WORDS.get(str(message.get("type")), "")) if isinstance(message, dict) else None
    if not isinstance(text, str):
        return None
    # `from` is WhatsApp's own id of a contact who hides the number.
    phone = _digits(row.get("from")) or (_digits(contact.get("phoneNumber")) if isinstance(contact, dict) else None)
    return Inbound(phone, text, read_time(row.get("receivedAt")))


def _read_delivery(ours: MessageId, row: dict[str, Any]) -> Fact | _Malformed | None:
    meaning = read_status(row)
    if meaning is None:
        return _MALFORMED
    if meaning.verdict is Kind.DUPLICATE:
        # The first one is in: its own report decides.
        return None
    sent_at, done_at = read_time(row.get("sentAt")), read_time(row.get("doneAt"))
    match meaning.verdict:
        case Progress.ACCEPTED | Progress.UNKNOWABLE:
            at, kind, failure = sent_at or done_at, FactKind.SENT, None
        case Progress.DELIVERED:
            at, kind, failure = done_at or sent_at, FactKind.DELIVERED, None
        case Kind() as failure:
            at, kind = done_at or sent_at, FactKind.FAILED
    if at is None:
        return _MALFORMED
    return Fact(*ours, kind, at, code=meaning.code if failure else None, failure=failure)


def parse_log_row(row: dict[str, Any]) -> Iterator[Fact]:
    """What one row of the log says: when it was sent, and its outcome if it has one.

    Raises ValueError for a row of ours that cannot be read.
    """
    ours = parse_message_key(str(row.get("messageId")))
    if ours is None:
        raise ValueError("not a message of ours")
    outcome = _read_delivery(ours, row)
    if isinstance(outcome, _Malformed):
        raise ValueError("a row of the log cannot be read")
    if outcome is None:
        return
    yield outcome
    sent_at = read_time(row.get("sentAt"))
    # A refusal's time of sending is only the time of the call.
    if outcome.kind is FactKind.DELIVERED and sent_at is not None:
        yield Fact(*ours, FactKind.SENT, sent_at)


def read_status(row: dict[str, Any]) -> Meaning | None:
    """What a row's `status` and `error` say; None when there is no status to read."""
    status = row.get("status")
    if not isinstance(status, dict):
        return None
    group_id, status_id = _number(status.get("groupId")), _number(status.get("id"))
    if group_id is None and status_id is None:
        return None
    error = row.get("error")
    return meaning_of(group_id, status_id, _number(error.get("id")) if isinstance(error, dict) else None)


def _digits(value: Any) -> str | None:
    return value if isinstance(value, str) and value.isascii() and value.isdigit() else None


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
