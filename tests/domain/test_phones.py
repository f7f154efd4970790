"""Phone identity: every spelling of a number is the same person, and two people are never one."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carteiro.domain.phones import Phone, PhoneProblem, dedupe, parse

AREAS = [
    *(str(area) for tens in (10, 40, 60, 80, 90) for area in range(tens + 1, tens + 10)),
    *("21", "22", "24", "27", "28", "31", "32", "33", "34", "35", "37", "38"),
    *("51", "53", "54", "55", "71", "73", "74", "75", "77", "79"),
]

areas = st.sampled_from(AREAS)
eight_digits = st.from_regex(r"[0-9]{8}", fullmatch=True)
old_mobile_digits = st.from_regex(r"[6-9][0-9]{7}", fullmatch=True)


def spellings(area: str, number: str) -> list[str]:
    """How people write a national number, `number` without the area code."""
    split = f"{number[:-4]}-{number[-4:]}"
    return [
        f"+55{area}{number}",
        f"55{area}{number}",
        f"0055{area}{number}",
        f"00 55 {area} {number}",
        f"{area}{number}",
        f"0{area}{number}",
        f"015{area}{number}",
        f"0 15 {area} {split}",
        f"+55 {area} {split}",
        f"+55 ({area}) {split}",
        f"(+55) {area} {split}",
        f"+55 (0{area}) {split}",
        f"({area}) {split}",
        f"(0{area}) {split}",
        f" {area}.{number[:-4]}.{number[-4:]} ",
        f"{area}\u00a0{number[:-4]}\u2011{number[-4:]}",
    ]


@given(area=areas, last_eight=eight_digits)
@settings(max_examples=60)
def test_every_spelling_of_a_mobile_is_one_identity(area, last_eight):
    expected = Phone(int(f"55{area}{last_eight}"), f"55{area}9{last_eight}")
    for spelling in spellings(area, f"9{last_eight}"):
        assert parse(spelling) == expected, spelling


@given(area=areas, last_eight=old_mobile_digits)
@settings(max_examples=60)
def test_a_mobile_without_its_ninth_digit_is_the_same_and_is_given_it(area, last_eight):
    expected = parse(f"+55{area}9{last_eight}")
    for spelling in spellings(area, last_eight):
        assert parse(spelling) == expected, spelling


@given(area=areas, digits=st.from_regex(r"[2-5][0-9]{7}", fullmatch=True))
@settings(max_examples=60)
def test_a_landline_is_not_the_mobile_with_the_same_eight_digits(area, digits):
    mobile = parse(f"+55{area}9{digits}")
    for spelling in spellings(area, digits):
        landline = parse(spelling)
        assert isinstance(landline, Phone)
        assert landline.address == f"55{area}{digits}"
        assert landline.identity != mobile.identity


@given(st.text(max_size=50) | st.from_regex(r"\+?[0-9 ()\-]{0,20}", fullmatch=True))
@settings(max_examples=300)
def test_no_input_raises_and_what_is_read_reads_back_the_same(raw):
    phone = parse(raw)
    if isinstance(phone, PhoneProblem):
        assert phone.remedy
    else:
        assert phone.address.isdecimal()
        assert parse(phone.e164) == phone


@given(st.lists(st.from_regex(r"\+[1-9][0-9]{7,13}", fullmatch=True), max_size=50))
@settings(max_examples=100)
def test_two_addresses_are_never_one_identity(raws):
    phones = {phone for raw in raws if isinstance(phone := parse(raw), Phone)}
    assert len({phone.identity for phone in phones}) == len({phone.address for phone in phones})


@pytest.mark.parametrize(
    ("raw", "address"),
    [
        ("+1 415 555 2671", "14155552671"),
        ("14155552671", "14155552671"),
        ("0014155552671", "14155552671"),
        ("+351 912 345 678", "351912345678"),
        ("351912345678", "351912345678"),
        ("+54 9 11 2345-6789", "5491123456789"),
        ("+45 31 23 45 67", "4531234567"),
        ("+44 20 7946 0958", "442079460958"),
        ("+55 0800 123 4567", "558001234567"),
    ],
)
def test_numbers_of_other_kinds_are_their_own_identity(raw, address):
    assert parse(raw) == Phone(int(address), address)


def test_ten_bare_digits_that_look_brazilian_are_brazilian():
    assert parse("4531234567") == Phone(5545031234567, "554531234567")
    assert parse("+4531234567") == Phone(4531234567, "4531234567")


def test_area_code_55_is_not_taken_for_the_country():
    assert parse("55999887766") == parse("+5555999887766") == Phone(555599887766, "5555999887766")


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        ("", PhoneProblem.EMPTY),
        ("  ", PhoneProblem.EMPTY),
        ("no phone", PhoneProblem.MALFORMED),
        ("+", PhoneProblem.MALFORMED),
        ("11 98765-4321 ramal 2", PhoneProblem.MALFORMED),
        ("١١٩٨٧٦٥٤٣٢١", PhoneProblem.MALFORMED),
        ("55+11987654321", PhoneProblem.MALFORMED),
        ("987654321", PhoneProblem.TOO_SHORT),
        ("+55", PhoneProblem.TOO_SHORT),
        ("0" * 20, PhoneProblem.TOO_LONG),
        ("1" * 41, PhoneProblem.TOO_LONG),
        ("+5510987654321", PhoneProblem.INVALID),
        ("+5511187654321", PhoneProblem.INVALID),
        ("+11987654321", PhoneProblem.INVALID),
    ],
)
def test_what_is_not_a_phone_says_why(raw, problem):
    assert parse(raw) is problem


def test_dedupe_keeps_the_first_of_each_person():
    raws = ["+5511987654321", "?", "+5511912345678", "(11) 8765-4321", "11 98765-4321", "11 3333-4444", "?"]
    kept, duplicates = dedupe([parse(raw) for raw in raws])
    assert kept == {position: parse(raws[position]) for position in (0, 2, 5)}
    assert duplicates == [(3, 0), (4, 0)]
