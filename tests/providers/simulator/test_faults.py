import pytest

from carteiro.providers.simulator.faults import Fault, FaultBook
from carteiro.providers.simulator.magic import MAGIC
from carteiro.providers.simulator.plan import Plan

HANG, RESET = Plan(answer="hang"), Plan(answer="reset")


def test_the_first_fault_that_matches_strikes() -> None:
    book = FaultBook(1)
    book.add([Fault(plan=HANG, to="0001"), Fault(plan=RESET)])
    assert book.pick("send", "5511900000001") is HANG
    assert book.pick("send", "5511900000002") is RESET


@pytest.mark.parametrize(
    ("fault", "strikes"),
    [
        (Fault(plan=HANG), True),
        (Fault(plan=HANG, to="5511900000001"), True),
        (Fault(plan=HANG, to="0002"), False),
        (Fault(plan=HANG, sender="551140"), False),
        (Fault(plan=HANG, sender="5511400010001", template="welcome"), True),
        (Fault(plan=HANG, template="other"), False),
        (Fault(plan=HANG, on="log"), False),
    ],
)
def test_filters(fault: Fault, strikes: bool) -> None:
    book = FaultBook(1)
    book.add([fault])
    assert (book.pick("send", "5511900000001", "5511400010001", "welcome") is HANG) is strikes


def test_a_fault_for_the_next_calls_ends_after_them() -> None:
    book = FaultBook(1)
    book.add([Fault(plan=HANG, calls=2, to="1")])
    picked = [book.pick("send", to) for to in ("1", "2", "1", "1")]
    assert picked == [HANG, None, HANG, None]
    assert book.faults == []


def test_chances_are_drawn_by_the_seed() -> None:
    def draw(seed: int) -> list[bool]:
        book = FaultBook(seed)
        book.add([Fault(plan=HANG, probability=0.3)])
        return [book.pick("send") is HANG for _ in range(1000)]

    assert draw(7) == draw(7)
    assert draw(7) != draw(8)
    assert 200 < sum(draw(7)) < 400


def test_faults_are_removed_one_by_one_or_all_at_once() -> None:
    book = FaultBook(1)
    first, second = book.add([Fault(plan=HANG), Fault(plan=RESET)])
    assert book.remove(first) == 1
    assert book.remove(first) == 0
    assert book.pick("send") is RESET
    assert [fault.id for fault in book.faults] == [second]
    assert book.remove() == 1


def test_magic_strikes_by_the_last_digits() -> None:
    book = FaultBook(1)
    assert book.pick_magic("5511912349941") is MAGIC["9941"].plan
    assert book.pick_magic("5511912349941") is MAGIC["9941"].plan
    assert book.pick_magic("5511999411234") is None


def test_magic_for_the_first_call_only_is_per_number_until_reset() -> None:
    book = FaultBook(1)
    assert book.pick_magic("5511912349901") is MAGIC["9901"].plan
    assert book.pick_magic("5511912349901") is None
    assert book.pick_magic("5521912349901") is MAGIC["9901"].plan
    book.reset(1)
    assert book.pick_magic("5511912349901") is MAGIC["9901"].plan


@pytest.mark.parametrize("digits", MAGIC)
def test_magic_numbers_stay_in_their_corner(digits: str) -> None:
    assert digits.startswith("99")
    assert len(digits) == 4
