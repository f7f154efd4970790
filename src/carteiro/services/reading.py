"""What clients read: batches with counts and a forecast, messages, capacity. One account never sees another's."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from uuid import UUID

from carteiro.domain.capacity import ManagerMeter, SenderMeter, free_room
from carteiro.domain.errors import Gone, NotFound
from carteiro.domain.lifecycle import BatchState, MessageState
from carteiro.settings import Settings
from carteiro.storage import batches, catalog, messages, retention
from carteiro.storage.batches import Report
from carteiro.storage.catalog import AccountSender
from carteiro.storage.messages import Listed
from carteiro.storage.pool import Pool

RATE_WINDOW_S = 60.0


@dataclass(frozen=True, slots=True)
class BatchView:
    """A batch as its owner sees it."""

    report: Report
    counts: dict[str, int]
    """Per message state; they sum to the total."""
    held: int
    """Credits that were debited and are neither charged nor refunded yet."""
    rate_per_s: float
    """Messages that got the provider's answer, over the last minute or since the start if that is less."""
    eta_at: datetime | None
    """When the last message leaves at that rate; None while nothing leaves."""
    blocked_by: str | None
    next_attempt_at: datetime | None


@dataclass(frozen=True, slots=True)
class ManagerCapacity:
    """One business manager in which the account has senders. None: no limit."""

    business_manager_id: str
    limit: int | None
    used: int
    held: int
    available: int | None
    """What a new batch could hold: the smaller of the manager's rest and its senders', less all holds."""
    frees_at: datetime | None
    """When the oldest part of `used` leaves the window."""


async def read_batch(pool: Pool, account_id: str, batch_id: UUID) -> BatchView:
    """Raises NotFound, for another account's batch as for none."""
    async with pool.connection() as conn:
        found = await batches.read_reports(conn, account_id, first_id=batch_id, last_id=batch_id)
    if not found:
        raise NotFound("There is no such batch in this account.")
    return view(found[0])


async def read_batches(
    pool: Pool, account_id: str, *, status: str | None, before_id: UUID | None, limit: int
) -> list[BatchView]:
    """Newest first, those created before `before_id`."""
    async with pool.connection() as conn:
        last_id = UUID(int=max(1, before_id.int) - 1) if before_id else batches.HIGHEST_ID
        found = await batches.read_reports(conn, account_id, last_id=last_id, status=status, limit=limit)
    return [view(report) for report in found]


async def read_messages(
    pool: Pool, account_id: str, batch_id: UUID, *, after_seq: int, status: str | None, limit: int
) -> list[Listed]:
    """In order of seq, after `after_seq`. Raises NotFound, or Gone where they were dropped for their age."""
    async with pool.connection() as conn:
        if await batches.read_owner(conn, batch_id) != account_id:
            raise NotFound("There is no such batch in this account.")
        if await retention.is_dropped(conn, batch_id):
            raise Gone("The batch's messages were dropped for their age. Its counts and its money are kept.")
        return await messages.read_page(conn, batch_id, after_seq=after_seq, status=status, limit=limit)


async def read_capacity(pool: Pool, account_id: str, settings: Settings) -> list[ManagerCapacity]:
    """The business managers in which the account has an active sender. Without locks: a moment later it may differ."""
    keep_s = settings.window_s + settings.bucket_s
    async with pool.connection() as conn:
        senders = await catalog.read_account_senders(conn, account_id, keep_s=keep_s)
    rooms = []
    for business_manager_id, group in groupby(sorted(senders, key=_manager_of), _manager_of):
        own = list(group)
        first = own[0]
        manager = ManagerMeter(business_manager_id, first.bm_limit, first.bm_used, first.bm_held)
        meters = [SenderMeter(sender.id, business_manager_id, "", sender.limit, sender.used) for sender in own]
        oldest_at = first.bm_oldest_bucket_at
        rooms.append(
            ManagerCapacity(
                business_manager_id=business_manager_id,
                limit=manager.limit,
                used=manager.used,
                held=manager.held,
                available=free_room(manager, meters),
                frees_at=oldest_at + timedelta(seconds=keep_s) if oldest_at else None,
            )
        )
    return rooms


def _manager_of(sender: AccountSender) -> str:
    return sender.business_manager_id


def view(report: Report) -> BatchView:
    """What follows from one report. Pure."""
    counts = {str(state): int(getattr(report, state)) for state in MessageState}
    rate_per_s, eta_at = _forecast(report)
    blocked_by, next_attempt_at = report.blocked_by, report.next_attempt_at
    if report.status == BatchState.PENDING_MODERATION:
        blocked_by = "moderation"
    elif report.status == BatchState.PENDING and report.scheduled_at and report.scheduled_at > report.read_at:
        blocked_by, next_attempt_at = "schedule", report.scheduled_at
    return BatchView(
        report=report,
        counts=counts,
        held=report.debited - report.charged - report.refunded,
        rate_per_s=rate_per_s,
        eta_at=eta_at,
        blocked_by=blocked_by,
        next_attempt_at=next_attempt_at,
    )


def _forecast(report: Report) -> tuple[float, datetime | None]:
    if report.started_at is None or not report.answered:
        return 0.0, None
    ran_s = (report.read_at - report.started_at).total_seconds()
    rate_per_s = report.answered / max(1.0, min(RATE_WINDOW_S, ran_s))
    left = report.pending + report.pending_send
    eta_at = report.read_at + timedelta(seconds=left / rate_per_s) if left and report.blocked_by is None else None
    return rate_per_s, eta_at
