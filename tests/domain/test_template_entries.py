"""Reading a template from the catalog: what is right is read, and all that is wrong is told."""

import pytest

from carteiro.domain.errors import InvalidRequest
from carteiro.domain.template_entries import parse_template
from carteiro.domain.templates import Button, ButtonType, Category, Header, HeaderType, Template, signature

ENTRY = {"name": "order_update", "category": "UTILITY", "body": "Olá {{1}}"}


def faults_of(**changes: object) -> dict[str, str]:
    with pytest.raises(InvalidRequest) as refused:
        parse_template(ENTRY | changes, pointer="/template/0")
    return {error.pointer: error.code for error in refused.value.errors}


def test_the_least_that_a_template_needs():
    assert parse_template(ENTRY) == Template("order_update", "pt_BR", Category.UTILITY, "Olá {{1}}")


def test_all_that_a_template_may_have():
    entry = ENTRY | {
        "language": "en",
        "footer": "Loja",
        "header": {"type": "TEXT", "text": "Oi {{1}}"},
        "buttons": [
            {"type": "QUICK_REPLY", "text": "Sim"},
            {"type": "URL", "text": "Ver", "url": "https://x.com/{{1}}"},
            {"type": "PHONE_NUMBER", "text": "Ligar", "phone": "+5511987654321"},
            {"type": "COPY_CODE"},
        ],
    }
    template = parse_template(entry)
    assert template.header == Header(HeaderType.TEXT, "Oi {{1}}")
    assert [button.type for button in template.buttons] == [
        ButtonType.QUICK_REPLY,
        ButtonType.URL,
        ButtonType.PHONE_NUMBER,
        ButtonType.COPY_CODE,
    ]
    assert [button.needs_parameter for button in template.buttons] == [False, True, False, True]
    assert template.buttons[0] == Button(ButtonType.QUICK_REPLY, "Sim")


def test_header_none_is_no_header():
    assert parse_template(ENTRY | {"header": {"type": "NONE"}}).header is None


def test_every_fault_is_told_at_once():
    assert faults_of(name="Order Update", category="NEWS", body="{{2}}", colour="red") == {
        "/template/0/colour": "unknown-field",
        "/template/0/name": "bad-name",
        "/template/0/category": "unknown-value",
        "/template/0/body": "placeholders",
    }


@pytest.mark.parametrize(
    ("changes", "pointer", "code"),
    [
        ({"body": " "}, "body", "missing"),
        ({"body": "x" * 1025}, "body", "too-long"),
        ({"body": 3}, "body", "wrong-type"),
        ({"body": "{{Nome}}"}, "body", "placeholders"),
        ({"body": "{{nome}} {{1}}"}, "body", "placeholders"),
        ({"header": {"type": "TEXT", "text": "{{nome}}"}}, "header/text", "placeholders"),
        ({"language": "Portuguese"}, "language", "bad-language"),
        ({"footer": "{{1}}"}, "footer", "placeholders"),
        ({"header": "IMAGE"}, "header", "wrong-type"),
        ({"header": {"type": "TEXT"}}, "header/text", "missing"),
        ({"header": {"type": "TEXT", "text": "{{1}} {{2}}"}}, "header/text", "placeholders"),
        ({"header": {"type": "IMAGE", "text": "x"}}, "header/text", "unknown-field"),
        ({"header": {"type": "SOUND"}}, "header/type", "unknown-value"),
        ({"buttons": "no"}, "buttons", "wrong-type"),
        ({"buttons": ["no"]}, "buttons/0", "wrong-type"),
        ({"buttons": [{"type": "URL", "text": "Ver"}]}, "buttons/0/url", "missing"),
        ({"buttons": [{"type": "URL", "text": "Ver", "url": "https://x/{{1}}/y"}]}, "buttons/0/url", "placeholders"),
        ({"buttons": [{"type": "QUICK_REPLY", "text": "x" * 26}]}, "buttons/0/text", "too-long"),
        ({"buttons": [{"type": "COPY_CODE"}, {"type": "COPY_CODE"}]}, "buttons", "too-many"),
        ({"buttons": [{"type": "QUICK_REPLY", "text": "x"}] * 11}, "buttons", "too-many"),
        ({"buttons": [{"type": "URL", "text": "Ver", "url": "https://x/{{1}}"}] * 3}, "buttons", "too-many"),
    ],
)
def test_what_whatsapp_would_refuse_is_refused(changes, pointer, code):
    assert faults_of(**changes) == {f"/template/0/{pointer}": code}


def test_a_body_may_name_its_placeholders_and_is_the_same_as_one_that_numbers_them() -> None:
    named = parse_template({**ENTRY, "body": "Ola {{nome}}, sao {{ valor_total }}. Ate logo, {{nome}}!"})
    numbered = parse_template({**ENTRY, "body": "Ola {{1}}, sao {{2}}. Ate logo, {{1}}!"})
    assert named.names == ("nome", "valor_total")
    assert numbered.names == ()
    assert named.to_content() == numbered.to_content()
    assert signature(named) == signature(numbered)
