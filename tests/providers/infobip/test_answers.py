import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carteiro.domain.outcomes import (
    Accepted,
    Ambiguous,
    Kind,
    NotSent,
    Outcome,
    RefusedTogether,
    Rejected,
    Throttled,
    message_key,
)
from carteiro.providers.infobip.answers import read_answer
from carteiro.providers.infobip.codes import ERRORS, STATUSES, Progress
from carteiro.providers.transport import read_retry_after
from tests.providers.infobip.reports import BATCH, error, status

KEY = message_key(BATCH, 1)
OTHER = message_key(BATCH, 2)


def answer(*rows: Any) -> bytes:
    return json.dumps({"messages": rows, "bulkId": "b"}).encode()


def row(group_id: int = 1, status_id: int = 7, error_id: int | None = None, key: str = KEY) -> dict[str, Any]:
    fields = {"to": "5531987650001", "messageCount": 1, "messageId": key, "status": status(group_id, status_id)}
    return fields if error_id is None else {**fields, "error": error(error_id)}


def legacy(name: str, text: str, **more: Any) -> bytes:
    return json.dumps({"requestError": {"serviceException": {"messageId": name, "text": text, **more}}}).encode()


def newer(code: str, description: str, violations: list[Any] | None = None) -> bytes:
    fields = {"errorCode": code, "description": description, "action": "?", "violations": violations or []}
    return json.dumps(fields).encode()


def read(http_status: int, body: bytes, retry_after: str | None = None) -> Outcome:
    (outcome,) = read_answer(http_status, body, retry_after, [KEY])
    return outcome


def test_rows_are_matched_by_our_id_and_not_by_order() -> None:
    outcomes = read_answer(200, answer(row(5, 52, key=OTHER), row(key=KEY)), None, [KEY, OTHER])
    assert outcomes == [Accepted(KEY), Rejected("STATUS_52", Kind.CONTACT, "REJECTED_DESTINATION")]


@pytest.mark.parametrize("status_id", sorted(STATUSES))
def test_every_status_in_a_row(status_id: int) -> None:
    outcome = read(200, answer(row(5, status_id)))
    match STATUSES[status_id].verdict:
        case Progress.ACCEPTED | Progress.DELIVERED:
            assert outcome == Accepted(KEY)
        case Progress.UNKNOWABLE:
            assert isinstance(outcome, Ambiguous)
            assert not outcome.duplicate
        case Kind.DUPLICATE:
            assert isinstance(outcome, Ambiguous)
            assert outcome.duplicate
        case Kind.TRANSIENT:
            assert isinstance(outcome, NotSent)
        case kind:
            assert outcome == Rejected(f"STATUS_{status_id}", kind, STATUSES[status_id].name)


@pytest.mark.parametrize("error_id", sorted(ERRORS))
def test_every_error_in_a_row(error_id: int) -> None:
    outcome = read(200, answer(row(2, 4, error_id)))
    match ERRORS[error_id].verdict:
        case Progress.UNKNOWABLE:
            assert outcome == Ambiguous(f"EC_{error_id}", ERRORS[error_id].name)
        case Kind.DUPLICATE:
            assert outcome == Ambiguous(f"EC_{error_id}", ERRORS[error_id].name, duplicate=True)
        case Kind.RATE:
            assert outcome == Throttled(code=f"EC_{error_id}")
        case Kind.TRANSIENT:
            assert outcome == NotSent(f"EC_{error_id}", ERRORS[error_id].name)
        case kind:
            assert outcome == Rejected(f"EC_{error_id}", kind, ERRORS[error_id].name)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"accepted",
        b"{}",
        b"[]",
        b'{"messages": null}',
        answer(),
        answer(None, 7, "x"),
        answer(row(key=OTHER)),
        answer({"messageId": KEY}),
        answer({"messageId": KEY, "status": "PENDING"}),
        answer({"messageId": [KEY], "status": status(1, 7)}),
    ],
)
def test_2xx_without_a_usable_row_of_ours_is_ambiguous(body: bytes) -> None:
    outcome = read(200, body)
    assert isinstance(outcome, Ambiguous)
    assert not outcome.duplicate


VALIDATION = {"content.templateData.header.mediaUrl": ["is not a valid url"]}
REFUSALS: list[tuple[int, bytes, Outcome]] = [
    (
        400,
        legacy("BAD_REQUEST", "Bad request", validationErrors=VALIDATION),
        Rejected(
            "HTTP_400",
            Kind.REQUEST,
            "BAD_REQUEST; Bad request; content.templateData.header.mediaUrl: is not a valid url",
        ),
    ),
    (
        400,
        newer("E400", "Request cannot be processed.", [{"property": "messages[0].to", "violation": "is blank"}]),
        Rejected("HTTP_400", Kind.REQUEST, "E400; Request cannot be processed.; messages[0].to: is blank"),
    ),
    (400, b"<html>", Rejected("HTTP_400", Kind.REQUEST, "no envelope")),
    (
        400,
        legacy("BAD_REQUEST", "Template not found"),
        Rejected("HTTP_400", Kind.TEMPLATE, "BAD_REQUEST; Template not found"),
    ),
    (
        404,
        newer("E404", "Template x was not found"),
        Rejected("HTTP_404", Kind.TEMPLATE, "E404; Template x was not found"),
    ),
    (404, legacy("NOT_FOUND", "No such URL"), Rejected("HTTP_404", Kind.ACCOUNT, "NOT_FOUND; No such URL")),
    (
        401,
        legacy("UNAUTHORIZED", "Invalid login details"),
        Rejected("HTTP_401", Kind.ACCOUNT, "UNAUTHORIZED; Invalid login details"),
    ),
    (403, legacy("FORBIDDEN", "Forbidden"), Rejected("HTTP_403", Kind.ACCOUNT, "FORBIDDEN; Forbidden")),
    (403, b"", Rejected("HTTP_403", Kind.ACCOUNT, "no envelope")),
    (301, b"", Rejected("HTTP_301", Kind.ACCOUNT, "redirected")),
    (413, b"", Rejected("HTTP_413", Kind.REQUEST, "no envelope")),
    (408, b"", Ambiguous("HTTP_408", "no envelope")),
    (429, legacy("TOO_MANY_REQUESTS", "Too many requests"), Throttled()),
    (429, newer("E429", "Too many requests."), Throttled()),
    (429, b"", Throttled()),
    (500, legacy("GENERAL_ERROR", "Something went wrong"), NotSent("HTTP_500", "GENERAL_ERROR; Something went wrong")),
    (503, newer("E503", "Unavailable"), NotSent("HTTP_503", "E503; Unavailable")),
    (500, b"<html>500</html>", Ambiguous("HTTP_500", "no envelope")),
    (502, b"", Ambiguous("HTTP_502", "no envelope")),
    (504, b"[]", Ambiguous("HTTP_504", "no envelope")),
    (504, newer("E504", "Gateway timeout"), Ambiguous("HTTP_504", "E504; Gateway timeout")),
    (500, b'{"error": "oops"}', Ambiguous("HTTP_500", "no envelope")),
    (500, b'{"requestError": {"serviceException": {}}}', Ambiguous("HTTP_500", "no envelope")),
    (500, b'{"errorCode": 500}', Ambiguous("HTTP_500", "no envelope")),
]


@pytest.mark.parametrize(("http_status", "body", "outcome"), REFUSALS)
def test_refused_calls(http_status: int, body: bytes, outcome: Outcome) -> None:
    assert read(http_status, body) == outcome
    match outcome:
        case Rejected(code, Kind.REQUEST | Kind.TEMPLATE):
            outcome = RefusedTogether(code, 2)
    assert read_answer(http_status, body, None, [KEY, OTHER]) == [outcome, outcome]


def test_details_hold_no_phone_and_have_an_end() -> None:
    outcome = read(400, legacy("BAD_REQUEST", "5531987650001 is not valid " + "x" * 1000))
    assert isinstance(outcome, Rejected)
    assert "987650001" not in outcome.detail
    assert len(outcome.detail) <= 200


@pytest.mark.parametrize(
    ("value", "wait_s"),
    [
        (None, None),
        ("", None),
        ("2", 2.0),
        (" 2 ", 2.0),
        ("0.5", 0.5),
        ("0", None),
        ("-3", None),
        ("86400000", 900.0),
        ("9" * 400, None),
        ("nan", None),
        ("inf", None),
        ("soon", None),
        ("٣", None),
        ("Thu, 01 Jan 1970 00:00:00 GMT", None),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 900.0),
    ],
)
def test_retry_after_is_used_when_it_makes_sense(value: str | None, wait_s: float | None) -> None:
    assert read_retry_after(value) == wait_s
    assert read(429, b"", value) == Throttled(wait_s)


def test_retry_after_as_a_date_is_a_wait_from_now() -> None:
    wait_s = read_retry_after(format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True))
    assert wait_s is not None
    assert 55 < wait_s <= 60


@given(st.text(max_size=40))
def test_no_retry_after_raises(value: str) -> None:
    wait_s = read_retry_after(value)
    assert wait_s is None or 0 < wait_s <= 900


FIELDS = (
    *("messages", "messageId", "status", "error", "id", "groupId"),
    *("requestError", "serviceException", "validationErrors", "text", "errorCode", "violations"),
)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4),
    max_leaves=12,
)


@given(st.integers(200, 599), JSON_VALUES)
def test_every_answer_has_an_outcome(http_status: int, document: Any) -> None:
    assert len(read_answer(http_status, json.dumps(document).encode(), None, [KEY])) == 1
