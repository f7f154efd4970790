"""Settle messages whose outcome is unknown by asking the provider's log. Never a blind resend."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from math import ceil
from uuid import UUID

import structlog

from carteiro.domain.lifecycle import OUTCOME_UNKNOWN
from carteiro.domain.outcomes import Fact, FactKind
from carteiro.providers.contract import LogUnreachable, LookUp, Provider
from carteiro.services.dispatch.dispatcher import ProviderFor
from carteiro.services.dispatch.waking import wake_waiting
from carteiro.settings import Settings
from carteiro.storage import capacity, outcomes, unknowns
from carteiro.storage.capacity import Unit, meters_of
from carteiro.storage.facts import merge_facts
from carteiro.storage.pool import Connection, Pool, retry_serialization, transact
from carteiro.storage.unknowns import Unknown

log = structlog.get_logger(__name__)

ROWS_A_RUN = 500
PAGE_ROWS = 50
SILENT_PAGES = 2
"""After so many pages without any answer the log counts as unreachable for this run."""
MISSES_THAT_PROVE = 2
"""How often, a few minutes apart, the log must not have a message before it counts as not sent: the log itself may
lag.
"""


async def reconcile_unknown(pool: Pool, settings: Settings, provider_for: ProviderFor) -> int:
    """Look up what is due: found rows take the log's word, absent ones go back to pending, the log's silence changes
    nothing.

    A row unknown for `unknown_give_up_after_s` is given up as OUTCOME_UNKNOWN. No connection is held during the
    look-up; killed anywhere, the rows are due again after `reconcile_after_s`. Answers the rows looked at.
    """
    async with transact(pool) as conn:
        due = await unknowns.take(
            conn,
            n=ROWS_A_RUN,
            again_s=settings.reconcile_after_s,
            give_up_s=settings.unknown_give_up_after_s,
        )
    by_service: dict[str, list[Unknown]] = defaultdict(list)
    for row in due:
        by_service[row.service_id].append(row)
    for service_id, rows in by_service.items():
        await _ask_log(pool, settings, provider_for, service_id, rows)
        # What the log could not settle by now.
        await _settle(pool, settings, [row for row in rows if row.is_over], LookUp())
    return len(due)


async def _ask_log(
    pool: Pool, settings: Settings, provider_for: ProviderFor, service_id: str, rows: Sequence[Unknown]
) -> None:
    try:
        provider = await provider_for(service_id)
    except LookupError as error:
        log.warning("log_unreachable", service_id=service_id, error=str(error))
        return
    if not provider.has_log:
        return
    silent_pages = 0
    for page in _pages(rows, PAGE_ROWS):
        silent_pages += not await _reconcile_page(pool, settings, provider, page)
        if silent_pages == SILENT_PAGES:
            log.warning("log_unreachable", service_id=service_id, rows=len(rows))
            return


async def _reconcile_page(pool: Pool, settings: Settings, provider: Provider, page: Sequence[Unknown]) -> bool:
    """Settle one page by the log. False: it had no answer for the page, nor for either half of it.

    One row that the log cannot speak of must not keep the others of its page unknown: a page that fails is halved for
    as long as one of its halves succeeds.
    """
    if await _look_up(pool, settings, provider, page):
        return True
    part = page
    while len(part) > 1:
        halves = _pages(part, ceil(len(part) / 2))
        silent = [half for half in halves if not await _look_up(pool, settings, provider, half)]
        if len(silent) != 1:
            return not silent or part is not page
        part = silent[0]
    return part is not page


def _pages(rows: Sequence[Unknown], n: int) -> list[Sequence[Unknown]]:
    return [rows[first : first + n] for first in range(0, len(rows), n)]


async def _look_up(pool: Pool, settings: Settings, provider: Provider, rows: Sequence[Unknown]) -> bool:
    """Ask the log for these rows, with a deadline of their own, and settle them. False: it gave no answer."""
    try:
        async with asyncio.timeout(settings.call_timeout_s):
            found = await provider.look_up([(row.batch_id, row.seq) for row in rows])
    except (LogUnreachable, TimeoutError):
        return False
    await _settle(pool, settings, rows, found)
    return True


async def _settle(pool: Pool, settings: Settings, rows: Sequence[Unknown], found: LookUp) -> None:
    facts: dict[UUID, list[Fact]] = defaultdict(list)
    for fact in found.facts:
        facts[fact.batch_id].append(fact)
    absent = set(found.absent)
    by_batch: dict[UUID, list[Unknown]] = defaultdict(list)
    for row in rows:
        by_batch[row.batch_id].append(row)

    for batch_id, of_batch in sorted(by_batch.items()):
        missing = {row.seq for row in of_batch if (batch_id, row.seq) in absent}

        async def attempt(
            batch_id: UUID = batch_id, of_batch: Sequence[Unknown] = of_batch, missing: set[int] = missing
        ) -> list[Unit]:
            async with transact(pool) as conn:
                return await _settle_batch(conn, settings, batch_id, of_batch, facts[batch_id], missing)

        returned = await retry_serialization(attempt)
        if returned:
            await wake_waiting(pool, (unit.business_manager for unit in returned))


async def _settle_batch(
    conn: Connection,
    settings: Settings,
    batch_id: UUID,
    rows: Sequence[Unknown],
    facts: Sequence[Fact],
    missing: set[int],
) -> list[Unit]:
    """Facts always count. An absence, and giving up, only while the rows are still in this look-up's hands: otherwise
    the log was asked about an earlier call than the one that is unknown now.

    Locks: the unknown rows, capacity meters of those proven absent, the batch (FOR KEY SHARE), messages in order of
    seq. Answers the units that came back.
    """
    ours = await unknowns.hold(conn, batch_id, rows)
    told = {fact.seq for fact in facts}
    over = [row.seq for row in rows if row.is_over and row.seq in ours and row.seq not in told]
    proven = set(await unknowns.note_absent(conn, batch_id, sorted(missing & ours), proof=MISSES_THAT_PROVE))
    units = await unknowns.read_units(conn, batch_id, sorted(proven - set(over)))
    if units:
        await capacity.lock_meters(conn, meters_of(units.values()), keep_s=settings.window_s + settings.bucket_s)
    sends = (await outcomes.share_batch(conn, batch_id)).sends
    if over:
        now = await outcomes.read_clock(conn)
        facts = [*facts, *(Fact(batch_id, seq, FactKind.GIVEN_UP, now, code=OUTCOME_UNKNOWN) for seq in over)]
    await merge_facts(conn, batch_id, facts)
    moved = await unknowns.return_absent(conn, batch_id, sorted(units), event="absent" if sends else "absent_dropped")
    returned = [units[seq] for seq in moved]
    await capacity.give_back(conn, batch_id, returned, restore_holds=sends)
    return returned
