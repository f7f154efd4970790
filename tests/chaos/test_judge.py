"""The judge of the rig sees what it is there to see."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from tests.chaos import door_judge, judge
from tests.chaos.book import LAPSED, Book
from tests.chaos.doors import Asked, Doors
from tests.chaos.failpoints import FAILPOINTS
from tests.chaos.fault import Record
from tests.chaos.faults import Freeze, PostgresRestart
from tests.chaos.rig import Moment, to_ns
from tests.chaos.steer import Halt
from tests.chaos.steps import FIRED, WRITTEN
from tests.chaos.trials import FullThrottle, KillAtRate
from tests.chaos.world import CREDITS, USUAL
from tests.support.evidence import Arrival, Evidence, Sight

BATCH = uuid4()
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NOON_NS = to_ns(NOON)
CLAIM, PID = 5, 77
SENDERS = {"s1": "acme-bm1", "s4": "acme-bm4"}


def call(
    seq: int = 1, *, after_s: float = 1.0, to: str | None = None, asked_ns: int | None = None, **fields: Any
) -> Arrival:
    """A call of a message, so long after noon."""
    at_ns = NOON_NS + int(after_s * 1e9)
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
        "caller": f"carteiro claim/{CLAIM} asked/{asked_ns or at_ns - 2_000_000} at/{at_ns - 1_000_000}",
        "sight": Sight("pending_send", CLAIM, True),
    }
    return Arrival(**given | fields)


def book(
    *, statuses: dict[int, str] | None = None, events: list[tuple[float, str, str]] | None = None, code: str = ""
) -> Book:
    """Messages by seq, each claimed at noon; then (seconds after noon, event, to_status)."""
    statuses = statuses or {1: "delivered"}
    told = [(0.0, "claimed", "pending_send"), *(events or [(2.0, "delivered", "delivered")])]
    froms = ["pending", *(to_status for _, _, to_status in told)]
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
                    "from_status": from_status,
                    "to_status": to_status,
                    "code": code or None,
                    "claim_id": CLAIM,
                    "seqs": list(statuses),
                }
                for (at_s, event, to_status), from_status in zip(told, froms, strict=False)
            ],
            "follow_ups": [],
            "follow_up_events": [],
            "batch_events": [
                {"event": "created", "from_status": None, "to_status": "draft"},
                {"event": "opened", "from_status": "draft", "to_status": "pending"},
            ],
            "claims": [
                {
                    "id": CLAIM,
                    "worker_id": f"a-host-{PID}-abcdef",
                    "claimed_at": NOON,
                    "closed_at": NOON + timedelta(seconds=3),
                    "lease_until": NOON + timedelta(seconds=3),
                }
            ],
            "senders": [{"id": sender, "business_manager_id": manager} for sender, manager in SENDERS.items()],
            "balance": [{"balance": CREDITS - 1}],
            "meters": [{"kind": "bm", "owner": "acme-bm1", "used": 3, "held": 0, "buckets": 3, "holds": 0}],
            "holds": [],
        }
    )


def told(*arrivals: Arrival, of: Book | None = None) -> str:
    evidence = Evidence(arrivals)
    return "\n".join([*judge._calls(evidence, of or book()), *judge._sights(evidence, may_be_blind=False)])


def test_a_call_in_order_is_nothing_to_tell() -> None:
    assert told(call()) == ""
    assert list(judge._edges(book())) == []


@pytest.mark.parametrize(
    ("calls", "finding"),
    [
        ([call(), call(after_s=1.5)], "accepted twice"),
        ([call(after_s=-0.001)], "called without a committed row"),
        ([call(after_s=2.1)], "called without a committed row"),
        ([call(message_id="nobody-1")], "its row does not say so"),
        ([call(to="999")], "under the id of another contact"),
        ([call(accepted=False)], "the provider never took it"),
        ([call(sight=Sight("pending", CLAIM, True))], "not about to be sent"),
        ([call(sight=Sight(None, None, False))], "not about to be sent"),
        ([call(sight=Sight("pending_send", CLAIM, False))], "not about to be sent"),
        ([call(sight=Sight("pending_send", CLAIM + 1, True))], "under the claim that called"),
        ([call(caller="carteiro")], "under the claim that called"),
        ([call(sight=None)], "the witness did not see 1 of 1 calls"),
    ],
)
def test_a_call_that_must_not_be_is_told(calls: list[Arrival], finding: str) -> None:
    assert finding in told(*calls)


@pytest.mark.parametrize("status", ["pending", "unknown", "failed", "unsent"])
def test_an_accepted_call_whose_row_says_otherwise_is_told(status: str) -> None:
    assert "its row does not say so" in told(call(), of=book(statuses={1: status}))


def test_a_call_that_was_reported_to_have_failed_may_have_failed() -> None:
    assert told(call(status_id=judge.REPORTED_FAILED), of=book(statuses={1: "failed"})) == ""


@pytest.mark.parametrize(
    ("events", "illegal"), [([(2.0, "delivered", "delivered"), (3.0, "sent", "sent")], "('delivered', 'sent')")]
)
def test_a_move_that_no_edge_allows_is_told(events: list[tuple[float, str, str]], illegal: str) -> None:
    assert illegal in "\n".join(judge._edges(book(events=events)))


@pytest.mark.parametrize(
    ("sender", "limit"), [("s1", USUAL.manager_limits["acme-bm1"]), ("s4", USUAL.sender_limits["acme-bm4"])]
)
def test_the_fullest_window_is_found(sender: str, limit: int) -> None:
    def most(n: int, apart_s: float) -> int:
        calls = [call(seq, after_s=seq * apart_s, sender=sender) for seq in range(n)]
        return max(most for _, most, of in judge._fullness(Evidence(calls), book(), USUAL) if of == limit)

    apart_s = USUAL.window_s / limit
    assert most(limit, apart_s) == limit
    assert most(limit + 1, apart_s * 1.001) == limit
    assert most(limit + 1, apart_s * 0.999) == limit + 1


def test_credits_and_units_that_went_astray_are_told() -> None:
    even = book()
    assert not [*judge._money(even), *judge._meters(even)]
    even.tables["balance"][0]["balance"] -= 1
    even.tables["meters"][0]["used"] += 1
    assert len([*judge._money(even), *judge._meters(even)]) == 2
    unsent = book(statuses={1: "unsent"})
    assert "1 credits for 0 messages" in next(iter(judge._money(unsent)))


@pytest.mark.parametrize(
    ("started_s", "arrived_s", "said", "finding"),
    [
        (-0.1, 0.2, 1, ""),
        (0.1, 0.2, 1, "called after the answer"),
        (-0.1, 0.2, 0, "more arrived after the answer than it said"),
        (3.1, 3.2, 0, ""),
    ],
)
def test_what_a_pause_must_not_be_followed_by_is_told(
    started_s: float, arrived_s: float, said: int, finding: str
) -> None:
    halt = Halt(BATCH, "pause", NOON_NS, said, NOON_NS + 3 * 10**9)
    late = call(after_s=arrived_s, caller=f"carteiro claim/{CLAIM} at/{NOON_NS + int(started_s * 1e9)}")
    findings = "\n".join(judge._halts(Evidence([late]), [halt]))
    assert (finding in findings) if finding else not findings


def test_callbacks_are_held_against_the_settlement() -> None:
    settled = book()
    settled.batches[BATCH]["callback_url"] = "http://client"

    def post(charged: int, webhook_id: str = "w1") -> dict[str, Any]:
        body = {"type": "batch.completed", "data": {"batch_id": str(BATCH), "money": {"charged": charged}}}
        return {"body": msgspec.json.encode(body).decode(), "headers": [["webhook-id", webhook_id]]}

    assert list(judge._callbacks([post(1), post(1)], settled)) == []
    assert "was not told" in next(iter(judge._callbacks([], settled)))
    assert "not so" in next(iter(judge._callbacks([post(0)], settled)))
    assert "two ids" in next(iter(judge._callbacks([post(1), post(1, "w2")], settled)))


META = {"provider": "meta", "door": "broadcast"}


def at_doors(*, batch: dict[str, Any] | None = None, follow_ups: dict[int, str] | None = None, **fields: Any) -> Book:
    found = book(**fields)
    found.batches[BATCH].update(META if batch is None else batch)
    found.follow_ups = {f"{BATCH.hex}-{seq}f": {"status": of, "code": None} for seq, of in (follow_ups or {}).items()}
    return found


@pytest.mark.parametrize(
    ("first", "told"),
    [
        ({"answer": "200"}, True),
        ({"answer": "reset", "accepted": False}, True),
        ({"answer": "EC_131000", "accepted": False}, True),
        ({"answer": "EC_130429", "accepted": False}, False),
    ],
)
def test_a_second_call_where_the_first_may_have_left_is_told(first: dict[str, Any], told: bool) -> None:
    both = Evidence([call(**first), call(after_s=1.5)])
    assert bool(list(door_judge.called_again(both, at_doors()))) == told
    assert not list(door_judge.called_again(both, at_doors(batch={"provider": "infobip", "door": "batch"})))
    assert (
        bool(list(door_judge.called_again(both, at_doors(batch={"provider": "infobip", "door": "reminder"})))) == told
    )


def test_an_unknown_message_by_meta_that_was_sent_back_is_told() -> None:
    back = [(2.0, "lost", "unknown"), (3.0, "absent", "pending")]
    assert "moved back" in next(iter(door_judge.sent_back(at_doors(events=back, batch=META))))
    assert not list(door_judge.sent_back(at_doors(events=back, batch={"provider": "infobip"})))


def test_what_was_given_up_may_have_been_taken_where_no_log_tells() -> None:
    given_up = at_doors(statuses={1: "failed"})
    given_up.messages[f"{BATCH.hex}-1"]["code"] = judge.OUTCOME_UNKNOWN
    assert told(call(), of=given_up) == ""
    given_up.batches[BATCH].update({"provider": "infobip", "door": "batch"})
    assert "its row does not say so" in told(call(), of=given_up)


def test_follow_ups_are_for_those_who_answered() -> None:
    nothing, answer = Evidence([]), f"{BATCH.hex}-1"
    assert not list(door_judge.follow_ups({answer}, nothing, at_doors(follow_ups={1: "delivered"})))
    assert "nobody answered" in next(iter(door_judge.follow_ups(set(), nothing, at_doors(follow_ups={1: "sent"}))))
    assert "without a follow-up" in next(iter(door_judge.follow_ups({answer}, nothing, at_doors())))
    assert "without an outcome" in next(
        iter(door_judge.follow_ups({answer}, nothing, at_doors(follow_ups={1: "unknown"})))
    )


def test_a_reminder_is_what_was_told_of_it() -> None:
    def findings(asked: Asked, *calls: Arrival, status: str = "delivered") -> str:
        doors = Doors(_Rig(), 1)  # type: ignore[arg-type]
        doors.asked.append(asked)
        return "\n".join(door_judge.references(doors, Evidence(calls), at_doors(statuses={1: status})))

    def reminder(**fields: Any) -> Asked:
        return Asked("reminder", "r", {"phone": "+1"}, ended=True, **fields)

    assert findings(reminder(sent=[BATCH]), call()) == ""
    assert "never taken" in findings(reminder(sent=[BATCH]))
    assert findings(reminder(unsent=[BATCH]), status="unsent") == ""
    assert "it is not so" in findings(reminder(unsent=[BATCH]), call())
    assert "more than one" in findings(reminder(), call(), call(after_s=1.5))
    assert "without an answer" in findings(Asked("reminder", "r", {"phone": "+1"}))


class _Rig:
    """As much of a rig as the judges read."""

    world = USUAL

    def __init__(self, *, frozen: tuple[float, float] | None = None, back_s: float = 0, killed_s: float = 0) -> None:
        def at(seconds: float) -> Moment:
            return Moment(NOON_NS + int(seconds * 1e9), NOON_NS + int(seconds * 1e9))

        self.frozen = [(PID, at(frozen[0]), at(frozen[1]))] if frozen else []
        self.came_back = [at(back_s)]
        self.killed = [(PID, at(killed_s))]


def record(*arrivals: Arrival, of: Book | None = None, **rig: Any) -> Record:
    return Record(_Rig(**rig), Evidence(arrivals), of or book())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("asked_s", "after_s", "apart"), [(0.4, 9.05, True), (9.01, 9.05, False), (0.4, 8.9, False), (0.4, 10.5, False)]
)
def test_only_what_a_thawed_worker_had_begun_before_is_set_apart(asked_s: float, after_s: float, apart: bool) -> None:
    lapsed = book(events=[(4.0, "lost", "unknown"), (8.0, "absent", "pending")])
    late = call(after_s=after_s, asked_ns=NOON_NS + int(asked_s * 1e9))
    of = record(late, of=lapsed, frozen=(0.5, 9.0))
    assert bool(judge.calls_after_thaw(of.evidence, lapsed, of.rig)) == apart
    lapsed.claims[CLAIM] = replace(lapsed.claims[CLAIM], pid=PID + 1)
    assert not judge.calls_after_thaw(of.evidence, lapsed, of.rig)


def test_a_move_under_a_claim_that_had_lapsed_is_told(tmp_path: Path) -> None:
    fault = Freeze(1, tmp_path)
    fault.did["frozen at work"] = 1
    evidence_only = book(events=[(4.0, "lost", "unknown"), (9.0, "sent", "sent")], code=LAPSED)
    assert list(fault.judge(record(of=evidence_only))) == []
    moved = book(events=[(4.0, "lost", "unknown")], code=LAPSED)
    moved.tables["events"].append(moved.tables["events"][-1] | {"event": "given_back", "code": None})
    moved.tables["events"][-1]["at"] += timedelta(seconds=5)
    assert "had lapsed" in next(iter(fault.judge(record(of=moved))))


def test_a_fault_that_never_struck_is_told(tmp_path: Path) -> None:
    assert list(PostgresRestart(1, tmp_path).judge(record(call()))) == ["postgres-restart never struck"]


def test_a_recovery_that_took_too_long_is_told(tmp_path: Path) -> None:
    fault = PostgresRestart(1, tmp_path)
    fault.did["restarts"] = 1
    assert list(fault.judge(record(call(after_s=9.0)))) == []
    assert list(fault.judge(record(call(after_s=11.0)))) == ["no call for 11.0 s after Postgres was back"]


def test_a_failpoint_that_did_not_kill_and_a_written_call_that_did_not_arrive_are_told(tmp_path: Path) -> None:
    fault = next(each for each in FAILPOINTS if WRITTEN in each.step.points)(1, tmp_path)
    assert list(fault.judge(record())) == ["call.written never killed", "call.read never killed"]
    (tmp_path / FIRED).write_text(f"{WRITTEN} 1 1 {BATCH.hex}-1\ncall.read 2 2 -\n")
    assert list(fault.judge(record(call()))) == []
    assert "never arrived" in next(iter(fault.judge(record())))


@pytest.mark.parametrize(("unknown", "told"), [(75, False), (76, True)])
def test_more_unknown_messages_than_a_kill_may_leave_are_told(unknown: int, told: bool, tmp_path: Path) -> None:
    fault = KillAtRate(1, tmp_path)
    fault.did["killed"] = 1
    lapsed = book(statuses=dict.fromkeys(range(1, unknown + 1), "delivered"), events=[(4.0, "lost", "unknown")])
    lapsed.lapsed[PID] = list(lapsed.messages)
    assert bool(list(fault.judge(record(of=lapsed, killed_s=1.0)))) == told


@pytest.mark.parametrize(("cycle_s", "told"), [(20.5, False), (20.8, True)])
def test_limits_that_are_wasted_are_told(cycle_s: float, told: bool, tmp_path: Path) -> None:
    fault = FullThrottle(1, tmp_path)
    fault.did.update({"seconds": 120, "seconds with work waiting": 120})
    fault.ended_ns = NOON_NS + int(cycle_s * 6e9)
    fault.world = replace(FullThrottle.world, manager_limits={"acme-bm1": 100})  # type: ignore[misc]
    calls = [call(seq + 100 * cycle, after_s=cycle * cycle_s + seq / 50) for cycle in range(7) for seq in range(100)]
    assert bool(list(fault.judge(record(*calls)))) == told
