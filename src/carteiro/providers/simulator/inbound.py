"""Contacts who answer: the webhook of what they wrote, in the words of the provider that their message went through."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec

from carteiro.providers.simulator import wire_meta
from carteiro.providers.simulator.ledger import Ledger
from carteiro.providers.simulator.wire import clock_text


class AnswersOrder(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `POST /_sim/answers`: each named message's contact writes back."""

    message_ids: Annotated[list[str], msgspec.Meta(min_length=1)]
    kind: Literal["text", "button", "image", "reaction"] = "text"
    text: str = "Quero saber mais"
    times: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 1
    """So many different messages of each."""
    posts: Annotated[int, msgspec.Meta(ge=1, le=100)] = 1
    """How often the whole of it is told."""
    context: bool = True
    """Say which message it answers."""
    short: bool = False
    """From the phone without its ninth digit."""
    url: str | None = None
    """Where to post what was written to Infobip; None: where the message's reports go."""


decode_answers = msgspec.json.Decoder(AnswersOrder).decode


def infobip_document(ledger: Ledger, rows: Sequence[int], order: AnswersOrder, wall_ns: int) -> dict[str, Any]:
    results = [_infobip_item(ledger, row, n, order, wall_ns) for row in rows for n in range(order.times)]
    return {"results": results, "messageCount": len(results), "pendingMessageCount": 0}


def _infobip_item(ledger: Ledger, row: int, n: int, order: AnswersOrder, wall_ns: int) -> dict[str, Any]:
    to, message_id = ledger.address(row)
    phone = _phone(to, order)
    said: dict[str, dict[str, Any]] = {
        "text": {"type": "TEXT", "text": order.text},
        "button": {"type": "BUTTON", "text": order.text, "payload": "chosen"},
        "image": {"type": "IMAGE", "url": "https://example.invalid/media/1", "caption": order.text},
        "reaction": {"type": "REACTION", "emoji": "\N{THUMBS UP SIGN}", "action": "react"},
    }
    message = said[order.kind]
    item = {
        "from": phone,
        "to": ledger.sender(row),
        "integrationType": "WHATSAPP",
        "receivedAt": clock_text(wall_ns),
        "messageId": wire_meta.message_id(row, f"inbound {n} {wall_ns}"),
        "message": message,
        "contact": {"name": "Contact", "phoneNumber": phone},
    }
    if order.context:
        item["pairedMessageId"] = message_id
        message["context"] = {"from": ledger.sender(row), "id": wire_meta.message_id(row, message_id)}
    return item


def meta_value(ledger: Ledger, row: int, order: AnswersOrder, wall_ns: int) -> dict[str, Any]:
    """The value of one change, of one message's contact."""
    to, key = ledger.address(row)
    number, phone = ledger.sender(row), _phone(to, order)
    said: dict[str, dict[str, Any]] = {
        "text": {"text": {"body": order.text}},
        "button": {"button": {"text": order.text, "payload": "chosen"}},
        "image": {"image": {"id": "1", "mime_type": "image/jpeg", "caption": order.text}},
        "reaction": {"reaction": {"message_id": wire_meta.message_id(row, key), "emoji": "\N{THUMBS UP SIGN}"}},
    }
    messages = []
    for n in range(order.times):
        message = {
            "from": phone,
            "id": wire_meta.message_id(row, f"inbound {n} {wall_ns}"),
            "timestamp": str(wall_ns // 1_000_000_000),
            "type": order.kind,
            **said[order.kind],
        }
        if order.context:
            message["context"] = {"from": number, "id": wire_meta.message_id(row, key)}
        messages.append(message)
    return {
        "messaging_product": "whatsapp",
        "metadata": {"display_phone_number": number, "phone_number_id": number},
        "contacts": [{"wa_id": phone, "profile": {"name": "Contact"}}],
        "messages": messages,
    }


def _phone(to: str, order: AnswersOrder) -> str:
    return to[:4] + to[5:] if order.short and len(to) == 13 and to[4] == "9" else to
