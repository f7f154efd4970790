"""Meta's wire format: requests out. Webhooks are read in `webhook.py`, answers in `answers.py`."""

from typing import Any

import msgspec

from carteiro.domain.outcomes import FreeForm, Outgoing, followup_key, message_key

_encode = msgspec.json.Encoder().encode

_MEDIA = {"IMAGE": "image", "VIDEO": "video", "DOCUMENT": "document"}
_BUTTONS = {
    # Type of button -> (sub_type, type of its parameter).
    "QUICK_REPLY": ("quick_reply", "payload"),
    "URL": ("url", "text"),
    "COPY_CODE": ("copy_code", "coupon_code"),
}


def encode_send(message: Outgoing) -> bytes:
    """The body of `POST /{phone_number_id}/messages` for a template."""
    template: dict[str, Any] = {"name": message.template_name, "language": {"code": message.language}}
    components = [*_header(message), *_body(message), *map(_button, message.buttons)]
    if components:
        template["components"] = components
    return _encode(
        {
            **_envelope(message.to),
            "type": "template",
            "template": template,
            "biz_opaque_callback_data": message_key(message.batch_id, message.seq),
        }
    )


def encode_free(message: FreeForm) -> bytes:
    """The body of the same for a text or media, which only an open 24-hour window takes."""
    if message.media is None:
        kind, said = "text", {"preview_url": False, "body": message.text}
    else:
        kind = _MEDIA[message.media["type"]]
        said = {"link": message.media["mediaUrl"]}
        said |= {name: message.media[name] for name in ("caption", "filename") if message.media.get(name)}
    key = followup_key(message.batch_id, message.seq)
    return _encode({**_envelope(message.to), "type": kind, kind: said, "biz_opaque_callback_data": key})


def _envelope(to: str) -> dict[str, str]:
    # Without the plus Meta may take the number for one of the sender's country.
    return {"messaging_product": "whatsapp", "recipient_type": "individual", "to": f"+{to}"}


def _header(message: Outgoing) -> list[dict[str, Any]]:
    header = message.header
    if header is None:
        return []
    if header["type"] == "TEXT":
        parameter: dict[str, Any] = {"type": "text", "text": header["placeholder"]}
    else:
        kind = _MEDIA[header["type"]]
        media = {"link": header["mediaUrl"]}
        if header.get("filename"):
            media["filename"] = header["filename"]
        parameter = {"type": kind, kind: media}
    return [{"type": "header", "parameters": [parameter]}]


def _body(message: Outgoing) -> list[dict[str, Any]]:
    if not message.placeholders:
        return []
    parameters = [{"type": "text", "text": text} for text in message.placeholders]
    for parameter, name in zip(parameters, message.parameter_names, strict=False):
        parameter["parameter_name"] = name
    return [{"type": "body", "parameters": parameters}]


def _button(button: Any) -> dict[str, Any]:
    """One component a button that takes a parameter; its place in the template names it."""
    sub_type, parameter_type = _BUTTONS[button["type"]]
    parameter = {"type": parameter_type, parameter_type: button["parameter"]}
    return {"type": "button", "sub_type": sub_type, "index": button["index"], "parameters": [parameter]}
