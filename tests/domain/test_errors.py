"""What a client is told when it is refused."""

import pytest

from carteiro.domain import errors
from carteiro.domain.errors import (
    CapacityExhausted,
    FieldError,
    IllegalTransition,
    InsufficientCredits,
    InvalidRequest,
    Problem,
    Unauthorized,
    Unavailable,
)

CONCRETE = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, Problem) and kind is not Problem
]


def test_every_problem_has_a_code_of_its_own_in_kebab_case():
    codes = [kind.code for kind in CONCRETE]
    assert len(set(codes)) == len(codes)
    for code in codes:
        assert code.replace("-", "").isalpha()
        assert code == code.lower()


@pytest.mark.parametrize("kind", CONCRETE, ids=lambda kind: kind.code)
def test_a_problem_is_a_client_error_or_asks_to_come_back(kind: type[Problem]):
    assert 400 <= kind.status < 500 or kind is Unavailable


def test_a_refusal_names_every_bad_field():
    problem = InvalidRequest(errors=[FieldError("/contacts/3/phone", "phone-too-short", "give the area code")])
    assert problem.status == 400
    assert [error.pointer for error in problem.errors] == ["/contacts/3/phone"]
    assert problem.detail == InvalidRequest.title


def test_credits_and_capacity_say_how_much_there_is():
    assert InsufficientCredits(balance=3, required=10).extra == {"balance": 3, "required": 10}
    assert CapacityExhausted(available=1000, required=1200).extra == {"available": 1000, "required": 1200}
    assert (
        InsufficientCredits(balance=3, required=10).status == CapacityExhausted(available=0, required=1).status == 402
    )


def test_an_illegal_transition_says_what_is_allowed():
    problem = IllegalTransition(state="completed", event="paused", allowed=["b", "a"])
    assert problem.status == 409
    assert problem.extra == {"state": "completed", "allowed": ["a", "b"]}


def test_headers_travel_with_the_problem():
    assert Unauthorized().headers == {"WWW-Authenticate": "Bearer"}
    assert Unavailable(retry_after_s=5).headers == {"Retry-After": "5"}


def test_the_detail_is_what_the_exception_says():
    assert str(InvalidRequest("no contacts")) == "no contacts"
