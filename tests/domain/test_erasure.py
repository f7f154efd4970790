"""One person taken out of a raw body, and nobody else."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carteiro.domain.erasure import STUB, redact, spellings
from carteiro.domain.phones import Phone, parse

ANA, RUI = "5511987654321", "5521987650000"


def item(to: str, **more: object) -> dict[str, object]:
    return {"to": to, "messageId": f"m-{to}", "contact": {"name": "x", "phoneNumber": to}, **more}


def redacted(document: object, *words: str) -> object:
    body = redact(json.dumps(document).encode(), words or [ANA])
    return None if body is None else json.loads(body)


def test_a_brazilian_mobile_is_spelled_with_and_without_its_ninth_digit():
    phone = parse("+" + ANA)
    assert isinstance(phone, Phone)
    assert spellings(phone) == ["551187654321", ANA]
    abroad = parse("+351912345678")
    assert isinstance(abroad, Phone)
    assert spellings(abroad) == ["351912345678"]


def test_the_item_goes_whole_and_the_others_stay():
    document = {"results": [item(ANA), item(RUI), item(ANA, text="oi")], "messageCount": 3}
    assert redacted(document) == {"results": [STUB, item(RUI), STUB], "messageCount": 3}


def test_an_item_is_found_by_any_word_at_any_depth():
    hidden = {"from": "BR.1", "message": {"text": "oi"}, "contact": {"phoneNumber": f"+{ANA}"}}
    assert redacted({"results": [hidden, item(RUI)]}) == {"results": [STUB, item(RUI)]}
    by_id = {"from": "BR.1", "messageId": "ab12-7"}
    assert redacted({"results": [by_id, item(RUI)]}, ANA, "ab12-7") == {"results": [STUB, item(RUI)]}


def test_lists_inside_of_lists_are_searched():
    nested = {
        "object": "whatsapp_business_account",
        "entry": [{"id": "1", "changes": [{"value": {"statuses": [{"recipient_id": ANA}, {"recipient_id": RUI}]}}]}],
    }
    found = redacted(nested)
    assert found["entry"][0]["changes"][0]["value"]["statuses"] == [STUB, {"recipient_id": RUI}]


def test_a_body_about_one_person_goes_whole():
    assert redacted({"from": "551", "content": {"from": ANA, "notificationMessagesStatus": "stop"}}) == STUB
    assert redacted([ANA, RUI]) == [STUB, RUI]
    assert redacted(ANA) == STUB


DEEP = b'{"a":' * 900 + f'"{ANA}"'.encode() + b"}" * 900


@pytest.mark.parametrize(
    "body", [f"not JSON {ANA}".encode(), b"\xff" + ANA.encode(), DEEP, b"[" * 100_000 + ANA.encode()]
)
def test_what_is_not_json_goes_whole(body):
    assert json.loads(redact(body, [ANA])) == STUB


@pytest.mark.parametrize("other", [ANA + "0", "9" + ANA, "a" + ANA, ANA[:-1]])
def test_longer_and_shorter_numbers_are_others(other):
    assert redacted({"results": [item(other)]}) is None


leaves = st.none() | st.booleans() | st.integers(-1000, 1000) | st.sampled_from([ANA, RUI, f"+{ANA}", "oi"])
documents = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
)


@given(documents)
def test_nothing_is_left_and_what_does_not_mention_it_stays(document):
    found = redacted(document)
    if ANA not in json.dumps(document):
        assert found is None
        return
    assert ANA not in json.dumps(found)
    if isinstance(document, list):
        for before, after in zip(document, found, strict=True):
            assert ANA in json.dumps(before) or before == after
