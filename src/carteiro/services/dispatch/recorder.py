"""Collects the outcomes of all slices of this process and records them in bulk, a few times a second."""

import asyncio
from collections.abc import Sequence

import structlog

from carteiro.services.dispatch.follow_up_record import record_follow_ups
from carteiro.services.dispatch.model import Result, Slice
from carteiro.services.dispatch.record import record
from carteiro.settings import Settings
from carteiro.storage.pool import UNREACHABLE, Pool

log = structlog.get_logger(__name__)

FLUSH_EVERY_S = 0.1
FLUSH_AT_ROWS = 500
RETRY_DELAY_S = 0.5


async def record_when_reached(pool: Pool, piece: Slice, results: Sequence[Result], settings: Settings) -> None:
    """Write the slice's next flush, again and again while Postgres is away: outcomes are evidence even after the
    lease.
    """
    write = record_follow_ups if piece.follow_ups else record
    while True:
        try:
            await write(pool, piece, results, piece.flushes, settings)
        except UNREACHABLE:
            log.warning("record_delayed", claim_id=piece.claim_id, rows=len(results))
            await asyncio.sleep(RETRY_DELAY_S)
        else:
            piece.flushes += 1
            return


class Recorder:
    """One a process. `note` never blocks; `drained` waits until everything noted is committed."""

    def __init__(self, pool: Pool, settings: Settings) -> None:
        self._pool = pool
        self._settings = settings
        self._noted: dict[int, tuple[Slice, list[Result]]] = {}
        self._flushing: set[int] = set()
        self._rows = 0
        self._wake = asyncio.Event()
        self._full = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def note(self, piece: Slice, result: Result) -> None:
        self._noted.setdefault(piece.claim_id, (piece, []))[1].append(result)
        self._rows += 1
        self._idle.clear()
        self._wake.set()
        if self._rows >= FLUSH_AT_ROWS:
            self._full.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._wake.wait()
            try:
                async with asyncio.timeout(FLUSH_EVERY_S):
                    await self._full.wait()
            except TimeoutError:
                pass
            noted, self._noted, self._rows = self._noted, {}, 0
            self._flushing = set(noted)
            self._wake.clear()
            self._full.clear()
            await asyncio.gather(*(self._flush(piece, results) for piece, results in noted.values()))
            self._flushing = set()
            if not self._noted:
                self._idle.set()

    async def drained(self) -> None:
        await self._idle.wait()

    def claims(self) -> set[int]:
        """The claims with outcomes that are noted and not committed yet."""
        return self._noted.keys() | self._flushing

    async def _flush(self, piece: Slice, results: list[Result]) -> None:
        try:
            await record_when_reached(self._pool, piece, results, self._settings)
        except Exception:
            await self._flush_apart(piece, results)

    async def _flush_apart(self, piece: Slice, results: list[Result]) -> None:
        """A row that cannot be recorded fails alone: it stays `pending_send`, its claim is not renewed any more, and
        when the lease lapses the provider's log is asked.
        """
        if len(results) == 1:
            log.exception("record_failed", claim_id=piece.claim_id, seq=results[0].due.outgoing.seq)
            return
        for result in results:
            await self._flush(piece, [result])
