import json
from dataclasses import replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carteiro.domain.outcomes import (
    Fact,
    FactKind,
    Inbound,
    Kind,
    Outgoing,
    Parsed,
    Preference,
    followup_key,
    message_key,
)
from carteiro.providers.foreign import read_time
from carteiro.providers.infobip.codec import encode_send, parse_log_row, parse_webhook
from tests.providers.infobip.reports import BATCH, SENDER, delivery, inbound, log_row, seen

SENT_AT = datetime(2026, 12, 1, 13, 0, 0, 120_000, UTC)
DONE_AT = datetime(2026, 12, 1, 13, 0, 2, 481_000, UTC)
SEEN_AT = datetime(2026, 12, 1, 13, 7, 41, 6_000, UTC)
DELIVERED = Fact(BATCH, 1, FactKind.DELIVERED, DONE_AT)


def payload(*results: Any) -> bytes:
    return json.dumps({"results": results}).encode()


def expected(template_data: dict[str, Any], name: str = "order_update_v1", **more: Any) -> dict[str, Any]:
    message = {
        "from": SENDER,
        "to": "5531987650001",
        "messageId": "0190b5a0000070008000000000000042-1",
        "content": {"templateName": name, "templateData": template_data, "language": "pt_BR"},
        "urlOptions": {"shortenUrl": False, "trackClicks": False},
    }
    return {"messages": [{**message, **more}]}


REQUESTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "placeholders": (
        {"placeholders": ("Ana", "R$ 120,50")},
        expected({"body": {"placeholders": ["Ana", "R$ 120,50"]}}),
    ),
    "no parameters": ({}, expected({"body": {"placeholders": []}})),
    "image and two buttons": (
        {
            "placeholders": ("Ana",),
            "header": {"type": "IMAGE", "mediaUrl": "https://cdn.example.com/a.png"},
            "buttons": (
                {"type": "QUICK_REPLY", "parameter": "optout"},
                {"type": "URL", "parameter": "f/8Kq2"},
            ),
        },
        expected(
            {
                "body": {"placeholders": ["Ana"]},
                "header": {"type": "IMAGE", "mediaUrl": "https://cdn.example.com/a.png"},
                "buttons": [{"type": "QUICK_REPLY", "parameter": "optout"}, {"type": "URL", "parameter": "f/8Kq2"}],
            }
        ),
    ),
    "document": (
        {"header": {"type": "DOCUMENT", "mediaUrl": "https://cdn.example.com/b.pdf", "filename": "boleto.pdf"}},
        expected(
            {
                "body": {"placeholders": []},
                "header": {
                    "type": "DOCUMENT",
                    "mediaUrl": "https://cdn.example.com/b.pdf",
                    "filename": "boleto.pdf",
                },
            }
        ),
    ),
    "text header and code": (
        {
            "header": MappingProxyType({"type": "TEXT", "placeholder": "25% off"}),
            "buttons": (MappingProxyType({"type": "COPY_CODE", "parameter": "DEZ25"}),),
        },
        expected(
            {
                "body": {"placeholders": []},
                "header": {"type": "TEXT", "placeholder": "25% off"},
                "buttons": [{"type": "COPY_CODE", "parameter": "DEZ25"}],
            }
        ),
    ),
    "where to report": (
        {"notify_url": "https://example.com/webhooks/infobip/t"},
        expected({"body": {"placeholders": []}}, notifyUrl="https://example.com/webhooks/infobip/t"),
    ),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_a_message_is_encoded_as_infobip_wants_it(name: str) -> None:
    fields, request = REQUESTS[name]
    message = Outgoing(BATCH, 1, SENDER, "5531987650001", "order_update_v1", "pt_BR", **fields)
    assert json.loads(encode_send([message])) == request


def test_several_messages_go_into_one_request_in_order() -> None:
    messages = [Outgoing(BATCH, seq, SENDER, f"553198765000{seq}", "t", "pt_BR") for seq in (1, 2, 3)]
    rows = json.loads(encode_send(messages))["messages"]
    assert [row["messageId"][-2:] for row in rows] == ["-1", "-2", "-3"]


FACTS: dict[str, tuple[dict[str, Any], Fact]] = {
    "delivered": (delivery(), DELIVERED),
    "seen": (seen(), Fact(BATCH, 1, FactKind.SEEN, SEEN_AT)),
    "pending": (delivery(1, 1, 7), Fact(BATCH, 1, FactKind.SENT, SENT_AT)),
    "at the operator is not delivered": (delivery(1, 3, 2), Fact(BATCH, 1, FactKind.SENT, SENT_AT)),
    "never to be known": (delivery(1, 4, 29), Fact(BATCH, 1, FactKind.SENT, SENT_AT)),
    "error: never to be known": (delivery(1, 2, 4, 7052), Fact(BATCH, 1, FactKind.SENT, SENT_AT)),
    "error id decides": (
        delivery(1, 2, 4, 7032),
        Fact(BATCH, 1, FactKind.FAILED, DONE_AT, code="EC_7032", failure=Kind.COOL_DOWN),
    ),
    "status id decides": (
        delivery(1, 5, 14),
        Fact(BATCH, 1, FactKind.FAILED, DONE_AT, code="STATUS_14", failure=Kind.BLOCKED),
    ),
    "unknown error id": (
        delivery(1, 2, 4, 7999),
        Fact(BATCH, 1, FactKind.FAILED, DONE_AT, code="EC_7999", failure=Kind.TRANSIENT),
    ),
    "unknown status id": (
        delivery(1, 5, 99),
        Fact(BATCH, 1, FactKind.FAILED, DONE_AT, code="STATUS_99", failure=Kind.TRANSIENT),
    ),
    "no error object": (delivery(error=None), DELIVERED),
    "no phone, no price": ({key: delivery()[key] for key in ("messageId", "status", "doneAt")}, DELIVERED),
    "no group": (delivery(status={"id": 5}), DELIVERED),
    "done at an unreadable time": (delivery(doneAt="soon"), Fact(BATCH, 1, FactKind.DELIVERED, SENT_AT)),
    "unknown fields": (delivery(callbackData="x", contact={"userId": "BR.1"}, platform={}), DELIVERED),
}


@pytest.mark.parametrize("name", FACTS)
def test_a_report_is_a_fact(name: str) -> None:
    item, fact = FACTS[name]
    assert parse_webhook(payload(item)) == Parsed(facts=(fact,))


def test_a_report_on_a_follow_up_says_so() -> None:
    key = followup_key(BATCH, 1)
    reports = payload(delivery(messageId=key), seen(messageId=key), delivery())
    parsed = parse_webhook(reports)
    assert parsed.facts == (
        replace(DELIVERED, followup=True),
        Fact(BATCH, 1, FactKind.SEEN, SEEN_AT, followup=True),
        DELIVERED,
    )


IGNORED: dict[str, bytes] = {
    "inbound order": payload(inbound(type="ORDER", catalogId="1")),
    "inbound reaction": payload(inbound(type="REACTION", emoji="x")),
    "inbound text without text": payload(inbound(type="TEXT", text=None)),
    "inbound message that is none": payload(inbound() | {"message": "PARAR"}),
    "report of deletion": payload({"messageId": "x", "deletedAt": "2026-12-01T13:07:41.006+0000"}),
    "a duplicate id: the first one's report decides": payload(delivery(1, 5, 23)),
    "a duplicate request": payload(delivery(1, 2, 4, 7280)),
    "template update": json.dumps({"messageTemplateId": "9", "change": {"type": "TEMPLATE_STATUS_UPDATE"}}).encode(),
    "identity change": json.dumps({"from": "5", "content": {"type": "user_identity_changed"}}).encode(),
}


@pytest.mark.parametrize("name", IGNORED)
def test_what_we_do_not_act_on_is_counted(name: str) -> None:
    assert parse_webhook(IGNORED[name]) == Parsed(ignored=1)


RECEIVED_AT = datetime(2026, 12, 1, 13, 9, 10, tzinfo=UTC)
WRITTEN = Inbound("5531987650001", "PARAR", RECEIVED_AT, message_id="wamid.HBgMNTUzMTk4NzY1MDAwMRUC", sender=SENDER)
CHOSEN = replace(WRITTEN, text="Parar", is_button=True)
INBOUND: dict[str, tuple[dict[str, Any], Inbound]] = {
    "text": (inbound(), WRITTEN),
    "button of a template": (inbound(type="BUTTON", text="Parar", payload="optout"), CHOSEN),
    "chosen button": (inbound(type="INTERACTIVE_BUTTON_REPLY", id="1", title="Parar"), CHOSEN),
    "chosen row": (inbound(type="INTERACTIVE_LIST_REPLY", id="1", title="Parar", description="2a via"), CHOSEN),
    "image": (inbound(type="IMAGE", url="https://example.com/1", caption="Parar"), replace(WRITTEN, text="Parar")),
    "sound": (inbound(type="AUDIO", url="https://example.com/1"), replace(WRITTEN, text="")),
    "answer to one of ours": (
        inbound(type="TEXT", text="PARAR", context={"from": SENDER, "id": "wamid.1"})
        | {"pairedMessageId": message_key(BATCH, 7)},
        replace(WRITTEN, context_id=message_key(BATCH, 7)),
    ),
    "answer to one that is only WhatsApp's": (
        inbound(type="TEXT", text="PARAR", context={"from": SENDER, "id": "wamid.1"}),
        replace(WRITTEN, context_id="wamid.1"),
    ),
    "hidden number": (inbound() | {"from": "BR.902"}, replace(WRITTEN, phone=None)),
    "hidden number that the contact tells": (
        inbound() | {"from": "BR.902", "contact": {"phoneNumber": "553187650001"}},
        replace(WRITTEN, phone="553187650001"),
    ),
    "no time": (inbound() | {"receivedAt": None}, replace(WRITTEN, at=None)),
}


@pytest.mark.parametrize("name", INBOUND)
def test_what_a_contact_writes_or_chooses_is_handed_on(name: str) -> None:
    item, written = INBOUND[name]
    assert parse_webhook(payload(item, delivery())) == Parsed(facts=(DELIVERED,), inbound=(written,))


@pytest.mark.parametrize("status", ["stop", "resume"])
def test_a_marketing_preference_is_the_contacts(status: str) -> None:
    content = {"sender": SENDER, "from": "5531987650001", "notificationMessagesStatus": status}
    body = {"from": SENDER, "content": content, "createdAt": "2026-12-01T13:09:10.000+0000"}
    told = Preference("5531987650001", status == "stop", RECEIVED_AT)
    assert parse_webhook(json.dumps(body).encode()) == Parsed(preferences=(told,))


@pytest.mark.parametrize("status", ["", "STOPPED", None, 1, ["stop"]])
def test_a_preference_that_cannot_be_read_is_malformed(status: Any) -> None:
    content = {"from": "5531987650001", "notificationMessagesStatus": status}
    assert parse_webhook(json.dumps({"content": content}).encode()) == Parsed(malformed=1)


def test_what_a_contact_writes_is_not_shown_by_accident() -> None:
    shown = repr(parse_webhook(payload(inbound())))
    assert "PARAR" not in shown
    assert "5531987650001" not in shown


MALFORMED_ITEMS: dict[str, Any] = {
    "null": None,
    "text": "text",
    "list": [],
    "empty": {},
    "no id": delivery(messageId=None),
    "empty id": delivery(messageId=""),
    "numeric id": delivery(messageId=7),
    "status is text": delivery(status="DELIVERED"),
    "status without ids": delivery(status={}),
    "status ids of other types": delivery(status={"id": "5", "groupId": True}),
    "no times": delivery(doneAt=None, sentAt=None),
    "a time without an offset": delivery(doneAt="2026-12-01T10:00:00.000", sentAt=None),
    "a time before the year 1": delivery(doneAt="0001-01-01T00:00:00.000+1400", sentAt=None),
    "seen at no time": seen(seenAt=None),
}


@pytest.mark.parametrize("name", MALFORMED_ITEMS)
def test_a_malformed_item_does_not_spoil_the_next(name: str) -> None:
    parsed = parse_webhook(payload(MALFORMED_ITEMS[name], delivery()))
    assert parsed == Parsed(facts=(DELIVERED,), malformed=1)


@pytest.mark.parametrize(
    "body", [b"", b"{", b"null", b"[]", b"7", b'{"results": 1}', b"\xff\xfe", b'"\xff"', b"[" * 100_000, b"{}"]
)
def test_an_unreadable_body_is_one_malformed_item(body: bytes) -> None:
    assert parse_webhook(body) == Parsed(malformed=1)


def test_ids_of_others_are_orphans() -> None:
    parsed = parse_webhook(payload(delivery(messageId="cmp-0042-000001"), seen(messageId="x"), delivery()))
    assert parsed == Parsed(facts=(DELIVERED,), orphans=("cmp-0042-000001", "x"))


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)
# Close to the real thing, so that every branch is reached.
FIELDS = ("messageId", "status", "error", "seenAt", "doneAt", "sentAt", "message", "deletedAt", "id", "groupId")
NEARLY_REPORTS = st.dictionaries(
    st.sampled_from(FIELDS),
    JSON_VALUES
    | st.just(delivery()["messageId"])
    | st.just("2026-12-01T10:00:02.481-0300")
    | st.dictionaries(st.sampled_from(FIELDS), st.integers() | JSON_VALUES, max_size=4),
    max_size=6,
)


@given(JSON_VALUES | st.fixed_dictionaries({"results": st.lists(JSON_VALUES | NEARLY_REPORTS)}))
def test_no_json_raises(document: Any) -> None:
    parsed = parse_webhook(json.dumps(document).encode())
    rows = document.get("results") if isinstance(document, dict) else None
    told = len(parsed.facts) + len(parsed.orphans) + parsed.malformed + parsed.ignored
    told += len(parsed.inbound) + len(parsed.preferences)
    assert told == (len(rows) if isinstance(rows, list) else 1)


@given(st.binary(max_size=200))
def test_no_bytes_raise(body: bytes) -> None:
    parse_webhook(body)


@given(st.data())
def test_all_good_items_are_found_among_bad_ones(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 8))
    items: list[Any] = [delivery(seq) if seq % 2 else seen(seq) for seq in range(1, count + 1)]
    for junk in data.draw(st.lists(JSON_VALUES.filter(lambda value: not isinstance(value, dict)), max_size=8)):
        items.insert(data.draw(st.integers(0, len(items))), junk)
    parsed = parse_webhook(payload(*items))
    assert [fact.seq for fact in parsed.facts] == list(range(1, count + 1))
    assert parsed.malformed == len(items) - count


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("2026-12-01T10:00:02.481-0300", DONE_AT),
        ("2026-12-01T13:00:02.481+0000", DONE_AT),
        ("2026-12-01T13:00:02.481Z", DONE_AT),
        ("2026-12-01T10:00:02.481-03:00", DONE_AT),
        ("2026-12-01T13:00:02+0000", DONE_AT.replace(microsecond=0)),
        ("2026-12-01T13:00:02.481", None),
        ("2026-13-01T13:00:02.481+0000", None),
        ("9999-12-31T23:59:59.999-1200", None),
        ("", None),
        (1764594002481, None),
        (None, None),
    ],
)
def test_times_are_read_with_their_offset(text: Any, at: datetime | None) -> None:
    assert read_time(text) == at


LOG_ROWS: dict[str, tuple[dict[str, Any], list[tuple[FactKind, datetime]]]] = {
    "delivered": (log_row(), [(FactKind.DELIVERED, DONE_AT), (FactKind.SENT, SENT_AT)]),
    "pending": (log_row(1, 1, 7), [(FactKind.SENT, SENT_AT)]),
    "failed": (log_row(1, 2, 4, 7002), [(FactKind.FAILED, DONE_AT)]),
    "known, but only as a duplicate": (log_row(1, 5, 23), []),
}


@pytest.mark.parametrize("name", LOG_ROWS)
def test_a_row_of_the_log_gives_its_facts(name: str) -> None:
    row, facts = LOG_ROWS[name]
    assert [(fact.kind, fact.at) for fact in parse_log_row(row)] == facts


@pytest.mark.parametrize("row", [log_row(status=None), log_row(doneAt=None, sentAt=None), log_row(messageId="other")])
def test_a_row_of_the_log_that_cannot_be_read_is_an_error(row: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"row|message"):
        list(parse_log_row(row))
