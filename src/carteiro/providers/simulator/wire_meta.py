"""Meta's wire format, seen from the other side. Only what the simulator needs; written apart from the client's
codec, so that a mistake in one is not repeated in the other.
"""

import hmac
from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha1
from typing import Annotated, Any, Literal

import msgspec

from carteiro.providers.simulator.ledger import Ledger
from carteiro.providers.simulator.wire import template_id

_To = Annotated[str, msgspec.Meta(pattern=r"^\+[1-9][0-9]{6,14}$")]
_Filled = Annotated[str, msgspec.Meta(min_length=1)]
_Link = Annotated[str, msgspec.Meta(pattern=r"^https?://", max_length=2048)]


class _Media(msgspec.Struct):
    link: _Link
    caption: str | None = None
    filename: str | None = None


class _Parameter(msgspec.Struct):
    type: Literal["text", "payload", "coupon_code", "image", "video", "document"]
    text: _Filled | None = None
    payload: _Filled | None = None
    coupon_code: Annotated[str, msgspec.Meta(min_length=1, max_length=20)] | None = None
    image: _Media | None = None
    video: _Media | None = None
    document: _Media | None = None
    parameter_name: _Filled | None = None

    def __post_init__(self) -> None:
        if getattr(self, self.type) is None:
            raise ValueError(f"a parameter of type {self.type} without {self.type}")


class _Component(msgspec.Struct):
    type: Literal["header", "body", "button"]
    parameters: Annotated[list[_Parameter], msgspec.Meta(min_length=1)]
    sub_type: Literal["quick_reply", "url", "copy_code"] | None = None
    index: Annotated[str, msgspec.Meta(pattern=r"^[0-9]$")] | None = None

    def __post_init__(self) -> None:
        if self.type == "button" and (self.sub_type is None or self.index is None):
            raise ValueError("a button without sub_type or index")


class _Language(msgspec.Struct):
    code: _Filled


class _Template(msgspec.Struct):
    name: Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9_]{1,512}$")]
    language: _Language
    components: list[_Component] = msgspec.field(default_factory=list)


class _Text(msgspec.Struct):
    body: Annotated[str, msgspec.Meta(min_length=1, max_length=4096)]
    preview_url: bool = False


class Send(msgspec.Struct):
    """One message, as far as it is checked. A phone without the plus would be taken for one of another country."""

    messaging_product: Literal["whatsapp"]
    to: _To
    type: Literal["template", "text", "image", "video", "document"]
    template: _Template | None = None
    text: _Text | None = None
    image: _Media | None = None
    video: _Media | None = None
    document: _Media | None = None
    biz_opaque_callback_data: Annotated[str, msgspec.Meta(max_length=512)] | None = None

    def __post_init__(self) -> None:
        if getattr(self, self.type) is None:
            raise ValueError(f"a message of type {self.type} without {self.type}")

    @property
    def template_name(self) -> str:
        """Empty: it is none."""
        return self.template.name if self.template else ""

    @property
    def said(self) -> tuple[str, ...]:
        """The texts of the body; of what is no template, its text or the address of its media."""
        if self.template is not None:
            bodies = [part for part in self.template.components if part.type == "body"]
            return tuple(parameter.text or "" for part in bodies for parameter in part.parameters)
        media = self.image or self.video or self.document
        return (self.text.body if self.text else media.link if media else "",)


decode_send = msgspec.json.Decoder(Send).decode


def message_id(row: int, key: str) -> str:
    """Meta's own id of a message."""
    return f"wamid.{b64encode(sha1(f'{row} {key}'.encode(), usedforsecurity=False).digest()).decode()}"


def answer_body(row: int, key: str, to: str, *, held: bool) -> dict[str, Any]:
    status = "held_for_quality_assessment" if held else "accepted"
    return {
        "messaging_product": "whatsapp",
        "contacts": [{"input": f"+{to}", "wa_id": whatsapp_id(to)}],
        "messages": [{"id": message_id(row, key), "message_status": status}],
    }


def whatsapp_id(to: str) -> str:
    """A phone as WhatsApp knows it: most Brazilian mobiles outside of São Paulo without the ninth digit."""
    if len(to) == 13 and to.startswith("55") and to[2:4] > "28" and to[4] == "9":
        return to[:4] + to[5:]
    return to


def error_body(code: int, details: str = "Something is wrong.") -> dict[str, Any]:
    return {
        "error": {
            "message": f"(#{code}) {details}",
            "type": "OAuthException",
            "code": code,
            "error_data": {"messaging_product": "whatsapp", "details": details},
            "fbtrace_id": "SimulatedTrace",
        }
    }


def status_item(ledger: Ledger, row: int, word: str, error_id: int, wall_ns: int, *, opaque: bool) -> dict[str, Any]:
    """One status. The phone is told of every other message: nobody may count on it."""
    to, key = ledger.address(row)
    item: dict[str, Any] = {
        "id": message_id(row, key),
        "status": word,
        "timestamp": str(wall_ns // 1_000_000_000),
        "recipient_user_id": f"BR.{row:020d}",
    }
    if row % 2 == 0:
        item["recipient_id"] = whatsapp_id(to)
    if opaque:
        item["biz_opaque_callback_data"] = key
    if word == "failed":
        title = f"Error {error_id}"
        item["errors"] = [{"code": error_id, "title": title, "message": title, "error_data": {"details": title}}]
    return item


def statuses_document(accounts: Mapping[str, Mapping[str, list[dict[str, Any]]]]) -> dict[str, Any]:
    """Statuses by business account and number as one webhook."""
    return _document(
        {
            account: [
                {
                    "field": "messages",
                    "value": {
                        "messaging_product": "whatsapp",
                        "metadata": {"display_phone_number": number, "phone_number_id": number},
                        "statuses": statuses,
                    },
                }
                for number, statuses in numbers.items()
            ]
            for account, numbers in accounts.items()
        }
    )


def values_document(accounts: Mapping[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Values of field `messages`, by business account, as one webhook."""
    return _document(
        {account: [{"field": "messages", "value": value} for value in values] for account, values in accounts.items()}
    )


def template_notice(account: str, name: str, language: str, status: str, at: float) -> dict[str, Any]:
    """The webhook of a template whose status changed."""
    value = {
        "event": status,
        "message_template_id": int(template_id(name, language)),
        "message_template_name": name,
        "message_template_language": language,
        "reason": "NONE",
    }
    document = _document({account: [{"field": "message_template_status_update", "value": value}]})
    document["entry"][0]["time"] = int(at)
    return document


def signature_header(secret: str, body: bytes) -> dict[str, str]:
    return {"X-Hub-Signature-256": f"sha256={hmac.new(secret.encode(), body, 'sha256').hexdigest()}"}


def _document(accounts: Mapping[str, list[dict[str, Any]]]) -> dict[str, Any]:
    entries = [{"id": account, "changes": changes} for account, changes in accounts.items()]
    return {"object": "whatsapp_business_account", "entry": entries}
