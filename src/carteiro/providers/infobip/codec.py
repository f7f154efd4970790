"""Infobip's wire format: requests out, webhooks and log rows in. Answers to a send are read in `answers.py`.

Everything that comes in is foreign: fields may be missing, new, or of another type, and one bad item never spoils the
next. Items are matched by our `messageId` only; phones may come back in another form, or not at all.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from carteiro.domain.outcomes import (
    Fact,
    FactKind,
    FreeForm,
    Inbound,
    Kind,
    Outgoing,
    Parsed,
    Preference,
    followup_key,
    message_key,
    parse_followup_key,
    parse_message_key,
)
from carteiro.providers.contract import MessageId
from carteiro.providers.foreign import decode_json, read_digits, read_number, read_time, read_word, rows_of
from carteiro.providers.infobip.codes import Meaning, Progress, meaning_of
from carteiro.providers.infobip.states import read_template_update

_encode = msgspec.json.Encoder().encode

# The defaults would rewrite the links in a message.
_URL_OPTIONS = {"shortenUrl": False, "trackClicks": False}

_BUTTONS = {"BUTTON": "text", "INTERACTIVE_BUTTON_REPLY": "title", "INTERACTIVE_LIST_REPLY": "title"}
_WORDS = {
    **_BUTTONS,
    "TEXT": "text",
    "IMAGE": "caption",
    "VIDEO": "caption",
    "DOCUMENT": "caption",
    **dict.fromkeys(("AUDIO", "VOICE", "STICKER", "LOCATION", "CONTACT"), ""),
}
"""The types of inbound messages that are an answer of the contact, each with the field that holds its words."""


def encode_send(messages: Sequence[Outgoing]) -> bytes:
    """The body of `POST /whatsapp/1/message/template`."""
    return _encode({"messages": [_message(message) for message in messages]})


def _message(message: Outgoing) -> dict[str, Any]:
    data: dict[str, Any] = {"body": {"placeholders": message.placeholders}}
    if message.header is not None:
        data["header"] = dict(message.header)
    if message.buttons:
        data["buttons"] = [{"type": button["type"], "parameter": button["parameter"]} for button in message.buttons]
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


def free_form_type(message: FreeForm) -> str:
    """text, image, video or document: the end of the address it is posted to."""
    return "text" if message.media is None else message.media["type"].lower()


def encode_free(message: FreeForm) -> bytes:
    """The body of `POST /whatsapp/1/message/{type}`."""
    content: dict[str, Any] = {"text": message.text}
    if message.media is not None:
        content = {name: value for name, value in message.media.items() if name != "type"}
    row: dict[str, Any] = {
        "from": message.sender,
        "to": message.to,
        "messageId": followup_key(message.batch_id, message.seq),
        "content": content,
        "urlOptions": _URL_OPTIONS,
    }
    if message.notify_url is not None:
        row["notifyUrl"] = message.notify_url
    return _encode(row)


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
    return Parsed(preferences=(Preference(read_digits(content.get("from")), status == "stop", at),))


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
    ours, followup = parse_message_key(key), parse_followup_key(key)
    named = ours or followup
    if named is None:
        return key
    told: Fact | _Malformed | None
    if "seenAt" in row:
        at = read_time(row["seenAt"])
        told = _MALFORMED if at is None else Fact(*named, FactKind.SEEN, at)
    else:
        told = _read_delivery(named, row)
    return replace(told, followup=True) if followup and isinstance(told, Fact) else told


def _read_inbound(row: dict[str, Any]) -> Inbound | None:
    """None for what is no answer: reactions, orders, types that we do not know."""
    message, contact = row["message"], row.get("contact")
    kind = str(message.get("type")) if isinstance(message, dict) else ""
    if kind not in _WORDS:
        return None
    text = message.get(_WORDS[kind])
    if not isinstance(text, str):
        if kind == "TEXT":
            return None
        text = ""
    # `from` is WhatsApp's own id of a contact who hides the number.
    phone = read_digits(row.get("from")) or (
        read_digits(contact.get("phoneNumber")) if isinstance(contact, dict) else None
    )
    answered = message.get("context")
    return Inbound(
        phone,
        text,
        read_time(row.get("receivedAt")),
        message_id=read_word(row.get("messageId")),
        # The first is our own id, where Infobip tells it.
        context_id=read_word(row.get("pairedMessageId"))
        or (read_word(answered.get("id")) if isinstance(answered, dict) else None),
        sender=read_digits(row.get("to")),
        is_button=kind in _BUTTONS,
    )


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
    key = str(row.get("messageId"))
    followup = parse_followup_key(key)
    ours = followup or parse_message_key(key)
    if ours is None:
        raise ValueError("not a message of ours")
    outcome = _read_delivery(ours, row)
    if isinstance(outcome, _Malformed):
        raise ValueError("a row of the log cannot be read")
    if outcome is None:
        return
    yield replace(outcome, followup=followup is not None)
    sent_at = read_time(row.get("sentAt"))
    # A refusal's time of sending is only the time of the call.
    if outcome.kind is FactKind.DELIVERED and sent_at is not None:
        yield Fact(*ours, FactKind.SENT, sent_at, followup=followup is not None)


def read_status(row: dict[str, Any]) -> Meaning | None:
    """What a row's `status` and `error` say; None when there is no status to read."""
    status = row.get("status")
    if not isinstance(status, dict):
        return None
    group_id, status_id = read_number(status.get("groupId")), read_number(status.get("id"))
    if group_id is None and status_id is None:
        return None
    error = row.get("error")
    return meaning_of(group_id, status_id, read_number(error.get("id")) if isinstance(error, dict) else None)
