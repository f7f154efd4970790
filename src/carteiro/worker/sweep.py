"""The sweep: about once a second every worker asks the tables what is to be done, so that no job is ever needed twice.

One worker at a time leads and looks after lapsed claims, settlements and chores; each worker asks for pumps of its own.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import structlog

from carteiro.storage import jobs, sweep
from carteiro.storage.pool import UNREACHABLE, Pool, transact

log = structlog.get_logger(__name__)

HOURLY_S = 3600.0
LEAD_SWEEPS = 5
"""A leader that does not sweep for so many intervals is replaced."""
SILENT_WORKER_S = 60.0
SEEN_S = 5.0


@dataclass(frozen=True, slots=True)
class Chores:
    """The use cases that the leader runs itself, in the order of a sweep."""

    close_lapsed_claims: Callable[[], Awaitable[object]]
    withdraw_follow_ups: Callable[[], Awaitable[object]]
    withdraw_ended: Callable[[], Awaitable[object]]
    settle: Callable[[], Awaitable[object]]
    hourly: Callable[[], Awaitable[object]]


class Sweeper:
    """Sweeps until cancelled. An error ends one sweep, never the sweeper."""

    def __init__(
        self,
        pool: Pool,
        worker_id: str,
        chores: Chores,
        *,
        interval_s: float,
        pumping: Callable[[], set[str]],
        syncs: bool,
    ) -> None:
        self._pool = pool
        self._worker_id = worker_id
        self._chores = chores
        self._interval_s = interval_s
        self._pumping = pumping
        self._syncs = syncs
        self._hourly_due_s = 0.0
        self._seen_due_s = 0.0

    async def run(self) -> None:
        while True:
            started_s = time.monotonic()
            try:
                await self.sweep()
            except UNREACHABLE as error:
                log.warning("sweep_interrupted", error=type(error).__name__)
            except Exception:
                log.exception("sweep_failed")
            await asyncio.sleep(max(0.05, self._interval_s - (time.monotonic() - started_s)))

    async def sweep(self) -> None:
        """One sweep: this worker's pumps, then the leader's chores if nobody else leads."""
        async with self._pool.connection() as conn:
            if time.monotonic() >= self._seen_due_s:
                await sweep.see_worker(conn, self._worker_id)
                self._seen_due_s = time.monotonic() + SEEN_S
            for service_id in await sweep.services_to_pump(conn) - self._pumping():
                await jobs.defer_pump(conn, service_id, worker_id=self._worker_id)
            leads = await sweep.try_lead(conn, self._worker_id, lease_s=self._interval_s * LEAD_SWEEPS)
        if leads:
            await self._lead()

    async def _lead(self) -> None:
        async with self._pool.connection() as conn:
            due = await sweep.read_due(conn)
            for chore, is_due in (
                ("apply_receipts", due.receipts),
                ("send_callbacks", due.callbacks),
                ("reconcile", due.unknown),
                ("sync", due.sync and self._syncs),
            ):
                if is_due:
                    await jobs.defer_chore(conn, chore)
        if due.lapsed:
            await _do("close_lapsed_claims", self._chores.close_lapsed_claims)
        if due.follow_ups:
            await _do("withdraw_follow_ups", self._chores.withdraw_follow_ups)
        if due.unsettled:
            await _do("withdraw_ended", self._chores.withdraw_ended)
            await _do("settle", self._chores.settle)
        if time.monotonic() >= self._hourly_due_s:
            self._hourly_due_s = time.monotonic() + HOURLY_S
            await _do("hourly", self._chores.hourly)
            await _do("housekeeping", self._keep_house)

    async def _keep_house(self) -> None:
        async with transact(self._pool) as conn:
            await sweep.ensure_partitions(conn)
            await sweep.forget_silent_workers(conn, silent_s=SILENT_WORKER_S)
            await jobs.defer_chore(conn, "retention")


async def _do(name: str, chore: Callable[[], Awaitable[object]]) -> None:
    """One chore that fails does not keep the others from being done. Without a database none can be."""
    try:
        await chore()
    except UNREACHABLE:
        raise
    except Exception:
        log.exception("chore_failed", chore=name)
