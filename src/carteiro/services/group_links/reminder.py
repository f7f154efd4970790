"""Reminders: claimed, sent and recorded by the process that took the request, by the path of every other message.

The row is there before the call, under the same locks, limits, pace and capacity. No worker pumps it. Whatever instant
the process is killed at:

- before the batch was created: there is nothing;
- before the claim: nobody sends it, and it expires at its deadline (`unsent`);
- after the claim: its lease lapses, and the provider's log or a receipt says whether it left (`unknown` until then).
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from math import ceil
from uuid import UUID

import structlog

from carteiro.domain.errors import Conflict, Unavailable
from carteiro.domain.group_links import Door, LinkState, ReminderRequest
from carteiro.domain.lifecycle import MessageState
from carteiro.domain.outcomes import NotSent, Rejected, Throttled
from carteiro.providers.contract import Provider
from carteiro.services.api_keys import Caller
from carteiro.services.create import Creation, Key
from carteiro.services.dispatch.claim import claim_slice
from carteiro.services.dispatch.model import Result, Slice
from carteiro.services.dispatch.record import NOT_THE_CONTACTS_FAULT
from carteiro.services.dispatch.recorder import record_when_reached
from carteiro.services.dispatch.send import Calls, send_slice
from carteiro.services.dispatch.spacing import Lead, Spacing
from carteiro.services.dispatch.station import Claimant
from carteiro.services.group_links.place import draft_of, find_earlier, key_of, place, read_ground
from carteiro.services.group_links.reading import LinkView, read_link
from carteiro.services.withdraw import withdraw_some
from carteiro.settings import Settings
from carteiro.storage import group_links, idempotency
from carteiro.storage.pool import Pool, transact

log = structlog.get_logger(__name__)

ProviderFor = Callable[[str], Awaitable[Provider]]
POLL_MIN_S, POLL_MAX_S = 0.02, 0.25
"""How often a wait is looked into."""
SPARE_S = 0.5
"""Beyond the deadline, for what is written after a call that was answered just in time."""
RETRY_AFTER_S = 2.0
"""Where nobody said for how long to wait."""
RETRY_AFTER_MAX_S = 3_600.0
EXPIRED = "BATCH_EXPIRED"
"""The code of a message that was not sent in its time."""


class ReminderNotSent(Unavailable):
    """Nothing was sent, and nothing will be: the same request, reference included, may be made again."""

    code = "reminder-not-sent"
    title = "The reminder could not be sent now, and was not"

    def __init__(self, reason: str, *, retry_after_s: float, id: UUID | None = None) -> None:
        wait_s = ceil(min(max(retry_after_s, 1.0), RETRY_AFTER_MAX_S))
        super().__init__(f"It was not sent, and will not be: {reason}.", retry_after_s=wait_s)
        if id is not None:
            self.extra["id"] = str(id)


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why it was not sent for now."""

    reason: str
    wait_s: float


@dataclass(frozen=True, slots=True)
class Reminded:
    seen: LinkView
    replayed: bool


async def no_provider(service_id: str) -> Provider:
    raise LookupError(f"this process opens no providers; service {service_id} needs one")


class Reminders:
    """One a process. What it began is recorded even when nobody waits for the answer any more: `drained`."""

    def __init__(self, pool: Pool, settings: Settings, worker_id: str, provider_for: ProviderFor) -> None:
        self._pool = pool
        self._settings = settings
        self._provider_for = provider_for
        self._claimant = Claimant(pool, settings, worker_id)
        self._lead = Lead()
        self._calls = Calls(
            asyncio.Semaphore(settings.max_calls_in_flight),
            lambda: True,
            settings.lateness_s,
            settings.call_timeout_s,
        )
        self._under_way: set[asyncio.Task[Obstacle | None]] = set()

    async def drained(self) -> None:
        """Wait until every outcome is committed."""
        while self._under_way:
            await asyncio.wait(self._under_way)

    async def send(self, caller: Caller, request: ReminderRequest) -> Reminded:
        """Send it now. The answer is its state: `sent`, `failed` (refused), or `processing` when nobody knows yet
        whether it left. Raises ReminderNotSent when it certainly did not, and what `post_link` raises.
        """
        key = key_of(Door.REMINDER, request)
        if (earlier := await self._find_earlier(caller, key)) is not None:
            return Reminded(earlier, replayed=True)
        ends_s = time.monotonic() + self._settings.reminder_deadline_s
        ground = await read_ground(self._pool, self._settings, caller, request)
        if ground.service.test_mode:
            raise Conflict(f"The service {ground.service.id} is in test mode: a reminder cannot wait for moderation.")
        provider = await self._open_provider(ground.service.id)
        expires_at = ground.now + timedelta(seconds=self._settings.reminder_deadline_s)
        draft = draft_of(Door.REMINDER, request, ground, expires_at=expires_at)
        created: Creation = await place(self._pool, self._settings, caller, request, ground, draft, key)
        if created.replayed:
            seen = await read_link(self._pool, caller.account_id, created.batch_id)
            return Reminded(seen, replayed=True)
        # A task of its own: a caller that goes away must not take an outcome with it.
        work = asyncio.create_task(self._work(ground.service.id, draft.id, provider, ends_s))
        self._under_way.add(work)
        work.add_done_callback(self._ended)
        await asyncio.wait({work}, timeout=ends_s + SPARE_S - time.monotonic())
        obstacle = work.result() if work.done() else None
        seen = await read_link(self._pool, caller.account_id, draft.id)
        if obstacle is not None and is_unsent(seen):
            raise ReminderNotSent(obstacle.reason, retry_after_s=obstacle.wait_s, id=draft.id)
        return Reminded(seen, replayed=False)

    def _ended(self, work: asyncio.Task[Obstacle | None]) -> None:
        self._under_way.discard(work)
        if not work.cancelled() and (error := work.exception()) is not None:
            # Whoever waits for the answer is told as well. What was claimed is found by its lease.
            log.warning("reminder_interrupted", error=type(error).__name__)

    async def _find_earlier(self, caller: Caller, key: Key | None) -> LinkView | None:
        """The reminder that has the reference. One that was not sent in its time gives it up."""
        earlier = await find_earlier(self._pool, caller, key)
        if earlier is None or key is None:
            return None
        seen = await read_link(self._pool, caller.account_id, earlier)
        if not is_unsent(seen):
            return seen
        async with transact(self._pool) as conn:
            await idempotency.drop_key(conn, caller.account_id, key, earlier)
        return None

    async def _open_provider(self, service_id: str) -> Provider:
        try:
            return await self._provider_for(service_id)
        except LookupError as error:
            log.warning("provider_not_open", service_id=service_id, error=str(error))
            raise ReminderNotSent("the provider's key is not set up here", retry_after_s=60.0) from None

    async def _work(self, service_id: str, batch_id: UUID, provider: Provider, ends_s: float) -> Obstacle | None:
        """Claim it as soon as pace and capacity let it, send and record it. An obstacle: it ends unsent, for good."""
        obstacle = await self._try(service_id, batch_id, provider, ends_s)
        if obstacle is not None:
            # Nobody else claims it; from here on it cannot be claimed at all.
            async with transact(self._pool) as conn:
                await group_links.end_reminder(conn, batch_id)
            await withdraw_some(self._pool, batch_id)
        return obstacle

    async def _try(self, service_id: str, batch_id: UUID, provider: Provider, ends_s: float) -> Obstacle | None:
        """None: it has left, or may have, or was ended otherwise."""
        reason = "its turn did not come in time"
        # Of this reminder alone: its slot need not follow those of others, which may be of other services.
        spacing = Spacing(self._settings.lateness_s, self._lead)
        while True:
            claimed = await claim_slice(
                self._claimant, service_id, spacing, has_log=provider.has_log, batch_id=batch_id
            )
            if isinstance(claimed, Slice):
                result = await self._send(claimed, provider)
                match result.outcome:
                    case Throttled(retry_after_s):
                        return Obstacle("the provider asked to slow down", retry_after_s or RETRY_AFTER_S)
                    case NotSent():
                        return Obstacle("the provider could not be reached, or took nothing", RETRY_AFTER_S)
                    case None:
                        reason = "its call came too late for its slot"
                    case Rejected(_, kind, _) if kind in NOT_THE_CONTACTS_FAULT:
                        reason = f"the provider refuses the {kind}"
                    case _:
                        return None
                wait_s: float | None = 0.0
            else:
                wait_s = claimed.wait_s
                if claimed.reason not in ("idle", "raced", "gap"):
                    reason = WORDS.get(claimed.reason, claimed.reason)
            left_s = ends_s - time.monotonic()
            if wait_s is None or wait_s >= left_s:
                return Obstacle(reason, wait_s or RETRY_AFTER_S)
            await asyncio.sleep(min(max(wait_s, POLL_MIN_S), POLL_MAX_S))

    async def _send(self, piece: Slice, provider: Provider) -> Result:
        results: list[Result] = []
        await send_slice(piece, provider, self._calls, lambda _, result: results.append(result))
        await record_when_reached(self._pool, piece, results, self._settings)
        return results[0]


WORDS = {
    "pacing": "no slot was free in time",
    "capacity": "the daily capacity is used up",
    "in_flight": "too many calls are in flight",
    "no_active_senders": "no sender can carry this template",
    "service_stopped": "the service was stopped",
    "throttled": "the provider asked to slow down",
    "blackout": "the provider cannot be reached",
    "account_refused": "the provider refuses the account",
}


def is_unsent(seen: LinkView) -> bool:
    """It was not sent in its time, and never will be."""
    return (
        seen.row.door == Door.REMINDER
        and seen.state is LinkState.FAILED
        and seen.row.message_status == MessageState.UNSENT
        and seen.row.code == EXPIRED
    )
