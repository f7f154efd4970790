import msgspec
import pytest

from carteiro.providers.simulator.ledger import Arrival, Ledger, pack, unpack


def arrival(number: int, to: str = "5511900000001", message_id: str | None = None) -> Arrival:
    return Arrival(
        request=number,
        arrived_ns=1_000 + number,
        arrived_wall_ns=2_000 + number,
        caller="carteiro",
        sender=f"551140001000{number % 2}",
        to=to,
        message_id=message_id or f"m-{number}",
        template="welcome",
        placeholders=("Ana\n", "ação", ""),
        notify_url=None,
    )


def test_a_row_is_written_down_as_it_came() -> None:
    ledger = Ledger()
    ledger.record(arrival(7), "200", accepted=True)
    (line,) = ledger.lines(0, 10)
    assert msgspec.json.decode(line) == {
        "n": 0,
        "request": 7,
        "arrived_ns": 1_007,
        "arrived_wall_ns": 2_007,
        "caller": "carteiro",
        "sight": None,
        "sender": "5511400010001",
        "to": "5511900000001",
        "message_id": "m-7",
        "template": "welcome",
        "placeholders": ["Ana\n", "ação", ""],
        "answer": "200",
        "accepted": True,
        "status_id": None,
        "error_id": None,
        "seen": False,
    }


def test_rows_are_read_in_pages() -> None:
    ledger = Ledger()
    for number in range(5):
        ledger.record(arrival(number), "200", accepted=True)
    assert [msgspec.json.decode(line)["n"] for line in ledger.lines(1, 2)] == [1, 2]
    assert [msgspec.json.decode(line)["n"] for line in ledger.lines(4, 9)] == [4]
    assert list(ledger.lines(5, 9)) == []


def test_totals_count_what_was_taken_more_than_once() -> None:
    ledger = Ledger()
    ledger.record(arrival(1, "551"), "200", accepted=True)
    ledger.record(arrival(2, "552"), "429", accepted=False)
    ledger.record(arrival(2, "552"), "200", accepted=True)
    ledger.record(arrival(1, "551"), "STATUS_23", accepted=False)
    ledger.record(arrival(1, "551"), "200", accepted=True)
    ledger.record(arrival(3, "BR.902"), "200", accepted=True)
    ledger.record(arrival(4, "BR.902"), "200", accepted=True)
    assert ledger.totals() == {
        "messages": 7,
        "accepted": 5,
        "answers": {"200": 5, "429": 1, "STATUS_23": 1},
        "senders": {
            "5511400010001": {"messages": 4, "accepted": 3},
            "5511400010000": {"messages": 3, "accepted": 2},
        },
        "repeated_message_ids": 2,
        "message_ids_accepted_again": 1,
        "phones_accepted_again": 2,
    }


@pytest.mark.parametrize(("status_id", "error_id"), [(5, 0), (4, 7032), (100, 9999), (1, 0)])
def test_outcomes_are_kept_in_one_number(status_id: int, error_id: int) -> None:
    assert unpack(pack(status_id, error_id)) == (status_id, error_id)
