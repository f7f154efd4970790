"""The demo's broadcast: a template to a group of the demo's directory (directory.sql)."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from carteiro.cli.demo.stage import Stage
from carteiro.cli.demo.verdicts import Verdict, judge_by, some

MEMBERS = (*(f"+55119810{number:05}" for number in range(1, 20)), "+5511981009951")
"""Whom it must reach, each once: the group has three of them twice, one who left, and two without a usable phone."""
FAILING = MEMBERS[-1]
"""Reported as "not on WhatsApp" after it was taken."""
WORDS = "sábado, 9 h"
BODY = {"group_id": "customers", "template_name": "group_notice", "variables": {"1": WORDS}}
FOREIGN_GROUP = "suppliers"
COUNTS = ("total", "sent", "delivered", "read", "failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class BroadcastEvidence:
    posted: Mapping[str, Any]
    """The answer to the POST."""
    seen: Mapping[str, Any]
    """The broadcast as the API shows it in the end."""
    recipients: Sequence[Mapping[str, Any]]
    calls: Sequence[Mapping[str, Any]]
    """What arrived at the simulator of it, one a message."""
    replay: Mapping[str, Any]
    replay_marked: bool
    allowed_elsewhere: bool
    """A group of another team was addressed as well."""


def send_broadcast(stage: Stage) -> list[Verdict]:
    screen, client = stage.screen, stage.client
    posted, _ = client.post_broadcast(BODY, idempotency_key="demo-broadcast")
    id = posted["broadcast_id"]
    screen.step(f"a broadcast to the group {BODY['group_id']} was accepted: {posted['public_id']}")
    stage.watch(id)
    replay, replay_marked = client.post_broadcast(BODY, idempotency_key="demo-broadcast")
    evidence = BroadcastEvidence(
        posted=posted,
        seen=client.read_broadcast(posted["public_id"]),
        recipients=client.read_recipients(id),
        calls=stage.calls_of(id),
        replay=replay,
        replay_marked=replay_marked,
        allowed_elsewhere=client.may_broadcast({**BODY, "group_id": FOREIGN_GROUP}),
    )
    counted = ", ".join(f"{evidence.seen[name]} {name}" for name in COUNTS)
    left_out = ", ".join(f"{count} {why}" for why, count in evidence.seen["left_out"].items())
    screen.say()
    screen.say(f"broadcast      {evidence.seen['status']}: {counted}; left out of the group: {left_out}")
    screen.say()
    return judge_broadcast(evidence)


def judge_broadcast(evidence: BroadcastEvidence) -> list[Verdict]:
    """Every promise, with what speaks against it. Pure."""
    promises: list[tuple[str, Callable[[BroadcastEvidence], Iterator[str]]]] = [
        (f"the broadcast reached its {len(MEMBERS)} recipients: the provider was called once for each", _reached),
        ("the broadcast is completed; sent + failed = total, and its recipients say the same", _completed),
        ("the same broadcast once more is the same; a group of another team is refused", _refused),
    ]
    return judge_by(promises, evidence)


def _reached(evidence: BroadcastEvidence) -> Iterator[str]:
    got = Counter(f"+{call['to']}" for call in evidence.calls)
    yield from some("more than once", [phone for phone, count in got.items() if count > 1])
    yield from some("never", sorted(set(MEMBERS) - got.keys()))
    yield from some("uninvited", sorted(got.keys() - set(MEMBERS)))
    yield from some("with other words", [call["to"] for call in evidence.calls if call["placeholders"] != [WORDS]])


def _completed(evidence: BroadcastEvidence) -> Iterator[str]:
    seen, total = evidence.seen, len(MEMBERS)
    if seen["status"] != "completed":
        yield f"it is {seen['status']}"
    if not seen["total"] == evidence.posted["total_recipients"] == len(evidence.recipients) == total:
        yield f"{seen['total']} in total, {len(evidence.recipients)} listed, {total} expected"
    if (seen["pending"], seen["sent"], seen["delivered"], seen["failed"]) != (0, total - 1, total - 1, 1):
        counts = {name: seen[name] for name in COUNTS}
        yield f"counts {counts}, where one had to fail and all others to be delivered"
    words = Counter(recipient["status"] for recipient in evidence.recipients)
    if words != Counter({"delivered": seen["delivered"] - seen["read"], "read": seen["read"], "failed": 1}):
        yield f"the recipients are {dict(words)}"
    failed = [recipient["phone"] for recipient in evidence.recipients if recipient["error"]]
    if failed != [FAILING]:
        yield f"{failed} failed, not {FAILING}"


def _refused(evidence: BroadcastEvidence) -> Iterator[str]:
    if evidence.replay != evidence.posted:
        yield f"it was answered {dict(evidence.replay)}"
    if not evidence.replay_marked:
        yield "the answer is not marked as a replay"
    if evidence.allowed_elsewhere:
        yield f"{FOREIGN_GROUP} was addressed"
