"""The JSON of broadcasts."""

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from carteiro.api.schemas import Template
from carteiro.domain.broadcasts import STATUS_OF_MESSAGE, BroadcastStatus
from carteiro.services.broadcast import BroadcastView, Posted
from carteiro.services.codes import describe_code


class PostedBroadcast(msgspec.Struct):
    broadcast_id: UUID
    """Also the id of its batch: what can be done to a batch can be done to it."""
    public_id: str
    """Short, cannot be guessed; reads the broadcast as `broadcast_id` does."""
    status: str
    """queued: as it was when it was accepted."""
    total_recipients: int

    @classmethod
    def of(cls, posted: Posted) -> "PostedBroadcast":
        return cls(posted.batch_id, posted.public_id, BroadcastStatus.QUEUED, posted.total)


class Broadcast(msgspec.Struct):
    """Each step counts those beyond it as well: `sent` includes `delivered`, and that includes `read`. A receipt that
    comes twice or late changes nothing twice. pending + sent + failed = total.
    """

    broadcast_id: UUID
    public_id: str
    status: str
    """queued, sending, completed (the outcome of every recipient is known), failed (as a whole, before anything was
    sent: `error_code` says why) or canceled.
    """
    group_id: str
    template: Template
    total: int
    pending: int
    """Not sent yet, or not known yet whether it was."""
    sent: int
    """Taken by the provider, whatever came after, except for those that failed."""
    delivered: int
    read: int
    failed: int
    """Refused, failed after they were sent, or never to be sent."""
    left_out: dict[str, int]
    """Active members of the group who are no recipients, by the reason: duplicate, or what is wrong with the phone."""
    blocked_by: str | None
    """Why nothing leaves at present."""
    next_attempt_at: datetime | None
    error_code: str | None
    reason: str | None
    """Why it was moved to its state, in words, where somebody said so."""
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None

    @classmethod
    def of(cls, seen: BroadcastView) -> "Broadcast":
        report, progress = seen.batch.report, seen.progress
        return cls(
            broadcast_id=report.id,
            public_id=seen.public_id,
            status=seen.status,
            group_id=seen.group_id,
            template=Template(report.template_name, report.template_language),
            total=report.total,
            pending=progress.pending,
            sent=progress.sent,
            delivered=progress.delivered,
            read=progress.read,
            failed=progress.failed,
            left_out=report.skipped["counts"] if report.skipped else {},
            blocked_by=seen.batch.blocked_by,
            next_attempt_at=seen.batch.next_attempt_at,
            error_code=report.error_code,
            reason=report.reason,
            created_at=report.created_at,
            started_at=report.started_at,
            ended_at=report.ended_at,
        )


class RecipientError(msgspec.Struct):
    code: str
    """The provider's code, or ours."""
    detail: str | None
    """What it means, where that is known."""


class Recipient(msgspec.Struct):
    seq: int
    """Place among the broadcast's recipients, from 1."""
    phone: str | None
    """E.164, as sent. null: the contact was erased."""
    status: str
    """pending, sent, delivered, read or failed: how far it is now."""
    attempts: int
    """Calls to the provider that were made for it, without those that the provider put off."""
    error: RecipientError | None
    """Why it failed."""
    sent_at: datetime | None
    delivered_at: datetime | None
    read_at: datetime | None
    failed_at: datetime | None

    @classmethod
    def of(cls, listed: Any) -> "Recipient":
        return cls(
            seq=listed.seq,
            phone=f"+{listed.address}" if listed.address else None,
            status=STATUS_OF_MESSAGE[listed.status],
            attempts=listed.attempts,
            error=RecipientError(listed.code, describe_code(listed.code)) if listed.code else None,
            sent_at=listed.sent_at,
            delivered_at=listed.delivered_at,
            read_at=listed.read_at,
            failed_at=listed.failed_at,
        )
