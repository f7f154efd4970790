from itertools import chain

import pytest

from carteiro.domain.outcomes import Kind
from carteiro.providers.infobip.codes import ERRORS, STATUSES, Progress, meaning_of

# Written down a second time, by what follows from a code, so that a slip in the table is seen.
ERROR_IDS: dict[Kind | Progress, list[int]] = {
    Kind.CONTACT: [
        351, 4098, 4101, 7002, 7003, 7010, 7020, 7025, 7029, 7030, 7035, 7201,
    ],
    Kind.CONTACT_MARKETING: [7033],
    Kind.BLOCKED: [2050, 2052],
    Kind.COOL_DOWN: [4103, 4104, 7032, 7046, 7048],
    Kind.TEMPLATE: [7009, 7027, 7031, 7037],
    Kind.SENDER: [
        7007, 7011, 7012, 7016, 7019, 7021, 7026, 7034, 7038, 7081, 7084, 7102, 7281,
    ],
    Kind.ACCOUNT: [4099, 7001, 7004, 7005, 7083],
    Kind.REQUEST: [7006, 7008, 7015, 7018, 7022, 7023],
    Kind.TRANSIENT: [255, 7013, 7014, 7036, 7050, 7051, 7080, 7082],
    Kind.RATE: [7017, 7024],
    Kind.DUPLICATE: [5492, 7280],
    Progress.UNKNOWABLE: [7052],
}  # fmt: skip

STATUS_IDS: dict[Kind | Progress, list[int]] = {
    Progress.ACCEPTED: [2, 3, 7, 26],
    Progress.DELIVERED: [5],
    Progress.UNKNOWABLE: [29],
    Kind.CONTACT: [4, 6, 8, 9, 10, 15, 18, 19, 31, 52, 87, 100],
    Kind.BLOCKED: [14],
    Kind.COOL_DOWN: [20],
    Kind.SENDER: [11, 13],
    Kind.ACCOUNT: [12, 17],
    Kind.REQUEST: [24, 25, 51],
    Kind.TRANSIENT: [21],
    Kind.DUPLICATE: [23],
}


@pytest.mark.parametrize(("verdict", "ids"), ERROR_IDS.items(), ids=str)
def test_each_error_id_has_its_verdict(verdict: Kind | Progress, ids: list[int]) -> None:
    assert sorted(number for number, meaning in ERRORS.items() if meaning.verdict is verdict) == ids


@pytest.mark.parametrize(("verdict", "ids"), STATUS_IDS.items(), ids=str)
def test_each_status_id_has_its_verdict(verdict: Kind | Progress, ids: list[int]) -> None:
    assert sorted(number for number, meaning in STATUSES.items() if meaning.verdict is verdict) == ids


def test_no_id_is_left_out_of_these_lists() -> None:
    assert sorted(ERRORS) == sorted(chain.from_iterable(ERROR_IDS.values()))
    assert sorted(STATUSES) == sorted(chain.from_iterable(STATUS_IDS.values()))


@pytest.mark.parametrize("number", sorted(ERRORS))
def test_the_error_is_more_precise_than_the_status_beside_it(number: int) -> None:
    meaning = meaning_of(2, 4, number)
    assert meaning.code == f"EC_{number}"
    assert meaning is ERRORS[number]


@pytest.mark.parametrize(("group_id", "status_id"), [(1, 7), (3, 5), (3, 2), (4, 29), (5, 23)])
def test_an_error_says_nothing_beside_a_status_that_is_no_failure(group_id: int, status_id: int) -> None:
    assert meaning_of(group_id, status_id, 7002) is STATUSES[status_id]


@pytest.mark.parametrize(
    ("group_id", "status_id", "error_id", "code", "verdict"),
    [
        (0, 901, 0, "STATUS_901", Progress.ACCEPTED),
        (1, 901, 0, "STATUS_901", Progress.ACCEPTED),
        (2, 901, 0, "STATUS_901", Kind.TRANSIENT),
        (3, 901, 0, "STATUS_901", Progress.ACCEPTED),
        (4, 901, 0, "STATUS_901", Kind.CONTACT),
        (5, 901, 0, "STATUS_901", Kind.TRANSIENT),
        (77, 901, 0, "STATUS_901", Kind.TRANSIENT),
        (5, 901, 7009, "EC_7009", Kind.TEMPLATE),
        (2, 4, 901, "EC_901", Kind.TRANSIENT),
        # 27 is an error id of another family; as a status id it means nothing here.
        (2, 4, 27, "EC_27", Kind.TRANSIENT),
        (5, None, None, "GROUP_5", Kind.TRANSIENT),
        (None, 901, None, "STATUS_901", Kind.TRANSIENT),
    ],
)
def test_unknown_ids_are_transient_unless_their_group_says_more(
    group_id: int | None, status_id: int | None, error_id: int | None, code: str, verdict: Kind | Progress
) -> None:
    meaning = meaning_of(group_id, status_id, error_id)
    assert (meaning.code, meaning.verdict) == (code, verdict)
