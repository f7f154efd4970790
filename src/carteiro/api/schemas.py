"""The JSON that the API answers with."""

from datetime import datetime
from typing import Annotated, Any, Generic, TypeVar
from uuid import UUID

import msgspec

from carteiro.domain.follow_ups import FollowUp
from carteiro.domain.outcomes import message_key
from carteiro.domain.requests import Instant
from carteiro.domain.suppression import Scope
from carteiro.services.accounts import Credits
from carteiro.services.control import Halted
from carteiro.services.reading import BatchView, ManagerCapacity
from carteiro.services.suppression import Checked

Item = TypeVar("Item")


class Template(msgspec.Struct):
    name: str
    language: str


class Money(msgspec.Struct):
    """Credits. debited = charged + refunded + held."""

    debited: int
    charged: int
    refunded: int
    held: int


class Counts(msgspec.Struct):
    """Messages by state; they sum to the batch's total."""

    pending: int
    pending_send: int
    unknown: int
    sent: int
    delivered: int
    seen: int
    failed: int
    unsent: int


class Batch(msgspec.Struct):
    id: UUID
    status: str
    service: str
    template: Template
    reference: str | None
    total: int
    counts: Counts
    suppressed: int
    """Of the unsent messages, those whose contact is on the suppression list: when it was created, or since."""
    skipped: dict[str, Any] | None
    """What `on_invalid: skip` left out at creation."""
    blocked_by: str | None
    """Why nothing leaves at present."""
    next_attempt_at: datetime | None
    error_code: str | None
    reason: str | None
    rate_per_s: float
    """Messages that got the provider's answer, a second, over the last minute."""
    eta_at: datetime | None
    money: Money
    on_capacity: str
    max_attempts: int | None
    follow_up: FollowUp | None
    """What is sent once to a contact who answers; `GET .../messages` tells of each."""
    callback_url: str | None
    created_at: datetime
    scheduled_at: datetime | None
    expires_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    settled_at: datetime | None
    """When the outcome of all its messages was known, and its money was."""
    parent_batch_id: UUID | None
    """The batch whose failed messages this one sends again."""
    retried_as: UUID | None
    """The batch that sends the failed messages of this one again."""

    @classmethod
    def of(cls, seen: BatchView) -> "Batch":
        report = seen.report
        return cls(
            id=report.id,
            status=report.status,
            service=report.service_id,
            template=Template(report.template_name, report.template_language),
            reference=report.reference,
            total=report.total,
            counts=Counts(**seen.counts),
            suppressed=report.suppressed,
            skipped=report.skipped,
            blocked_by=seen.blocked_by,
            next_attempt_at=seen.next_attempt_at,
            error_code=report.error_code,
            reason=report.reason,
            rate_per_s=round(seen.rate_per_s, 1),
            eta_at=seen.eta_at,
            money=Money(report.debited, report.charged, report.refunded, seen.held),
            on_capacity=report.on_capacity,
            max_attempts=report.max_attempts,
            follow_up=msgspec.convert(report.follow_up, FollowUp | None),
            callback_url=report.callback_url,
            created_at=report.created_at,
            scheduled_at=report.scheduled_at,
            expires_at=report.expires_at,
            started_at=report.started_at,
            ended_at=report.ended_at,
            settled_at=report.settled_at,
            parent_batch_id=report.parent_batch_id,
            retried_as=report.retried_as,
        )


class HaltedBatch(Batch):
    """A batch of which no call starts any more."""

    already_on_their_way: int
    """Messages whose call had started before that, and whose outcome was not known yet: `pending_send` + `unknown`."""

    @classmethod
    def of_halted(cls, halted: Halted) -> "HaltedBatch":
        batch = msgspec.structs.asdict(Batch.of(halted.seen))
        return cls(**batch, already_on_their_way=halted.already_on_their_way)


ReasonText = Annotated[
    str, msgspec.Meta(min_length=1, max_length=500, pattern="^[^\\u0000]*$", description="For people, in the history.")
]
"""Postgres has no NUL character."""


class Reason(msgspec.Struct, forbid_unknown_fields=True):
    reason: ReasonText | None = None


class Rejection(msgspec.Struct, forbid_unknown_fields=True):
    reason: ReasonText


class Schedule(msgspec.Struct, forbid_unknown_fields=True):
    scheduled_at: Instant | None
    """With its offset. null, or a time that has passed: at once."""


class FollowUpState(msgspec.Struct):
    """What became of what follows a contact's answer. It is no message of its own: no count and no credit is for it."""

    status: str
    """As of a message. `pending`: the contact has answered, and it is about to be sent."""
    at: datetime
    """When it came to be so; by the provider's clock where that told it."""
    code: str | None
    """Why it failed, waits or was not sent."""


class Message(msgspec.Struct):
    seq: int
    """Place among the batch's messages, from 1."""
    message_id: str
    """Our id at the provider."""
    phone: str | None
    """E.164, as sent. null: the contact was erased."""
    status: str
    code: str | None
    """The provider's or our code of the last refusal."""
    attempt: int
    sender: str | None
    business_manager: str | None
    provider_id: str | None
    sent_at: datetime | None
    delivered_at: datetime | None
    seen_at: datetime | None
    failed_at: datetime | None
    follow_up: FollowUpState | None
    """null: the contact has not answered, or nothing was to follow."""

    @classmethod
    def of(cls, batch_id: UUID, listed: Any) -> "Message":
        return cls(
            seq=listed.seq,
            message_id=message_key(batch_id, listed.seq),
            phone=f"+{listed.address}" if listed.address else None,
            status=listed.status,
            code=listed.code,
            attempt=listed.attempt,
            sender=listed.sender_id,
            business_manager=listed.business_manager_id,
            provider_id=listed.provider_id,
            sent_at=listed.sent_at,
            delivered_at=listed.delivered_at,
            seen_at=listed.seen_at,
            failed_at=listed.failed_at,
            follow_up=FollowUpState(listed.follow_up_status, listed.follow_up_at, listed.follow_up_code)
            if listed.follow_up_status
            else None,
        )


class ManagerRoom(msgspec.Struct):
    """Daily capacity of one business manager, in messages. null: no limit."""

    business_manager: str
    limit: int | None
    used: int
    held: int
    """Reserved by batches and not used yet."""
    available: int | None
    """What a new batch could reserve here with this account's senders."""
    frees_at: datetime | None
    """When the oldest part of `used` leaves the window."""

    @classmethod
    def of(cls, room: ManagerCapacity) -> "ManagerRoom":
        return cls(
            business_manager=room.business_manager_id,
            limit=room.limit,
            used=room.used,
            held=room.held,
            available=room.available,
            frees_at=room.frees_at,
        )


class Capacity(msgspec.Struct):
    available: int | None
    """The sum over the business managers; null: one has no limit. A template may be usable in some of them only."""
    business_managers: list[ManagerRoom]


class Balance(msgspec.Struct):
    account: str
    billing_account: str
    balance: int

    @classmethod
    def of(cls, credits: Credits) -> "Balance":
        return cls(credits.account_id, credits.billing_account_id, credits.balance)


class LedgerEntry(msgspec.Struct):
    id: int
    at: datetime
    kind: str
    """grant, debit or refund."""
    amount: int
    """Credits; negative: taken from the account."""
    balance_after: int
    cause: str
    batch_id: UUID | None


PHONES_MAX = 10_000
PhoneList = Annotated[
    list[str], msgspec.Meta(min_length=1, max_length=PHONES_MAX, description="In any usual spelling; +5511987654321.")
]


class Suppressing(msgspec.Struct, forbid_unknown_fields=True):
    phones: PhoneList
    scope: Scope = Scope.ALL
    """`marketing`: only templates of category MARKETING are held back."""
    reason: ReasonText | None = None


class Lifting(msgspec.Struct, forbid_unknown_fields=True):
    phones: PhoneList
    scope: Scope | None = None
    """null: both."""


class SuppressionChange(msgspec.Struct):
    contacts: int
    """Different contacts that were put on the list, or taken off it. Two spellings of a phone are one contact."""


class Suppression(msgspec.Struct):
    """One word in force on one contact."""

    phone_ends_with: str
    """The last four digits. Nobody reads whole phones from the list; `check` tells of one."""
    scope: str
    source: str
    """api, preference (the contact's setting in WhatsApp), blocklist (the provider's), inbound (a stop word), or
    cool-down.
    """
    reason: str | None
    """What was given with it, or the provider's code."""
    until: datetime | None
    """null: until it is taken off."""
    times: int
    """Cool-downs in a row; each is twice as long as the one before."""
    created_at: datetime
    changed_at: datetime

    @classmethod
    def of(cls, entry: Any) -> "Suppression":
        return cls(
            phone_ends_with=f"{entry.phone_key % 10_000:04}",
            scope=entry.scope,
            source=entry.source,
            reason=entry.reason,
            until=entry.until,
            times=entry.times,
            created_at=entry.created_at,
            changed_at=entry.changed_at,
        )


class SuppressionCheck(msgspec.Struct):
    phone: str
    """E.164, as it would be sent to."""
    suppressed: bool
    """For everything."""
    suppressed_for_marketing: bool
    """For templates of category MARKETING."""
    items: list[Suppression]

    @classmethod
    def of(cls, checked: Checked) -> "SuppressionCheck":
        everything = checked.stops(Scope.ALL)
        return cls(
            phone=checked.phone.e164,
            suppressed=everything,
            suppressed_for_marketing=everything or checked.stops(Scope.MARKETING),
            items=[Suppression.of(entry) for entry in checked.entries],
        )


class Page(msgspec.Struct, Generic[Item]):
    items: list[Item]
    next_cursor: str | None
    """Give it as `cursor` for the next page; null: this was the last."""


class Alive(msgspec.Struct):
    status: str = "ok"


class ErrorItem(msgspec.Struct, omit_defaults=True):
    """One thing wrong: at a place in the body (`pointer`, RFC 6901) or in a parameter."""

    code: str
    detail: str
    pointer: str | None = None
    line: int | None = None
    """Of a body that is read line by line, from 1; `pointer` is within it."""
    parameter: str | None = None


class ProblemBody(msgspec.Struct, rename={"kind": "type"}):
    """RFC 9457. Further members belong to their `code`, such as `available` to `capacity-exhausted`."""

    kind: str
    title: str
    status: int
    detail: str
    code: str
    request_id: str
    errors: list[ErrorItem] | msgspec.UnsetType = msgspec.UNSET
