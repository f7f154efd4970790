"""The demo's group links: one that waits for its time, one whose first call is not taken, and a reminder."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from carteiro.cli.demo.stage import Stage
from carteiro.cli.demo.verdicts import Verdict, judge_by

DELAY_MS = 1_500
NAME, LINK = "Ana", "https://chat.whatsapp.com/AbCdEf"
DELAYED, RETRIED, REMINDED = "+5511981020001", "+5511981029911", "+5511981020002"
"""The simulator does not take the first call to the second one (docs/simulator.md)."""
RETRY_BASE_S = 1.0
"""As the demo's processes have it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLinkEvidence:
    posted: Mapping[str, Any]
    """The delayed link, as it was accepted."""
    delayed: Mapping[str, Any]
    retried: Mapping[str, Any]
    reminded: Mapping[str, Any]
    """The answer to the reminder."""
    reminder_status: int
    """Of that answer."""
    replay: Mapping[str, Any]
    """The answer to the same reminder once more."""
    calls: Mapping[str, Sequence[Mapping[str, Any]]]
    """What arrived at the simulator, by id, in order."""


def send_group_links(stage: Stage) -> list[Verdict]:
    screen, client = stage.screen, stage.client
    posted = client.post_group_link(_body(DELAYED, delay_ms=DELAY_MS, reference="demo-delayed"))
    retried = client.post_group_link(_body(RETRIED))
    screen.step(f"two group links were accepted; one is due in {DELAY_MS / 1000:g} s: {posted['id']}")
    reminder_status, reminded = client.send_reminder(_body(REMINDED, reference="demo-reminder"))
    screen.step(f"a reminder was answered with its outcome: {reminder_status}, {reminded['status']}")
    for made in (posted, retried, reminded):
        stage.watch(made["id"])
    evidence = GroupLinkEvidence(
        posted=posted,
        delayed=client.read_group_link(posted["id"]),
        retried=client.read_group_link(retried["id"]),
        reminded=reminded,
        reminder_status=reminder_status,
        replay=client.send_reminder(_body(REMINDED, reference="demo-reminder"))[1],
        calls={link["id"]: stage.calls_of(link["id"]) for link in (posted, retried, reminded)},
    )
    screen.say()
    shown = {"delayed link": evidence.delayed, "retried link": evidence.retried, "reminder": evidence.reminded}
    for title, link in shown.items():
        screen.say(f"{title:<14} {link['status']}; calls that did not leave: {link['attempts']}")
    screen.say()
    return judge_group_links(evidence)


def judge_group_links(evidence: GroupLinkEvidence) -> list[Verdict]:
    """Every promise, with what speaks against it. Pure."""
    promises: list[tuple[str, Callable[[GroupLinkEvidence], Iterator[str]]]] = [
        ("the delayed group link left at its time and not before, once", _waited),
        ("the group link whose first call was not taken was tried again by its schedule, and sent", _tried_again),
        ("the reminder was sent in its own request; the same once more is the same one", _reminded),
    ]
    return judge_by(promises, evidence)


def _waited(evidence: GroupLinkEvidence) -> Iterator[str]:
    link, calls = evidence.delayed, evidence.calls[evidence.delayed["id"]]
    if link["status"] != "sent":
        yield f"it is {link['status']}: {link['detail']}"
    if len(calls) != 1:
        yield f"{len(calls)} calls"
        return
    early_s = (datetime.fromisoformat(evidence.posted["available_at"]) - _arrived_at(calls[0])).total_seconds()
    if early_s > 0:
        yield f"it left {early_s:.3f} s early"
    if calls[0]["placeholders"] != [NAME, LINK]:
        yield "it had other words"


def _tried_again(evidence: GroupLinkEvidence) -> Iterator[str]:
    link, calls = evidence.retried, evidence.calls[evidence.retried["id"]]
    if (link["status"], link["attempts"]) != ("sent", 1):
        yield f"it is {link['status']} after {link['attempts']} attempts: {link['detail']}"
    if [call["accepted"] for call in calls] != [False, True]:
        yield f"{len(calls)} calls, {sum(call['accepted'] for call in calls)} taken"
    elif _arrived_at(calls[1]) - _arrived_at(calls[0]) < timedelta(seconds=RETRY_BASE_S):
        yield "it did not wait for its second try"


def _reminded(evidence: GroupLinkEvidence) -> Iterator[str]:
    if (evidence.reminder_status, evidence.reminded["status"]) != (200, "sent"):
        yield f"it was answered {evidence.reminder_status}: {dict(evidence.reminded)}"
    if evidence.replay["id"] != evidence.reminded["id"]:
        yield f"the repeat made {evidence.replay['id']}"
    if (count := len(evidence.calls[evidence.reminded["id"]])) != 1:
        yield f"{count} calls"


def _body(phone: str, **fields: Any) -> dict[str, Any]:
    template = {"name": "group_invitation", "language": "pt_BR"}
    return {"flow": "personal", "phone": phone, "name": NAME, "group_link": LINK, "template": template, **fields}


def _arrived_at(call: Mapping[str, Any]) -> datetime:
    return datetime.fromtimestamp(call["arrived_wall_ns"] / 1e9).astimezone()
