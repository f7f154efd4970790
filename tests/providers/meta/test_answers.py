import json
from typing import Any

import pytest

from carteiro.domain.outcomes import Accepted, Ambiguous, Kind, NotSent, Outcome, Rejected, Scope, Throttled
from carteiro.providers.meta.answers import read_answer
from carteiro.providers.meta.codes import CODES
from tests.providers.meta.shapes import WAMID, raw_example


def error(code: int, **more: Any) -> bytes:
    return json.dumps({"error": {"message": f"(#{code}) ...", "type": "OAuthException", "code": code, **more}}).encode()


ACCEPTED: dict[str, Outcome] = {
    "send-response-accepted": Accepted(WAMID),
    "send-response-held": Accepted(WAMID, "HELD_FOR_QUALITY"),
    "send-response-text": Accepted(WAMID),
    "send-response-to-bsuid": Accepted(WAMID),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_a_message_id_means_accepted(name: str) -> None:
    assert read_answer(200, raw_example(name), None) == ACCEPTED[name]


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"{}", b'{"messages": []}', b'{"messages": [{"id": 5}]}'])
def test_200_without_a_message_id_says_nothing(body: bytes) -> None:
    assert isinstance(read_answer(200, body, None), Ambiguous)


# Example of an error, its HTTP status, what follows from it.
ERRORS: dict[str, tuple[int, type[Outcome], str, dict[str, Any]]] = {
    "error-100-invalid-parameter": (400, Rejected, "100", {"kind": Kind.REQUEST}),
    "error-130429-throughput": (400, Throttled, "130429", {"scope": Scope.SENDER, "retry_after_s": 5.0}),
    "error-131000-unknown": (500, Ambiguous, "131000", {"duplicate": False}),
    "error-131016-unavailable": (500, NotSent, "131016", {"tries_max": None}),
    "error-131030-recipient-not-allowed": (400, Rejected, "131030", {"kind": Kind.SENDER}),
    "error-131056-pair-rate": (400, Throttled, "131056", {"scope": Scope.CONTACT, "retry_after_s": None}),
    "error-131057-maintenance": (500, Throttled, "131057", {"scope": Scope.SENDER, "retry_after_s": 90.0}),
    "error-132000-param-count": (400, Rejected, "132000", {"kind": Kind.TEMPLATE}),
    "error-132001-template-missing": (404, Rejected, "132001", {"kind": Kind.TEMPLATE}),
    "error-132012-param-format": (400, Rejected, "132012", {"kind": Kind.TEMPLATE}),
    "error-132015-template-paused": (400, Rejected, "132015", {"kind": Kind.TEMPLATE}),
    "error-190-token-expired": (401, Rejected, "190", {"kind": Kind.ACCOUNT}),
    "error-80007-waba-rate": (400, Throttled, "80007", {"scope": Scope.SENDER, "retry_after_s": 60.0}),
    "error-generic-graph-transient": (503, NotSent, "2", {}),
}


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_means_what_its_code_means(name: str) -> None:
    status, kind, code, more = ERRORS[name]
    outcome = read_answer(status, raw_example(name), None)
    assert isinstance(outcome, kind)
    assert not isinstance(outcome, Accepted)
    assert outcome.code == code
    assert {field: getattr(outcome, field) for field in more} == more


@pytest.mark.parametrize("code", CODES)
def test_every_code_of_the_table_is_an_outcome_of_its_own_kind(code: int) -> None:
    meaning = CODES[code]
    outcome = read_answer(400, error(code), None)
    match meaning.kind:
        case _ if meaning.taken == "perhaps":
            assert isinstance(outcome, Ambiguous)
        case Kind.RATE:
            assert isinstance(outcome, Throttled)
            assert outcome.scope is meaning.scope
        case Kind.TRANSIENT:
            assert isinstance(outcome, NotSent)
        case kind:
            assert isinstance(outcome, Rejected)
            assert outcome.kind is kind


def test_a_code_that_nobody_has_listed_is_tried_twice_unless_it_may_have_gone() -> None:
    assert read_answer(400, error(139999), None) == NotSent("139999", "(#...) ...", 2)
    assert isinstance(read_answer(500, error(139999), None), Ambiguous)


def test_codes_with_more_to_them() -> None:
    gone = read_answer(400, error(100, error_subcode=33), None)
    assert isinstance(gone, Rejected)
    assert gone.kind is Kind.SENDER
    permission = read_answer(403, error(231), None)
    assert isinstance(permission, Rejected)
    assert permission.kind is Kind.ACCOUNT
    assert isinstance(read_answer(504, error(2), None), Ambiguous)
    assert read_answer(400, error(4), "7") == Throttled(7.0, "4", Scope.SERVICE)


STRANGERS: dict[int, Outcome] = {
    429: Throttled(3.0),
    404: Rejected("HTTP_404", Kind.ACCOUNT, "no envelope"),
    308: Rejected("HTTP_308", Kind.ACCOUNT, "redirected"),
    413: Rejected("HTTP_413", Kind.REQUEST, "no envelope"),
    408: Ambiguous("HTTP_408", "no envelope"),
    502: Ambiguous("HTTP_502", "no envelope"),
}


@pytest.mark.parametrize("status", STRANGERS)
@pytest.mark.parametrize("body", [b"<html></html>", b'{"error": {"code": "190"}}', b'{"error": "no"}'])
def test_an_answer_that_is_not_metas_is_judged_by_its_status(status: int, body: bytes) -> None:
    assert read_answer(status, body, "3") == STRANGERS[status]


def test_no_phone_is_kept_of_what_an_error_quotes() -> None:
    outcome = read_answer(400, error(131026, error_data={"details": "to +5531987650001"}), None)
    assert isinstance(outcome, Rejected)
    assert "5531987650001" not in outcome.detail
