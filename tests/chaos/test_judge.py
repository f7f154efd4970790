"""The judge of the rig sees what it is there to see."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.chaos import judge
from tests.chaos.judge import Book
from tests.chaos.load import Halt
from tests.chaos.rig import CREDITS, MANAGER_LIMITS, SENDER_LIMITS, WINDOW_S, Moment, to_ns
from tests.support.evidence import Arrival, Evidence

BATCH = uuid4()
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
WORKER, PID = "host-77-abcdef", 77
SENDERS = {"s1": "acme-bm1", "s4": "acme-bm4"}


def call(seq: int = 1, *, after_s: float = 1.0, to: str | None = None, **fields: Any) -> Arrival:
    """A call of a message, so long after noon."""
    at_ns = to_ns(NOON) + int(after_s * 1e9)
    given: dict[str, Any] = {
        "n": int(after_s * 1e6) + seq,
        "arrived_ns": at_ns,
        "arrived_wall_ns": at_ns,
        "sender": "s1",
        "to": to or str(seq),
        "message_id": f"{BATCH.hex}-{seq}",
        "template": "t",
        "placeholders": [],
        "answer": "200",
        "accepted": True,
    }
    return Arrival(**given | fields)


def book(*, statuses: dict[int, str] | None = None, events: list[tuple[float, str, str]] | None = None) -> Book:
    """Messages by seq, each claimed at noon; then (seconds after noon, event, to_status)."""
    statuses = statuses or {1: "delivered"}
    seqs = list(statuses)
    told = [(0.0, "claimed", "pending_send"), *(events or [(2.0, "delivered", "delivered")])]
    batch = {"id": BATCH, "status": "completed", "charge_rule": "sent_only", "settled_at": NOON, "callback_url": None}
    return Book(
        {
            "batches": [batch | {"debited": 1, "charged": 1, "refunded": 0}],
            "messages": [
                {"batch_id": BATCH, "seq": seq, "status": status, "charged": None, "address": str(seq)}
                for seq, status in statuses.items()
            ],
            "events": [
                {
                    "at": NOON + timedelta(seconds=at_s),
                    "batch_id": BATCH,
                    "event": event,
                    "to_status": status,
                    "code": None,
                    "seqs": seqs,
                    "worker_id": WORKER,
                }
                for at_s, event, status in told
            ],
            "senders": [{"id": sender, "business_manager_id": manager} for sender, manager in SENDERS.items()],
            "balance": [{"balance": CREDITS - 1}],
            "meters": [{"kind": "bm", "owner": "acme-bm1", "used": 3, "held": 0, "buckets": 3, "holds": 0}],
            "holds": [],
        }
    )


def told(*arrivals: Arrival, of: Book | None = None) -> str:
    return "\n".join(judge._calls(Evidence(arrivals), of or book()))


def test_a_call_in_order_is_nothing_to_tell() -> None:
    assert told(call()) == ""


@pytest.mark.parametrize(
    ("calls", "finding"),
    [
        ([call(), call(after_s=1.5)], "accepted twice"),
        ([call(after_s=-0.001)], "called without a committed row"),
        ([call(after_s=2.1)], "called without a committed row"),
        ([call(message_id="nobody-1")], "its row does not say so"),
        ([call(to="999")], "under the id of another contact"),
        ([call(accepted=False)], "the provider never took it"),
    ],
)
def test_a_call_that_must_not_be_is_told(calls: list[Arrival], finding: str) -> None:
    assert finding in told(*calls)


@pytest.mark.parametrize("status", ["pending", "unknown", "failed", "unsent"])
def test_an_accepted_call_whose_row_says_otherwise_is_told(status: str) -> None:
    assert "its row does not say so" in told(call(), of=book(statuses={1: status}))


@pytest.mark.parametrize(("sender", "limit"), [("s1", MANAGER_LIMITS["acme-bm1"]), ("s4", SENDER_LIMITS["acme-bm4"])])
def test_one_above_a_limit_in_any_window_is_told(sender: str, limit: int) -> None:
    def within(n: int, window_s: float) -> list[str]:
        calls = [call(seq, after_s=seq * window_s / n, sender=sender) for seq in range(n)]
        return list(judge._limits(Evidence(calls), book()))

    assert within(limit, WINDOW_S) == []
    assert within(limit + 1, WINDOW_S * 1.01) == []
    assert "more in a window" in within(limit + 1, WINDOW_S * 0.99)[0]


def test_credits_and_units_that_went_astray_are_told() -> None:
    even = book()
    assert not [*judge._money(even), *judge._meters(even)]
    even.tables["balance"][0]["balance"] -= 1
    even.tables["meters"][0]["used"] += 1
    assert len([*judge._money(even), *judge._meters(even)]) == 2
    unsent = book(statuses={1: "unsent"})
    assert "1 credits for 0 messages" in next(iter(judge._money(unsent)))


class _Loaded:
    def __init__(self, *halts: Halt) -> None:
        self.halts = halts


@pytest.mark.parametrize(("after_s", "told"), [(0.1, False), (1.0, True), (3.1, False)])
def test_a_call_between_the_answer_to_a_pause_and_the_resumption_is_told(after_s: float, told: bool) -> None:
    answered_ns = to_ns(NOON)
    halt = Halt(UUID(BATCH.hex), "pause", answered_ns, answered_ns + 3 * 10**9)
    findings = list(judge._halts(Evidence([call(after_s=after_s)]), _Loaded(halt)))  # type: ignore[arg-type]
    assert bool(findings) == told


class _Frozen:
    def __init__(self, pid: int, since_s: float, until_s: float) -> None:
        since, until = (to_ns(NOON) + int(at_s * 1e9) for at_s in (since_s, until_s))
        self.frozen = [(pid, Moment(since, since), Moment(until, until))]


@pytest.mark.parametrize(
    ("pid", "after_s", "apart"), [(PID, 9.05, True), (PID, 8.9, False), (PID, 10.5, False), (PID + 1, 9.05, False)]
)
def test_only_what_a_thawed_worker_had_begun_before_is_set_apart(pid: int, after_s: float, apart: bool) -> None:
    lapsed = book(events=[(4.0, "lost", "unknown"), (8.0, "absent", "pending")])
    arrivals = Evidence([call(after_s=after_s)])
    set_apart = judge.calls_after_thaw(arrivals, lapsed, _Frozen(pid, 0.5, 9.0))  # type: ignore[arg-type]
    assert bool(set_apart) == apart
