"""Settle messages whose outcome is unknown by asking the provider's log. Never a blind resend."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from uuid import UUID

import structlog

from carteiro.domain.lifecycle import OUTCOME_UNKNOWN, SENDING
from carteiro.domain.outcomes import Fact, FactKind
from carteiro.providers.contract import LogUnreachable, LookUp
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
        found = await _look_up(service_id, rows, provider_for, settings)
        await _settle(pool, settings, rows, found)
    return len(due)


async def _look_up(service_id: str, rows: Sequence[Unknown], provider_for: ProviderFor, settings: Settings) -> LookUp:
    try:
        provider = await provider_for(service_id)
        if not provider.has_log:
            return LookUp()
        async with asyncio.timeout(settings.call_timeout_s):
            return await provider.look_up([(row.batch_id, row.seq) for row in rows])
    except (LogUnreachable, TimeoutError, LookupError) as error:
        log.warning("log_unreachable", service_id=service_id, rows=len(rows), error=type(error).__name__)
        return LookUp()


async def _settle(pool: Pool, settings: Settings, rows: Sequence[Unknown], found: LookUp) -> None:
    facts: dict[UUID, list[Fact]] = defaultdict(list)
    for fact in found.facts:
        facts[fact.batch_id].append(fact)
    absent: dict[UUID, list[int]] = defaultdict(list)
    for batch_id, seq in found.absent:
        absent[batch_id].append(seq)
    answered = {(fact.batch_id, fact.seq) for fact in found.facts}
    over: dict[UUID, list[int]] = defaultdict(list)
    for row in rows:
        if row.is_over and (row.batch_id, row.seq) not in answered:
            over[row.batch_id].append(row.seq)

    for batch_id in sorted({row.batch_id for row in rows}):

        async def attempt(batch_id: UUID = batch_id) -> list[Unit]:
            async with transact(pool) as conn:
                return await _settle_batch(conn, settings, batch_id, facts[batch_id], absent[batch_id], over[batch_id])

        returned = await retry_serialization(attempt)
        if returned:
            await wake_waiting(pool, (unit.business_manager for unit in returned))


async def _settle_batch(
    conn: Connection,
    settings: Settings,
    batch_id: UUID,
    facts: Sequence[Fact],
    absent: Sequence[int],
    over: Sequence[int],
) -> list[Unit]:
    """Locks: capacity meters of proven absent rows, the batch (FOR KEY SHARE), messages in order of seq. Answers the
    units that came back.
    """
    proven = set(await unknowns.note_absent(conn, batch_id, absent, proof=MISSES_THAT_PROVE)) - set(over)
    units = await unknowns.read_units(conn, batch_id, sorted(proven))
    if units:
        await capacity.lock_meters(conn, meters_of(units.values()), keep_s=settings.window_s + settings.bucket_s)
    status, _ = await outcomes.share_batch(conn, batch_id)
    sends = status in SENDING
    if over:
        now = await outcomes.read_clock(conn)
        facts = [*facts, *(Fact(batch_id, seq, FactKind.GIVEN_UP, now, code=OUTCOME_UNKNOWN) for seq in over)]
    await merge_facts(conn, batch_id, facts)
    moved = await unknowns.return_absent(conn, batch_id, sorted(units), event="absent" if sends else "absent_dropped")
    returned = [units[seq] for seq in moved]
    await capacity.give_back(conn, batch_id, returned, restore_holds=sends)
    return returned
