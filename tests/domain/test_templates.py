"""Template structure: equality by signature, rendering by the contact's parameters, and the words a service refuses."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carteiro.domain.templates import (
    Button,
    ButtonType,
    Category,
    GuardFailure,
    Header,
    HeaderType,
    Parameters,
    Template,
    forbidden_terms,
    is_https_url,
    placeholders_of,
    render_parameters,
    signature,
)

ORDER = Template("order_update", "pt_BR", Category.UTILITY, "Olá {{1}}, pedido {{2}} saiu.")
QUICK = Button(ButtonType.QUICK_REPLY, "Sim")
TRACK = Button(ButtonType.URL, "Rastrear", url="https://example.com/t/{{1}}")
SITE = Button(ButtonType.URL, "Site", url="https://example.com/")
CODE = Button(ButtonType.COPY_CODE)
CALL = Button(ButtonType.PHONE_NUMBER, "Ligar", phone="+5511987654321")
IMAGE = Header(HeaderType.IMAGE)
PHOTO = "https://cdn.example.com/a.png?v=1"


def render(template: Template, *placeholders: str, **kwargs: object) -> Parameters | GuardFailure:
    return render_parameters(template.to_content(), list(placeholders), **kwargs)


def failure_of(template: Template, *placeholders: str, **kwargs: object) -> str:
    rendered = render(template, *placeholders, **kwargs)
    assert isinstance(rendered, GuardFailure)
    return rendered.code


# Placeholders


@pytest.mark.parametrize(
    ("text", "expected"),
    [("none", ()), ("{{1}}", (1,)), ("{{2}} then {{1}}", (1, 2)), ("{{1}} {{1}} {{ 2 }}", (1, 2)), ("{1}", ())],
)
def test_placeholders_are_numbered_from_one(text, expected):
    assert placeholders_of(text) == expected


@pytest.mark.parametrize(
    "text", ["{{2}}", "{{1}} {{3}}", "{{0}}", "{{name}}", "{{}}", "{{-1}}", "{{\u0661}}", "{{01}}x{{1}}"]
)
def test_other_placeholders_are_refused(text):
    with pytest.raises(ValueError, match="placeholders"):
        placeholders_of(text)


# Signature


buttons = st.sampled_from([QUICK, TRACK, SITE, CODE, CALL])
templates = st.builds(
    Template,
    name=st.sampled_from(["a", "b_v2"]),
    language=st.sampled_from(["pt_BR", "en"]),
    category=st.sampled_from(Category),
    body=st.sampled_from(["Olá {{1}}", "Ola {{1}}", "Olá", "Olá {{1}} {{2}}"]),
    header=st.none()
    | st.just(IMAGE)
    | st.builds(Header, st.just(HeaderType.TEXT), st.sampled_from(["Oi", "Oi {{1}}"])),
    footer=st.sampled_from(["", "Até logo"]),
    buttons=st.lists(buttons, max_size=3).map(tuple),
)


@given(templates)
@settings(max_examples=100)
def test_freezing_into_json_and_back_changes_nothing(template):
    thawed = Template.from_content(json.loads(json.dumps(template.to_content())))
    assert thawed == template
    assert signature(thawed) == signature(template)


def test_physical_name_and_footer_do_not_count():
    assert signature(ORDER) == signature(replace(ORDER, name="order_update_v1", footer="Loja"))


def test_the_same_text_written_in_other_characters_is_the_same():
    decomposed = replace(ORDER, body="Ola\u0301 {{1}}, pedido {{2}} saiu. \r\n")
    assert signature(decomposed) == signature(ORDER)


@pytest.mark.parametrize(
    "other",
    [
        replace(ORDER, language="pt_PT"),
        replace(ORDER, category=Category.MARKETING),
        replace(ORDER, header=IMAGE),
        replace(ORDER, body="Olá {{1}}, pedido {{2}} chegou."),
        replace(ORDER, body="Olá {{2}}, pedido {{1}} saiu."),
        replace(ORDER, buttons=(QUICK,)),
    ],
)
def test_every_part_of_the_structure_counts(other):
    assert signature(other) != signature(ORDER)


def test_a_header_with_a_placeholder_is_not_one_without():
    plain, variable = (replace(ORDER, header=Header(HeaderType.TEXT, text)) for text in ("Oi", "Oi {{1}}"))
    assert signature(plain) != signature(variable)


def test_the_order_of_buttons_counts():
    assert signature(replace(ORDER, buttons=(QUICK, SITE))) != signature(replace(ORDER, buttons=(SITE, QUICK)))


# Rendering


def test_a_plain_template_takes_its_placeholders():
    assert render(ORDER, "Ana", "77") == Parameters(("Ana", "77"), None, ())


@pytest.mark.parametrize(
    ("given_values", "code"),
    [
        (["Ana"], "PLACEHOLDER_MISSING"),
        ([], "PLACEHOLDER_MISSING"),
        (["Ana", "77", "x"], "PLACEHOLDER_SURPLUS"),
        (["Ana", ""], "PLACEHOLDER_BLANK"),
        ([" \t", "77"], "PLACEHOLDER_BLANK"),
    ],
)
def test_placeholders_must_all_be_there_and_say_something(given_values, code):
    assert failure_of(ORDER, *given_values) == code


def test_header_media_are_the_contacts_own_or_those_for_all():
    template = replace(ORDER, header=IMAGE)
    for_all = {"media_url": "https://cdn.example.com/all.png"}
    assert render(template, "Ana", "77", header=for_all).header == {"type": "IMAGE", "mediaUrl": for_all["media_url"]}
    assert render(template, "Ana", "77", extra={"media_url": PHOTO}, header=for_all).header["mediaUrl"] == PHOTO
    assert failure_of(template, "Ana", "77") == "HEADER_MEDIA_MISSING"
    assert failure_of(template, "Ana", "77", extra={"media_url": "http://x.com/a"}) == "HEADER_MEDIA_INVALID"


def test_a_document_always_has_a_file_name():
    template = replace(ORDER, header=Header(HeaderType.DOCUMENT))
    named = {"media_url": "https://x.com/files/a.pdf?k=1", "filename": "Boleto.pdf"}
    assert render(template, "Ana", "77", header=named).header["filename"] == "Boleto.pdf"
    unnamed = {"media_url": "https://x.com/files/a.pdf?k=/1"}
    assert render(template, "Ana", "77", header=unnamed).header["filename"] == "a.pdf"
    assert render(template, "Ana", "77", extra=unnamed, header=named).header["filename"] == "a.pdf"


def test_header_text_is_needed_only_where_it_has_a_placeholder():
    fixed, variable = (replace(ORDER, header=Header(HeaderType.TEXT, text)) for text in ("Oi", "Oi {{1}}"))
    assert render(fixed, "Ana", "77").header is None
    assert render(variable, "Ana", "77", extra={"header_text": "Ana"}).header == {"type": "TEXT", "placeholder": "Ana"}
    assert failure_of(variable, "Ana", "77") == "HEADER_TEXT_MISSING"
    assert failure_of(variable, "Ana", "77", extra={"header_text": "a\nb"}) == "HEADER_TEXT_INVALID"


def test_buttons_keep_their_order_and_fixed_ones_take_nothing():
    template = replace(ORDER, buttons=(QUICK, SITE, TRACK, CALL, CODE))
    assert render(template, "Ana", "77", extra={"buttons": ["abc", "PROMO"]}).buttons == (
        {"type": "QUICK_REPLY", "parameter": "Sim", "index": "0"},
        {"type": "URL", "parameter": "abc", "index": "2"},
        {"type": "COPY_CODE", "parameter": "PROMO", "index": "4"},
    )


@pytest.mark.parametrize(
    ("parameters", "code"),
    [
        ([], "BUTTON_PARAMETER_MISSING"),
        ([" "], "BUTTON_PARAMETER_MISSING"),
        (["abc", "more"], "BUTTON_PARAMETER_SURPLUS"),
    ],
)
def test_a_dynamic_url_needs_its_suffix(parameters, code):
    assert failure_of(replace(ORDER, buttons=(TRACK,)), "Ana", "77", extra={"buttons": parameters}) == code


@pytest.mark.parametrize(
    ("url", "accepted"),
    [
        ("https://example.com/a.png", True),
        ("https://example.com", True),
        ("http://example.com/a.png", False),
        ("https://", False),
        ("https:///a.png", False),
        ("https://user@example.com/", False),
        ("https://exa mple.com/", False),
        ("https://example.com/a b.png", False),
        ("https://example.com/" + "a" * 2048, False),
    ],
)
def test_media_urls_are_https(url, accepted):
    assert is_https_url(url) is accepted


# Forbidden terms


TERMS = ("promoção", "desconto", "leve 3 pague 2", "")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Seu pedido saiu.", ()),
        ("PROMOÇÃO imperdível", ("promoção",)),
        ("promocao!", ("promoção",)),
        ("Promoc\u0327a\u0303o", ("promoção",)),
        ("com desconto e promoção", ("promoção", "desconto")),
        ("descontoso", ()),
        ("Leve  3\npague 2", ("leve 3 pague 2",)),
    ],
)
def test_forbidden_terms_are_whole_words_in_any_case_and_accent(text, found):
    assert forbidden_terms(text, TERMS) == found


def test_without_terms_nothing_is_forbidden():
    assert forbidden_terms("promoção", ()) == ()


def test_all_words_that_a_recipient_reads_are_looked_at():
    template = replace(
        ORDER,
        header=Header(HeaderType.TEXT, "cabeça"),
        footer="rodapé",
        buttons=(Button(ButtonType.QUICK_REPLY, "botão"),),
    )
    for word in ("cabeça", "pedido", "rodapé", "botão"):
        assert forbidden_terms(template.texts, [word]) == (word,)
