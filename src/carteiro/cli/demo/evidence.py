"""What the demo's batch is judged by: everything that its client and the provider saw, and what has to be true."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from standardwebhooks import Webhook, WebhookVerificationError

from carteiro.cli.demo.contacts import DemoContact
from carteiro.cli.demo.verdicts import Verdict, judge_by, some
from carteiro.domain.lifecycle import BatchState


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    contacts: Sequence[DemoContact]
    senders: int
    credits_before: int
    credits_after: int
    batch: Mapping[str, Any]
    """As the API shows it in the end."""
    calls: Sequence[Mapping[str, Any]]
    """What arrived at the simulator of it, one a message."""
    callbacks: Sequence[Mapping[str, Any]]
    """What was posted to the callback address: headers and body."""
    callback_secret: str = field(repr=False)
    replay: Mapping[str, Any]
    """The answer to the same POST once more."""
    replay_marked: bool
    credits_after_replay: int

    def per_sender(self) -> Counter[str]:
        return Counter(call["sender"] for call in self.calls if call["accepted"])


def judge(evidence: Evidence) -> list[Verdict]:
    """Every promise, with what speaks against it. Pure."""
    total = len(evidence.contacts)
    promises: list[tuple[str, Callable[[Evidence], Iterator[str]]]] = [
        (f"{total:,} messages sent: the provider was called once for each and took it", _sent),
        (f"exactly {total // evidence.senders} from each of the {evidence.senders} senders", _senders),
        ("no phone twice, none forgotten, and each message with its own name and order", _phones),
        ("the batch is completed and settled, and its counts sum to its total", _completed),
        ("debited = charged + refunded, and the balance says the same", _money),
        ("one callback, and its signature is right", _callback),
        ("the same POST once more: the same batch, and no second debit", _replay),
    ]
    return judge_by(promises, evidence)


def _sent(evidence: Evidence) -> Iterator[str]:
    accepted = sum(1 for call in evidence.calls if call["accepted"])
    if not accepted == len(evidence.calls) == len(evidence.contacts):
        yield f"{len(evidence.calls)} calls, {accepted} accepted"


def _senders(evidence: Evidence) -> Iterator[str]:
    fair = len(evidence.contacts) // evidence.senders
    sent = evidence.per_sender()
    if len(sent) != evidence.senders or set(sent.values()) != {fair}:
        yield ", ".join(f"{sender}: {count}" for sender, count in sorted(sent.items()))


def _phones(evidence: Evidence) -> Iterator[str]:
    wanted = {contact.address: contact for contact in evidence.contacts}
    got = Counter(call["to"] for call in evidence.calls if call["accepted"])
    yield from some("more than once", [phone for phone, count in got.items() if count > 1])
    yield from some("never", sorted(wanted.keys() - got.keys()))
    yield from some("uninvited", sorted(got.keys() - wanted.keys()))
    yield from some(
        "with words of others",
        [
            call["to"]
            for call in evidence.calls
            if call["to"] in wanted and tuple(call["placeholders"]) != wanted[call["to"]].placeholders
        ],
    )


def _completed(evidence: Evidence) -> Iterator[str]:
    batch = evidence.batch
    counts, total = batch["counts"], len(evidence.contacts)
    failing = sum(contact.fails for contact in evidence.contacts)
    if batch["status"] != BatchState.COMPLETED or batch["settled_at"] is None:
        yield f"it is {batch['status']}, settled at {batch['settled_at']}"
    if not sum(counts.values()) == batch["total"] == total:
        yield f"counts {counts} for a total of {batch['total']}"
    if counts["failed"] != failing or counts["delivered"] + counts["seen"] != total - failing:
        yield f"counts {counts}, where {failing} had to fail and all others to be delivered"


def _money(evidence: Evidence) -> Iterator[str]:
    money, total = evidence.batch["money"], len(evidence.contacts)
    failing = sum(contact.fails for contact in evidence.contacts)
    wanted = {"debited": total, "charged": total - failing, "refunded": failing, "held": 0}
    if money != wanted:
        yield f"{money}, expected {wanted}"
    if evidence.credits_after != evidence.credits_before - wanted["charged"]:
        yield f"the balance went from {evidence.credits_before} to {evidence.credits_after}"


def _callback(evidence: Evidence) -> Iterator[str]:
    if len(evidence.callbacks) != 1:
        yield f"{len(evidence.callbacks)} came"
        return
    received = evidence.callbacks[0]
    headers = {name.lower(): value for name, value in received["headers"]}
    try:
        body = Webhook(evidence.callback_secret).verify(received["body"], headers)
    except WebhookVerificationError as error:
        yield f"its signature is wrong: {error}"
        return
    said, batch = body["data"], evidence.batch
    if (said["batch_id"], said["status"], said["total"]) != (batch["id"], batch["status"], batch["total"]):
        yield f"it speaks of {said}"
    if {name: batch["money"][name] for name in said["money"]} != said["money"]:
        yield f"it says {said['money']}, the API {batch['money']}"


def _replay(evidence: Evidence) -> Iterator[str]:
    if evidence.replay["id"] != evidence.batch["id"]:
        yield f"it made batch {evidence.replay['id']}"
    if not evidence.replay_marked:
        yield "the answer is not marked as a replay"
    if evidence.credits_after_replay != evidence.credits_after:
        yield f"the balance went from {evidence.credits_after} to {evidence.credits_after_replay}"
