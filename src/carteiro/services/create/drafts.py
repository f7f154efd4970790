"""Drafts that came to nothing."""

from contextlib import suppress
from uuid import UUID

import structlog

from carteiro.services.database import UNREACHABLE
from carteiro.storage import batches
from carteiro.storage.pool import Pool, transact

log = structlog.get_logger(__name__)


async def discard_draft(pool: Pool, batch_id: UUID) -> None:
    """Delete a draft with its rows, unless it was opened after all. If the database is away, the sweep does it."""
    with suppress(*UNREACHABLE):
        async with transact(pool) as conn:
            await batches.drop_draft(conn, batch_id)


async def collect_abandoned_drafts(pool: Pool, older_than_s: float) -> int:
    """Delete drafts whose process was killed while it loaded them; how many. One transaction each."""
    async with pool.connection() as conn:
        abandoned = await batches.abandoned_drafts(conn, older_than_s=older_than_s)
    collected = 0
    for batch_id in abandoned:
        async with transact(pool) as conn:
            collected += await batches.drop_draft(conn, batch_id)
    if collected:
        log.info("drafts_collected", drafts=collected)
    return collected
