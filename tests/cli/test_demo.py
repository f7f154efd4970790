"""`carteiro demo`, as a process; and that its verdicts would notice a broken promise."""

import base64
import json
import signal
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks import Webhook

from carteiro.cli.demo.broadcast import FAILING, MEMBERS, WORDS, BroadcastEvidence, judge_broadcast
from carteiro.cli.demo.contacts import DemoContact, make_contacts, read_csv, write_csv
from carteiro.cli.demo.evidence import Evidence, judge
from carteiro.cli.demo.group_link import LINK, NAME, GroupLinkEvidence, judge_group_links
from carteiro.cli.demo.screen import describe
from carteiro.cli.demo.verdicts import judge_audit
from tests.support.processes import Processes, running_processes

SECRET = f"whsec_{base64.b64encode(b'x' * 32).decode()}"
SENDERS = 10


@pytest.mark.process
def test_the_demo_keeps_every_promise(tmp_path: Path) -> None:
    with running_processes(tmp_path, {}) as processes:
        demo = processes.start("demo", "--contacts", "100")
        assert demo.wait(180) == 0, demo.log_tail()
        told = demo.log()
    assert "100 of 100 sent; settled" in told
    assert "broadcast      completed: 20 total, 19 sent, 19 delivered" in told
    assert "retried link   sent; calls that did not leave: 1" in told
    assert "Every promise was kept" in told
    assert "FAILED" not in told


@pytest.mark.process
async def test_an_interrupted_demo_leaves_no_process_behind(tmp_path: Path) -> None:
    with running_processes(tmp_path, {}) as processes:
        demo = await _sending_demo(processes)
        started = _children(demo.pid)
        assert len(started) == 5  # Postgres, API, simulator, two workers
        demo.signal(signal.SIGTERM)
        assert demo.wait(60) == 130, demo.log_tail()
        assert [pid for pid in started if Path(f"/proc/{pid}").exists()] == []


async def _sending_demo(processes: Processes) -> Any:
    demo = processes.start("demo")
    await demo.ready(lambda: "of 1,000 sent" in demo.log(), timeout_s=60)
    return demo


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_the_contacts_are_always_the_same_and_differ_from_each_other() -> None:
    contacts = make_contacts(1_000)
    assert contacts == make_contacts(1_000)
    assert contacts[:100] == make_contacts(100)
    assert len({contact.address for contact in contacts}) == 1_000
    assert sum(contact.fails for contact in contacts) == 12
    assert all(contact.fails or contact.address[-4:-2] != "99" for contact in contacts)


def test_the_contacts_survive_the_csv_file(tmp_path: Path) -> None:
    contacts = make_contacts(100)
    write_csv(tmp_path / "contacts.csv", contacts)
    assert read_csv(tmp_path / "contacts.csv") == contacts


def test_a_batch_under_way_is_described_on_one_line() -> None:
    now = datetime(2026, 11, 2, 12, 0, tzinfo=UTC)
    batch = {
        "total": 1_200,
        "counts": {"pending": 1_000, "pending_send": 20, "sent": 80, "delivered": 99, "seen": 0, "failed": 1},
        "settled_at": None,
        "blocked_by": None,
        "rate_per_s": 180.4,
        "eta_at": "2026-11-02T12:00:06Z",
    }
    assert describe(batch, now) == (
        "180 of 1,200 sent; 180/s, ETA 6 s; 1,000 pending, 20 pending_send, 80 sent, 99 delivered, 1 failed"
    )
    assert describe({**batch, "blocked_by": "capacity"}, now).startswith("180 of 1,200 sent; waits for capacity; ")


def truth(count: int = 100) -> Evidence:
    """Evidence of a demo in which all went well."""
    contacts = make_contacts(count)
    failing = sum(contact.fails for contact in contacts)
    money = {"debited": count, "charged": count - failing, "refunded": failing, "held": 0}
    counts = {"pending": 0, "delivered": count - failing, "seen": 0, "failed": failing}
    batch = {
        "id": "b1",
        "status": "completed",
        "settled_at": "2026-11-02T12:00:06Z",
        "total": count,
        "counts": counts,
        "money": money,
    }
    told = {name: amount for name, amount in money.items() if name != "held"}
    return Evidence(
        contacts=contacts,
        senders=SENDERS,
        credits_before=1_500,
        credits_after=1_500 - count + failing,
        batch=batch,
        calls=[call(contact, place) for place, contact in enumerate(contacts)],
        callbacks=[callback({"batch_id": "b1", "status": "completed", "total": count, "money": told})],
        callback_secret=SECRET,
        replay=batch,
        replay_marked=True,
        credits_after_replay=1_500 - count + failing,
    )


def call(contact: DemoContact, place: int) -> dict[str, Any]:
    sender = f"551140001{place % SENDERS:04d}"
    return {"sender": sender, "to": contact.address, "placeholders": list(contact.placeholders), "accepted": True}


def callback(data: dict[str, Any], secret: str = SECRET) -> dict[str, Any]:
    body, at = json.dumps({"type": "batch.completed", "data": data}), datetime.now(UTC)
    headers = [
        ["Webhook-Id", "c1"],
        ["Webhook-Timestamp", str(int(at.timestamp()))],
        ["Webhook-Signature", Webhook(secret).sign("c1", at, body)],
    ]
    return {"headers": headers, "body": body}


def test_the_truth_has_no_problems() -> None:
    assert [verdict.problems for verdict in judge(truth())] == [()] * 7


def _batch(evidence: Evidence, **changes: Any) -> Evidence:
    return replace(evidence, batch={**evidence.batch, **changes})


def _calls(evidence: Evidence, *changed: dict[str, Any]) -> Evidence:
    """The first calls are replaced."""
    return replace(evidence, calls=[*changed, *evidence.calls[len(changed) :]])


LIES: dict[str, tuple[Callable[[Evidence], Evidence], str]] = {
    "a message never sent": (lambda e: replace(e, calls=e.calls[1:]), "sent: the provider"),
    "a call too many": (
        lambda e: replace(e, calls=[*e.calls, {**e.calls[0], "accepted": False}]),
        "sent: the provider",
    ),
    "a sender with one more": (lambda e: _calls(e, {**e.calls[0], "sender": e.calls[1]["sender"]}), "exactly 10"),
    "a phone twice": (lambda e: _calls(e, {**e.calls[0], "to": e.calls[1]["to"]}), "no phone twice"),
    "a phone that was not asked for": (lambda e: _calls(e, {**e.calls[0], "to": "5511900000000"}), "no phone twice"),
    "another's words": (lambda e: _calls(e, {**e.calls[0], "placeholders": ["Eva", "1"]}), "own name and order"),
    "a batch that goes on": (lambda e: _batch(e, status="processing", settled_at=None), "completed and settled"),
    "counts that do not sum": (lambda e: _batch(e, counts={**e.batch["counts"], "seen": 1}), "counts sum"),
    "a debit too high": (lambda e: _batch(e, money={**e.batch["money"], "debited": 101}), "debited = charged"),
    "a refund that never came": (lambda e: replace(e, credits_after=1_400), "debited = charged"),
    "no callback": (lambda e: replace(e, callbacks=[]), "one callback"),
    "two callbacks": (lambda e: replace(e, callbacks=[*e.callbacks, *e.callbacks]), "one callback"),
    "another's signature": (
        lambda e: replace(e, callback_secret=f"whsec_{base64.b64encode(b'y' * 32).decode()}"),
        "one callback",
    ),
    "a callback of another batch": (
        lambda e: replace(
            e, callbacks=[callback({"batch_id": "b2", "status": "completed", "total": 100, "money": {}})]
        ),
        "one callback",
    ),
    "a second batch": (lambda e: replace(e, replay={**e.replay, "id": "b2"}), "the same POST"),
    "an unmarked replay": (lambda e: replace(e, replay_marked=False), "the same POST"),
    "a second debit": (lambda e: replace(e, credits_after_replay=0), "the same POST"),
}


@pytest.mark.parametrize("name", LIES)
def test_a_broken_promise_is_noticed(name: str) -> None:
    lie, promise = LIES[name]
    broken = [verdict.promise for verdict in judge(lie(truth())) if verdict.problems]
    assert any(promise in found for found in broken)


def test_the_audit_must_be_there_and_empty() -> None:
    assert judge_audit({"violation_counts": []}).problems == ()
    assert judge_audit({"violation_counts": [{"batch_id": "b1"}]}).problems
    assert judge_audit({}).problems


def broadcast_truth() -> BroadcastEvidence:
    posted = {"broadcast_id": "b2", "public_id": "p", "status": "queued", "total_recipients": len(MEMBERS)}
    arrived = len(MEMBERS) - 1
    return BroadcastEvidence(
        posted=posted,
        seen={
            "status": "completed",
            **{
                "total": len(MEMBERS),
                "pending": 0,
                "sent": arrived,
                "delivered": arrived,
                "read": arrived,
                "failed": 1,
            },
        },
        recipients=[
            {"phone": phone, "status": "failed", "error": {"code": "EC_1"}}
            if phone == FAILING
            else {"phone": phone, "status": "read", "error": None}
            for phone in MEMBERS
        ],
        calls=[{"to": phone.removeprefix("+"), "placeholders": [WORDS]} for phone in MEMBERS],
        replay=posted,
        replay_marked=True,
        allowed_elsewhere=False,
    )


def _seen(evidence: BroadcastEvidence, **changes: Any) -> BroadcastEvidence:
    return replace(evidence, seen={**evidence.seen, **changes})


BROADCAST_LIES: dict[str, tuple[Callable[[BroadcastEvidence], BroadcastEvidence], str]] = {
    "a member forgotten": (lambda e: replace(e, calls=e.calls[1:]), "reached its 20"),
    "a member twice": (lambda e: replace(e, calls=[*e.calls, e.calls[0]]), "reached its 20"),
    "a stranger": (lambda e: replace(e, calls=[*e.calls, {**e.calls[0], "to": "5511981000090"}]), "reached its 20"),
    "other words": (lambda e: replace(e, calls=[{**e.calls[0], "placeholders": []}, *e.calls[1:]]), "reached its 20"),
    "one that goes on": (lambda e: _seen(e, status="sending"), "completed"),
    "counts that do not sum": (lambda e: _seen(e, failed=2), "completed"),
    "recipients that say otherwise": (lambda e: replace(e, recipients=e.recipients[1:]), "completed"),
    "a second broadcast": (lambda e: replace(e, replay={**e.replay, "public_id": "q"}), "once more"),
    "an unmarked replay": (lambda e: replace(e, replay_marked=False), "once more"),
    "another team's group": (lambda e: replace(e, allowed_elsewhere=True), "another team"),
}


def test_broken_promises_of_a_broadcast_are_noticed() -> None:
    assert [verdict.problems for verdict in judge_broadcast(broadcast_truth())] == [()] * 3
    for name, (lie, promise) in BROADCAST_LIES.items():
        broken = [verdict.promise for verdict in judge_broadcast(lie(broadcast_truth())) if verdict.problems]
        assert any(promise in found for found in broken), name


def link_truth() -> GroupLinkEvidence:
    due_at = datetime(2026, 11, 2, 12, 0, tzinfo=UTC)

    def call(after_s: float, *, accepted: bool = True) -> dict[str, Any]:
        arrived_wall_ns = int((due_at.timestamp() + after_s) * 1e9)
        return {"placeholders": [NAME, LINK], "accepted": accepted, "arrived_wall_ns": arrived_wall_ns}

    sent = {"status": "sent", "attempts": 0, "detail": None}
    return GroupLinkEvidence(
        posted={"id": "d", "available_at": "2026-11-02T12:00:00Z"},
        delayed={"id": "d", **sent},
        retried={"id": "r", **sent, "attempts": 1},
        reminded={"id": "m", **sent},
        reminder_status=200,
        replay={"id": "m", **sent},
        calls={"d": [call(0.1)], "r": [call(0.0, accepted=False), call(1.1)], "m": [call(0.0)]},
    )


def _called(evidence: GroupLinkEvidence, id: str, *calls: dict[str, Any]) -> GroupLinkEvidence:
    return replace(evidence, calls={**evidence.calls, id: calls})


LINK_LIES: dict[str, tuple[Callable[[GroupLinkEvidence], GroupLinkEvidence], str]] = {
    "one that left early": (
        lambda e: replace(e, posted={"id": "d", "available_at": "2026-11-02T12:00:01Z"}),
        "at its time",
    ),
    "one that left twice": (lambda e: _called(e, "d", *e.calls["d"], *e.calls["d"]), "at its time"),
    "other words": (lambda e: _called(e, "d", {**e.calls["d"][0], "placeholders": []}), "at its time"),
    "one that failed": (lambda e: replace(e, delayed={**e.delayed, "status": "failed"}), "at its time"),
    "no second try": (lambda e: _called(e, "r", e.calls["r"][0]), "tried again"),
    "a hasty second try": (
        lambda e: _called(e, "r", e.calls["r"][0], {**e.calls["r"][0], "accepted": True}),
        "tried again",
    ),
    "attempts that are not counted": (lambda e: replace(e, retried={**e.retried, "attempts": 0}), "tried again"),
    "a reminder without an outcome": (lambda e: replace(e, reminder_status=202), "the reminder"),
    "a second reminder": (lambda e: replace(e, replay={"id": "n"}), "the reminder"),
    "a reminder that was sent twice": (lambda e: _called(e, "m", *e.calls["m"], *e.calls["m"]), "the reminder"),
}


def test_broken_promises_of_group_links_are_noticed() -> None:
    assert [verdict.problems for verdict in judge_group_links(link_truth())] == [()] * 3
    for name, (lie, promise) in LINK_LIES.items():
        broken = [verdict.promise for verdict in judge_group_links(lie(link_truth())) if verdict.problems]
        assert any(promise in found for found in broken), name
