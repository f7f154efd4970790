"""Settle follow-ups whose outcome is unknown: by the provider's log where it has one, or given up. Never sent again."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from uuid import UUID

import structlog

from carteiro.domain.lifecycle import OUTCOME_UNKNOWN
from carteiro.domain.outcomes import Fact, FactKind
from carteiro.providers.contract import LogUnreachable
from carteiro.services.dispatch.dispatcher import ProviderFor
from carteiro.services.dispatch.reconcile import PAGE_ROWS, ROWS_A_RUN
from carteiro.settings import Settings
from carteiro.storage import follow_ups, outcomes
from carteiro.storage.follow_ups import Unknown
from carteiro.storage.pool import Pool, retry_serialization, transact

log = structlog.get_logger(__name__)


async def reconcile_follow_ups(pool: Pool, settings: Settings, provider_for: ProviderFor) -> int:
    """Look up what is due: what is found takes the log's word, and whatever is not stays unknown, until it is given up.

    That the log does not have one proves nothing here: a text sent twice is worse than one not sent. No connection is
    held during the look-up. Answers the rows looked at.
    """
    async with transact(pool) as conn:
        due = await follow_ups.take_unknown(
            conn, n=ROWS_A_RUN, again_s=settings.reconcile_after_s, give_up_s=settings.unknown_give_up_after_s
        )
    by_service: dict[str, list[Unknown]] = defaultdict(list)
    for row in due:
        by_service[row.service_id].append(row)
    for service_id, rows in by_service.items():
        await _merge(pool, await _ask_log(settings, provider_for, service_id, rows))
    async with pool.connection() as conn:
        now = await outcomes.read_clock(conn)
    # Of those that were found meanwhile the stronger fact counts.
    over = [row for row in due if row.is_over]
    await _merge(
        pool,
        [Fact(row.batch_id, row.seq, FactKind.GIVEN_UP, now, code=OUTCOME_UNKNOWN, followup=True) for row in over],
    )
    return len(due)


async def _ask_log(
    settings: Settings, provider_for: ProviderFor, service_id: str, rows: Sequence[Unknown]
) -> list[Fact]:
    """What the log says of them, as far as it answers."""
    found: list[Fact] = []
    try:
        provider = await provider_for(service_id)
        if not provider.has_log:
            return found
        for first in range(0, len(rows), PAGE_ROWS):
            page = [(row.batch_id, row.seq) for row in rows[first : first + PAGE_ROWS]]
            async with asyncio.timeout(settings.call_timeout_s):
                found += (await provider.look_up(page, followups=True)).facts
    except (LookupError, LogUnreachable, TimeoutError) as error:
        log.warning("log_unreachable", service_id=service_id, error=type(error).__name__)
    return found


async def _merge(pool: Pool, facts: Sequence[Fact]) -> None:
    """One transaction a batch; locks it FOR KEY SHARE, then its follow-ups."""
    by_batch: dict[UUID, list[Fact]] = defaultdict(list)
    for fact in facts:
        by_batch[fact.batch_id].append(fact)
    for batch_id, told in sorted(by_batch.items()):

        async def attempt(batch_id: UUID = batch_id, told: Sequence[Fact] = told) -> None:
            async with transact(pool) as conn:
                await outcomes.share_batch(conn, batch_id)
                await follow_ups.merge_facts(conn, batch_id, told)

        await retry_serialization(attempt)
