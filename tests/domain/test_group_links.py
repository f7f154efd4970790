"""What is wrong with a group link, and what its template gets."""

from typing import Any

import pytest

from carteiro.domain.group_links import (
    Door,
    GroupLinkRequest,
    extra_of,
    request_faults,
    request_hash,
    template_faults,
    url_suffix,
)
from carteiro.domain.templates import Button, ButtonType, Category, Header, HeaderType, Template
from tests.support.group_links import LINK, link_request


def content(body: str = "Olá {{1}}, entre: {{2}}", **fields: Any) -> dict[str, Any]:
    return Template("t", "pt_BR", Category.UTILITY, body, **fields).to_content()


def codes(request: GroupLinkRequest, given: dict[str, Any], forbidden: tuple[str, ...] = ()) -> list[tuple[str, str]]:
    faults = [*request_faults(request), *template_faults(request, given, forbidden)]
    return [(fault.pointer, fault.code) for fault in faults]


def test_a_valid_one() -> None:
    assert codes(link_request(), content()) == []
    assert extra_of(link_request(), content()) is None


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"phone": "12"}, ("/phone", "phone-too-short")),
        ({"name": "  "}, ("/name", "blank")),
        ({"group_link": "http://chat.whatsapp.com/x"}, ("/group_link", "not-https")),
        ({"group_link": "https://a b"}, ("/group_link", "not-https")),
    ],
)
def test_what_is_wrong_with_a_request(fields: dict[str, Any], expected: tuple[str, str]) -> None:
    assert codes(link_request(**fields), content()) == [expected]


@pytest.mark.parametrize("body", ["Olá", "Olá {{1}}", "Olá {{1}}, {{2}} e {{3}}"])
def test_a_template_with_another_number_of_placeholders(body: str) -> None:
    assert codes(link_request(), content(body)) == [("/template", "template-placeholders")]


def test_a_template_that_takes_what_a_link_lacks() -> None:
    media = content(header=Header(HeaderType.IMAGE))
    text = content(header=Header(HeaderType.TEXT, "Oi {{1}}"))
    code = content(buttons=(Button(ButtonType.COPY_CODE, "Copiar"),))
    assert codes(link_request(), media) == codes(link_request(), text) == [("/template", "template-header")]
    assert codes(link_request(), code) == [("/template", "template-button")]
    assert codes(link_request(), content(header=Header(HeaderType.TEXT, "Oi"))) == []
    assert codes(link_request(name="Oferta"), content(), ("oferta",)) == [("/template", "forbidden-term")]


def test_a_url_button_gets_the_path_of_the_link() -> None:
    button = Button(ButtonType.URL, "Entrar", "https://chat.whatsapp.com/{{1}}")
    given = content(buttons=(Button(ButtonType.QUICK_REPLY, "Não"), button))
    assert extra_of(link_request(), given) == {"buttons": ["AbCdEf"]}
    assert url_suffix("https://chat.whatsapp.com/a/b?c=d#e") == "a/b?c=d"
    assert url_suffix("https://chat.whatsapp.com?c=d") == "?c=d"
    assert url_suffix("https://[::1/x") == "x"
    bare = link_request(group_link="https://chat.whatsapp.com/")
    assert codes(bare, given) == [("/group_link", "no-path")]
    assert codes(bare, content()) == []


def test_equal_requests_have_equal_hashes() -> None:
    first = request_hash(Door.GROUP_LINK, link_request())
    assert first == request_hash(Door.GROUP_LINK, link_request(group_link=LINK))
    assert first != request_hash(Door.REMINDER, link_request())
    assert first != request_hash(Door.GROUP_LINK, link_request(delay_ms=1))
