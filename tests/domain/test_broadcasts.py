"""What a broadcast asks for, whom it reaches, and how far it is."""

import pytest

from carteiro.domain.broadcasts import (
    STATUS_OF_BATCH,
    STATUS_OF_MESSAGE,
    BroadcastRequest,
    Progress,
    RecipientStatus,
    placeholders_of,
    progress_of,
    recipients,
    request_faults,
    states_of,
)
from carteiro.domain.lifecycle import BatchState, MessageState
from carteiro.domain.template_entries import parse_template


def content(**fields: object) -> dict[str, object]:
    return parse_template({"name": "t", "category": "UTILITY", "body": "Ola {{1}}, {{2}}.", **fields}).to_content()


def faults(variables: dict[str, str], template: dict[str, object], forbidden: tuple[str, ...] = ()) -> list[str]:
    request = BroadcastRequest(group_id="g", template_name="t", variables=variables)
    return [f"{fault.pointer} {fault.code}" for fault in request_faults(request, template, forbidden=forbidden)]


def test_every_state_has_its_word() -> None:
    assert STATUS_OF_BATCH.keys() == set(BatchState) - {BatchState.DRAFT}
    assert STATUS_OF_MESSAGE.keys() == set(MessageState)
    assert sorted(state for word in RecipientStatus for state in states_of(word)) == sorted(MessageState)


def test_steps_include_those_beyond_them_and_sum_to_the_total() -> None:
    counts = {str(state): 10**place for place, state in enumerate(MessageState)}
    progress = progress_of(counts)
    assert progress == Progress(pending=111, sent=111_000, delivered=110_000, read=100_000, failed=11_000_000)
    assert progress.pending + progress.sent + progress.failed == sum(counts.values())


def test_variables_are_those_of_the_placeholders() -> None:
    template = content()
    assert faults({"1": "a", "2": "b"}, template) == []
    assert faults({}, template) == ["/variables missing", "/variables missing"]
    assert faults({"1": "a", "3": "c"}, template) == ["/variables/3 unexpected", "/variables missing"]
    assert faults({"01": "a", "2": "b"}, template) == ["/variables/01 unexpected", "/variables missing"]
    assert faults({"1": "", "2": "\t"}, template) == ["/variables/1 blank", "/variables/2 blank"]
    assert faults({}, content(body="Ola.")) == []
    assert faults({"1": "a"}, content(body="Ola.")) == ["/variables/1 unexpected"]


def test_variables_are_in_the_order_of_their_numbers() -> None:
    variables = {str(number): f"v{number}" for number in (10, 2, 1, 3, 4, 5, 6, 7, 8, 9)}
    request = BroadcastRequest(group_id="g", template_name="t", variables=variables)
    assert placeholders_of(request) == [f"v{number}" for number in range(1, 11)]


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"header": {"type": "IMAGE"}}, "header-media-missing"),
        ({"header": {"type": "TEXT", "text": "For {{1}}"}}, "header-text-missing"),
        ({"buttons": [{"type": "URL", "text": "See", "url": "https://example.com/{{1}}"}]}, "button-parameter-missing"),
    ],
)
def test_a_template_that_needs_more_than_variables_is_refused(fields: dict[str, object], fault: str) -> None:
    assert faults({"1": "a", "2": "b"}, content(**fields)) == [f"/template_name {fault}"]


def test_forbidden_words_are_found_in_template_and_variables() -> None:
    assert faults({"1": "OFERTA", "2": "b"}, content(), ("oferta",)) == ["/variables forbidden-term"]
    assert faults({"1": "a", "2": "b"}, content(footer="A oferta"), ("oferta",)) == ["/variables forbidden-term"]


def test_one_recipient_for_each_phone_however_it_is_written() -> None:
    written = [
        "+5511987654321",
        "(11) 98765-4321",
        "0055 11 8765-4321",  # without the ninth digit
        " 55 11 98765 4321 ",
        "+351 912 345 678",
        "00351912345678",
        "12",
        "",
        "nobody",
    ]
    rows, left_out = recipients(written, ["a", "b"])
    assert [(row.seq, row.address, row.placeholders) for row in rows] == [
        (1, "5511987654321", ["a", "b"]),
        (2, "351912345678", ["a", "b"]),
    ]
    assert left_out == {
        "counts": {"phone-too-short": 1, "phone-empty": 1, "phone-malformed": 1, "duplicate": 4},
        "rows": [],
    }
    assert recipients(written[:1], []) == ([rows[0].__class__(1, 551187654321, "5511987654321", [], None)], None)
    assert recipients([], []) == ([], None)
