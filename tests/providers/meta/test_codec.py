import json
from typing import Any

import pytest

from carteiro.domain.outcomes import FreeForm, Outgoing, followup_key, message_key
from carteiro.domain.template_entries import parse_template
from carteiro.domain.templates import Parameters, Template, render_parameters
from carteiro.providers.meta.codec import encode_free, encode_send
from tests.providers.meta.shapes import BATCH, SENDER, TO, example, outgoing

KEY = message_key(BATCH, 1)

# Example -> what makes it.
SENDS: dict[str, Outgoing] = {
    "send-template-positional-request": outgoing(
        placeholders=("Ana", "R$ 120,50", "10/12/2026"),
        header={"type": "IMAGE", "mediaUrl": "https://cdn.example.com/fatura.png"},
        buttons=(
            {"type": "QUICK_REPLY", "parameter": "optout:42", "index": "0"},
            {"type": "URL", "parameter": "f/8Kq2", "index": "1"},
        ),
    ),
    "send-template-named-request": outgoing(
        template_name="aviso_fatura_nomeado", placeholders=("Ana", "R$ 120,50"), parameter_names=("nome", "valor")
    ),
    "send-template-text-header-request": outgoing(
        template_name="promo_mes", header={"type": "TEXT", "placeholder": "Dezembro"}
    ),
    "send-template-copy-code-request": outgoing(
        template_name="cupom_dezembro", buttons=({"type": "COPY_CODE", "parameter": "DEZ25", "index": "0"},)
    ),
    "send-template-no-params-request": outgoing(template_name="boas_vindas", placeholders=()),
}


@pytest.mark.parametrize("name", SENDS)
def test_a_template_is_written_as_meta_shows_it(name: str) -> None:
    shown = example(name) | {"recipient_type": "individual", "biz_opaque_callback_data": KEY}
    assert json.loads(encode_send(SENDS[name])) == shown


@pytest.mark.parametrize("kind", ["VIDEO", "DOCUMENT"])
def test_header_media_go_as_links(kind: str) -> None:
    header = {"type": kind, "mediaUrl": "https://cdn.example.com/1", "filename": "boleto.pdf"}
    sent = json.loads(encode_send(outgoing(header=header)))
    media = {"link": "https://cdn.example.com/1", "filename": "boleto.pdf"}
    (parameter,) = sent["template"]["components"][0]["parameters"]
    assert parameter == {"type": kind.lower(), kind.lower(): media}


def test_buttons_keep_their_place_in_the_template_beside_some_that_take_nothing() -> None:
    template = parse_template(
        {
            "name": "a",
            "category": "UTILITY",
            "body": "Oi",
            "buttons": [
                {"type": "PHONE_NUMBER", "text": "Ligar", "phone": "+551140000000"},
                {"type": "URL", "text": "Site", "url": "https://example.com"},
                {"type": "QUICK_REPLY", "text": "Parar"},
                {"type": "URL", "text": "Fatura", "url": "https://example.com/{{1}}"},
            ],
        }
    )
    rendered = render_parameters(template.to_content(), (), {"buttons": ["f/1"]})
    assert isinstance(rendered, Parameters)
    sent = json.loads(encode_send(outgoing(placeholders=(), buttons=rendered.buttons)))
    assert [(part["sub_type"], part["index"]) for part in sent["template"]["components"]] == [
        ("quick_reply", "2"),
        ("url", "3"),
    ]
    assert isinstance(template, Template)


FREE: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "text": ({"text": "Recebido!"}, {"type": "text", "text": {"preview_url": False, "body": "Recebido!"}}),
    "document": (
        {
            "media": {
                "type": "DOCUMENT",
                "mediaUrl": "https://cdn.example.com/contrato.pdf",
                "caption": "Contrato",
                "filename": "contrato.pdf",
            }
        },
        {
            "type": "document",
            "document": {
                "link": "https://cdn.example.com/contrato.pdf",
                "caption": "Contrato",
                "filename": "contrato.pdf",
            },
        },
    ),
    "image": (
        {"media": {"type": "IMAGE", "mediaUrl": "https://cdn.example.com/1.png"}},
        {"type": "image", "image": {"link": "https://cdn.example.com/1.png"}},
    ),
}


@pytest.mark.parametrize("name", FREE)
def test_texts_and_media_go_under_the_follow_ups_key(name: str) -> None:
    given, shown = FREE[name]
    sent = json.loads(encode_free(FreeForm(BATCH, 1, SENDER, TO, **given)))
    envelope = {"messaging_product": "whatsapp", "recipient_type": "individual", "to": f"+{TO}"}
    assert sent == {**envelope, **shown, "biz_opaque_callback_data": followup_key(BATCH, 1)}
