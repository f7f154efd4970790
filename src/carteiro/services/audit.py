"""The promises, checked: every `violation_*` view of schema `audit` must be empty."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from carteiro.settings import Settings
from carteiro.storage import audit
from carteiro.storage.pool import Pool, transact

ROWS = 20
PUBLISHED = ("window_s", "bucket_s", "lateness_s", "service_window_s")
"""Settings that the views judge by."""
EVERYTHING = timedelta(days=36_500)
"""A lookback beyond any batch."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What one view had to say. `count` 0: the promise holds."""

    view: str
    promise: str
    count: int
    rows: list[dict[str, Any]]
    """The first of them: what, batch_id, seq, subject, at, expected, found, off_by."""


async def examine(pool: Pool, *, limit: int = ROWS, lookback: timedelta | None = None) -> list[Finding]:
    """Read each violation view, `limit` rows at most. Raises LookupError where the database has none.

    A transaction a view, so that a long look holds back vacuum as little as possible. Batches that were settled
    longer ago than `lookback` are left out; None: as long as `audit.setting` says.
    """
    async with pool.connection() as conn:
        views = await audit.violation_views(conn)
    if not views:
        raise LookupError("the database has no schema `audit`: run `carteiro migrate`")
    findings = []
    for view, promise in views:
        async with transact(pool) as conn:
            count, rows = await audit.read_violations(conn, view, limit=limit, lookback=lookback)
        findings.append(Finding(view, promise, count, rows))
    return findings


async def violations(pool: Pool, *, lookback: timedelta | None = None) -> dict[str, list[dict[str, Any]]]:
    """The views that are not empty, with their first rows: `assert not await violations(pool)`."""
    return {finding.view: finding.rows for finding in await examine(pool, lookback=lookback) if finding.count}


async def publish_settings(pool: Pool, settings: Settings) -> None:
    """Tell the views what this process goes by. Each worker does so when it starts."""
    async with pool.connection() as conn:
        told = {name: getattr(settings, name) for name in PUBLISHED}
        await audit.put_settings(conn, told)
