"""What a client may ask for, and the rows that come of it."""

import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carteiro.domain.contacts import MOST_NAMED, Contact, OnInvalid, Row, Screening
from carteiro.domain.errors import InvalidRequest
from carteiro.domain.requests import (
    BatchRequest,
    BatchTerms,
    RequestSignature,
    TemplateName,
    refuse_faults,
    request_faults,
)
from carteiro.domain.templates import Button, ButtonType, Category, Header, HeaderType, Template

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
ORDER = Template("order_update", "pt_BR", Category.UTILITY, "Olá {{1}}, pedido {{2}} saiu.")
WITH_IMAGE = replace(ORDER, header=Header(HeaderType.IMAGE))
WITH_LINK = replace(ORDER, buttons=(Button(ButtonType.URL, "Ver", url="https://x.com/{{1}}"),))
PHOTO = "https://cdn.example.com/a.png"


def phone(number: int) -> str:
    return f"+55119{number:08d}"


def contact(number: int = 0, *placeholders: str, **more: object) -> Contact:
    return Contact(phone(number), list(placeholders or ("Ana", "77")), **more)


def request(*contacts: Contact, **more: object) -> BatchRequest:
    return BatchRequest(service="acme", template=TemplateName("order_update"), contacts=list(contacts), **more)


@dataclass
class Accepted:
    rows: list[Row]
    guarded: frozenset[int]
    skipped: dict[str, Any] | None


def accepted(
    asked: BatchRequest, template: Template = ORDER, min_size: int = 1, forbidden: tuple[str, ...] = ()
) -> Accepted:
    """As creation goes about it. Raises InvalidRequest."""
    content = template.to_content()
    screening = Screening(content, asked.header, asked.on_invalid, forbidden)
    screened = screening.screen(asked.contacts)
    refuse_faults(request_faults(asked, content, now=NOW, forbidden=forbidden), screening, min_size)
    return Accepted(screened.rows, screened.guarded, screening.report())


def faults_of(asked: BatchRequest, template: Template = ORDER, **kwargs: object) -> dict[str, str]:
    with pytest.raises(InvalidRequest) as refused:
        accepted(asked, template, **kwargs)
    return {error.pointer: error.code for error in refused.value.errors}


def test_the_body_is_decoded_as_it_stands():
    body = b"""{"service": "acme", "template": {"name": "order_update"}, "on_invalid": "skip",
        "contacts": [{"phone": "+5511987654321", "placeholders": ["Ana", "77"]}],
        "scheduled_at": "2026-11-30T09:00:00-03:00"}"""
    asked = msgspec.json.decode(body, type=BatchRequest)
    assert asked.contacts == [Contact("+5511987654321", ["Ana", "77"])]
    assert asked.template.language == "pt_BR"
    assert asked.on_invalid is OnInvalid.SKIP


@pytest.mark.parametrize(
    "member", [b'"scheduled_at": "2026-11-30T09:00:00"', b'"colour": "red"', b'"on_capacity": "wait"', b'"contacts": 3']
)
def test_a_body_of_another_shape_is_refused(member):
    body = b'{"service": "a", "template": {"name": "b"}, "contacts": [], ' + member + b"}"
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(body, type=BatchRequest)


def test_contacts_become_rows_numbered_from_one():
    validated = accepted(request(contact(1), contact(2, "Bia", "78")))
    assert validated.rows == [
        Row(1, 551100000001, "5511900000001", ["Ana", "77"], None),
        Row(2, 551100000002, "5511900000002", ["Bia", "78"], None),
    ]
    assert validated.skipped is None


def test_a_persons_first_contact_counts_and_the_others_are_reported():
    again = Contact("(11) 90000-0001", ["Eva", "79"])
    validated = accepted(request(contact(1), again, contact(2)))
    assert [(row.seq, row.placeholders[0]) for row in validated.rows] == [(1, "Ana"), (2, "Ana")]
    assert validated.skipped == {
        "counts": {"duplicate": 1},
        "rows": [{"index": 1, "code": "duplicate", "first": 0}],
    }


def test_every_bad_row_is_named():
    asked = request(
        Contact("12", ["Ana", "77"]),
        contact(1, "Ana"),
        contact(2),
        contact(3, "Ana", " "),
        contact(4, "a", "b", "c"),
        Contact("what", ["Ana", "77"]),
    )
    assert faults_of(asked) == {
        "/contacts/0/phone": "phone-too-short",
        "/contacts/5/phone": "phone-malformed",
        "/contacts/1/placeholders": "placeholder-missing",
        "/contacts/3/placeholders": "placeholder-blank",
        "/contacts/4/placeholders": "placeholder-surplus",
    }


def test_beyond_a_thousand_bad_rows_are_counted_but_not_named():
    with pytest.raises(InvalidRequest) as refused:
        accepted(request(*(Contact(str(number), []) for number in range(MOST_NAMED + 234))))
    assert len(refused.value.errors) == MOST_NAMED
    assert refused.value.extra == {"error_count": MOST_NAMED + 234}
    assert "234 more" in refused.value.detail


def test_skip_leaves_unusable_phones_out_and_lets_the_guard_have_the_rest():
    asked = request(Contact("12", []), contact(1, "Ana"), contact(2), contact(2), on_invalid=OnInvalid.SKIP)
    validated = accepted(asked)
    assert [(row.seq, row.placeholders) for row in validated.rows] == [(1, ["Ana"]), (2, ["Ana", "77"])]
    assert validated.guarded == {1}
    assert validated.skipped == {
        "counts": {"duplicate": 1, "phone-too-short": 1},
        "rows": [{"index": 0, "code": "phone-too-short"}, {"index": 3, "code": "duplicate", "first": 2}],
    }


def test_contacts_may_come_in_pieces_with_their_lines():
    given = [
        contact(1),
        Contact("12", ["Ana", "77"]),
        contact(2, "Ana"),
        contact(1),
        contact(3, " ", "1"),
        Contact("13", []),
    ]
    screening = Screening(ORDER.to_content(), on_invalid=OnInvalid.SKIP)
    pieces = [screening.screen(given[:3], [2, 3, 5]), screening.screen(given[3:], range(6, 9))]
    assert [[row.seq for row in piece.rows] for piece in pieces] == [[1, 2], [3]]
    assert [piece.guarded for piece in pieces] == [{2}, {3}]
    assert screening.report() == {
        "counts": {"phone-too-short": 2, "duplicate": 1},
        "rows": [
            {"index": 1, "line": 3, "code": "phone-too-short"},
            {"index": 3, "line": 6, "code": "duplicate", "first": 0},
            {"index": 5, "line": 8, "code": "phone-too-short"},
        ],
    }
    screening = Screening(ORDER.to_content())
    screening.screen(given, range(2, 8))
    told = [(error.line, error.pointer, error.code) for error in screening.errors]
    assert told == [
        (3, "/phone", "phone-too-short"),
        (4, "/placeholders", "placeholder-missing"),
        (6, "/placeholders", "placeholder-blank"),
        (7, "/phone", "phone-too-short"),
    ]


def test_skip_with_nothing_left_is_refused():
    assert faults_of(request(Contact("12", []), on_invalid=OnInvalid.SKIP)) == {"/contacts": "too-few"}


def test_the_minimum_counts_persons():
    assert faults_of(request(contact(1), contact(1)), min_size=2) == {"/contacts": "too-few"}
    assert len(accepted(request(contact(1), contact(2)), min_size=2).rows) == 2


def test_header_media_may_be_the_batchs_or_the_contacts():
    assert accepted(request(contact(1), media_url=PHOTO), WITH_IMAGE).rows[0].extra is None
    assert accepted(request(contact(1, media_url=PHOTO)), WITH_IMAGE).rows[0].extra == {"media_url": PHOTO}
    assert faults_of(request(contact(1), contact(2, media_url=PHOTO)), WITH_IMAGE) == {
        "/contacts/0/media_url": "header-media-missing"
    }
    assert faults_of(request(contact(1, media_url="http://x.com/a.png")), WITH_IMAGE) == {
        "/contacts/0/media_url": "header-media-invalid"
    }


def test_a_dynamic_url_needs_a_suffix_from_each_contact():
    assert accepted(request(contact(1, buttons=["abc"])), WITH_LINK).rows[0].extra == {"buttons": ["abc"]}
    assert faults_of(request(contact(1)), WITH_LINK) == {"/contacts/0/buttons": "button-parameter-missing"}
    assert faults_of(request(contact(1, buttons=["abc"]))) == {"/contacts/0/buttons": "button-parameter-surplus"}


@pytest.mark.parametrize(
    ("more", "pointer", "code"),
    [
        ({"media_url": PHOTO}, "/media_url", "unexpected"),
        ({"filename": ""}, "/filename", "bad-length"),
        ({"callback_url": "ftp://example.com"}, "/callback_url", "bad-url"),
        ({"callback_url": "https://"}, "/callback_url", "bad-url"),
        ({"callback_url": "https://example.com:99999/"}, "/callback_url", "bad-url"),
        ({"reference": "r" * 256}, "/reference", "too-long"),
        ({"max_attempts": 0}, "/max_attempts", "out-of-range"),
        ({"max_attempts": 101}, "/max_attempts", "out-of-range"),
        ({"expires_at": NOW}, "/expires_at", "too-early"),
        (
            {"expires_at": NOW + timedelta(hours=1), "scheduled_at": NOW + timedelta(hours=2)},
            "/expires_at",
            "too-early",
        ),
    ],
)
def test_the_rest_of_a_request_is_checked_too(more, pointer, code):
    assert faults_of(request(contact(1), **more)) == {pointer: code}


def test_header_media_for_all_must_be_https():
    assert faults_of(request(contact(1), media_url="http://x.com/a.png"), WITH_IMAGE) == {
        "/media_url": "not-https",
        "/contacts/0/media_url": "header-media-invalid",
    }


def test_forbidden_words_are_found_in_template_and_placeholders():
    words = ("desconto",)
    assert faults_of(request(contact(1)), replace(ORDER, footer="Desconto!"), forbidden=words) == {
        "/template": "forbidden-term"
    }
    asked = request(contact(1), contact(2, "com DESCONTO", "77"))
    assert faults_of(asked, forbidden=words) == {"/contacts/1/placeholders": "forbidden-term"}
    validated = accepted(msgspec.structs.replace(asked, on_invalid=OnInvalid.SKIP), forbidden=words)
    assert [row.identity for row in validated.rows] == [551100000001]
    assert validated.skipped == {"counts": {"forbidden-term": 1}, "rows": [{"index": 1, "code": "forbidden-term"}]}


# Signature


def signature_of(asked: BatchRequest, template: Template = ORDER, account_id: str = "acme") -> bytes:
    signature = RequestSignature(account_id, asked)
    signature.add(accepted(asked, template).rows)
    return signature.digest()


BASE = request(contact(1), contact(2))


@pytest.mark.parametrize(
    "same",
    [
        request(Contact("(11) 90000-0001", ["Ana", "77"]), contact(2)),
        request(contact(1), contact(1, "Eva", "1"), contact(2)),
        request(contact(1), contact(2), reference="r", callback_url="https://x.com/", allow_duplicate=True),
    ],
)
def test_what_does_not_change_what_is_sent_does_not_count(same):
    assert signature_of(same) == signature_of(BASE)


@pytest.mark.parametrize(
    "other",
    [
        request(contact(2), contact(1)),
        request(contact(1)),
        request(contact(1), contact(3)),
        request(contact(1), contact(2, "Ana", "78")),
        request(contact(1), contact(2), scheduled_at=NOW + timedelta(hours=1)),
        request(contact(1), contact(2), expires_at=NOW + timedelta(hours=1)),
        request(contact(1), contact(2, media_url=PHOTO)),
        BatchRequest(service="other", template=BASE.template, contacts=BASE.contacts),
        BatchRequest(service="acme", template=TemplateName("order_update", "en"), contacts=BASE.contacts),
    ],
)
def test_what_changes_what_is_sent_counts(other):
    assert signature_of(other) != signature_of(BASE)


def test_how_the_contacts_come_does_not_count():
    members = {
        name: getattr(BASE, name) for name in BatchTerms.__struct_fields__ if name not in ("template", "on_invalid")
    }
    signature = RequestSignature("acme", BatchTerms(template=BASE.template, **members))
    for row in accepted(BASE).rows:
        signature.add([row])
    assert signature.digest() == signature_of(BASE)


def test_accounts_and_media_count():
    assert signature_of(BASE, account_id="other") != signature_of(BASE)
    first, second = (request(contact(1), media_url=f"https://x.com/{name}") for name in "ab")
    assert signature_of(first, WITH_IMAGE) != signature_of(second, WITH_IMAGE)


def test_an_instant_is_the_same_in_every_offset():
    at = NOW + timedelta(hours=5)
    elsewhere = at.astimezone(timezone(timedelta(hours=-3)))
    assert signature_of(request(contact(1), scheduled_at=at)) == signature_of(
        request(contact(1), scheduled_at=elsewhere)
    )


# Whatever comes

contacts = st.lists(
    st.builds(
        Contact,
        st.integers(0, 20).map(phone) | st.text(max_size=14),
        st.lists(st.text(max_size=3), max_size=3),
        media_url=st.none() | st.just(PHOTO),
        buttons=st.lists(st.text(max_size=2), max_size=2),
    ),
    max_size=30,
)


@given(contacts, st.sampled_from([ORDER, WITH_IMAGE, WITH_LINK]), st.sampled_from(OnInvalid))
@settings(max_examples=150)
def test_every_contact_is_a_row_or_accounted_for(given_contacts, template, on_invalid):
    screening = Screening(template.to_content(), on_invalid=on_invalid)
    rows = screening.screen(given_contacts).rows
    assert [row.seq for row in rows] == list(range(1, len(rows) + 1))
    assert len({row.identity for row in rows}) == len(rows)
    bad_phones = sum(error.pointer.endswith("/phone") for error in screening.errors)
    assert len(rows) + screening.left_out_counts.total() + bad_phones == len(given_contacts)
    assert on_invalid is OnInvalid.REJECT or not screening.errors


def test_a_hundred_thousand_contacts_take_well_under_a_second():
    asked = request(*(contact(number, "Ana Maria", str(number)) for number in range(100_000)))
    signature = RequestSignature("acme", asked)
    began = time.process_time()
    validated = accepted(asked, forbidden=("promoção", "desconto"))
    signature.add(validated.rows)
    # A quarter of a second on two slow cores; the bound is wide because tests share their machine.
    assert time.process_time() - began < 1.5
    assert len(validated.rows) == 100_000
