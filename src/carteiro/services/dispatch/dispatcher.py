"""The dispatcher of one worker process: its pumps, the provider connections that they share, and the leases of its
claims.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from uuid import UUID

import structlog

from carteiro.providers.contract import KeyMissing, Provider
from carteiro.services.dispatch.pump import pump
from carteiro.services.dispatch.recorder import Recorder
from carteiro.services.dispatch.send import Calls
from carteiro.services.dispatch.station import Station
from carteiro.settings import Settings
from carteiro.storage import claims, jobs, outcomes
from carteiro.storage.pool import UNREACHABLE, Pool, transact

log = structlog.get_logger(__name__)

ProviderFor = Callable[[str], Awaitable[Provider]]
"""The open provider of a service; shared between pumps, closed by whoever opened it. Raises KeyMissing where this
process was not given its key.
"""

TELL_AGAIN_S = 60.0
OTHERS_TAKE_S = 3.0
"""A batch that waits for longer is not about to be taken by another worker."""
KEY_RETRY_S = 10.0


class Dispatcher:
    """One a worker process. `stopping` set: no new claim, no new call; what is in flight is finished and recorded."""

    def __init__(self, pool: Pool, settings: Settings, worker_id: str, provider_for: ProviderFor) -> None:
        self.stopping = asyncio.Event()
        self.recorder = Recorder(pool, settings)
        self._provider_for = provider_for
        self._pumping: set[str] = set()
        self._silent_until_s: dict[str, float] = {}
        """Service -> until when nothing more is logged of its missing key."""
        self._quiet = asyncio.Event()
        self._quiet.set()
        calls = Calls(
            asyncio.Semaphore(settings.max_calls_in_flight),
            self._may_start,
            settings.lateness_s,
            settings.call_timeout_s,
        )
        self._station = Station(pool, settings, worker_id, calls, self.recorder, self.stopping)

    def pumping(self) -> set[str]:
        """Services that this process pumps now."""
        return set(self._pumping)

    async def pump(self, service_id: str) -> None:
        """Pump the service for a while; at once over when this process does so already. Asks for the next pump by
        itself.
        """
        if service_id in self._pumping or self.stopping.is_set():
            return
        self._pumping.add(service_id)
        self._quiet.clear()
        try:
            more = await pump(self._station, service_id, await self._provider_for(service_id))
        except KeyMissing as error:
            more = False
            await self._tell_key_missing(service_id, error)
        finally:
            self._pumping.discard(service_id)
            if not self._pumping:
                self._quiet.set()
        if more:
            async with transact(self._station.pool) as conn:
                await jobs.defer_pump(conn, service_id, worker_id=self._station.worker_id)

    async def _tell_key_missing(self, service_id: str, error: KeyMissing) -> None:
        """On the batches, if no other worker sends them, and now and then in the log. They are tried again before long:
        by whichever worker has the key then.
        """
        now_s = time.monotonic()
        if now_s >= self._silent_until_s.get(service_id, 0.0):
            self._silent_until_s[service_id] = now_s + TELL_AGAIN_S
            log.warning("provider_key_missing", service_id=service_id, error=str(error))
        async with transact(self._station.pool) as conn:
            await claims.block_service(
                conn, service_id, blocked_by="provider_key_missing", quiet_s=OTHERS_TAKE_S, retry_s=KEY_RETRY_S
            )

    def halt(self, batch_id: UUID) -> None:
        """The batch was paused or cancelled: start no further call of the slices that are being sent right now.

        A slice that is claimed but not begun may be missed. That is no harm: whoever halted the batch waits until the
        last slot of its open claims is past, and no claim is made after that. The slice keeps the mark, so that there
        is nothing to take back when the batch is resumed.
        """
        for piece in self._station.sending.values():
            if piece.batch_id == batch_id:
                piece.halted = True

    async def drained(self) -> None:
        """Wait until no pump is left and every outcome is committed. Set `stopping` first."""
        await self._quiet.wait()
        await self.recorder.drained()

    def claims_in_hand(self) -> set[int]:
        """Claims with calls still to come, or outcomes still to be committed. A row that could not be recorded is in
        neither: its claim must lapse.
        """
        return self._station.sending.keys() | self.recorder.claims()

    async def keep_leases(self) -> None:
        """Renew the leases of the claims in hand, four times a lease, until cancelled."""
        lease_s = self._station.settings.lease_s
        while True:
            await asyncio.sleep(lease_s / 4)
            if not (in_hand := list(self.claims_in_hand())):
                continue
            try:
                async with transact(self._station.pool) as conn:
                    renewed = await outcomes.renew_leases(conn, in_hand, lease_s=lease_s)
            except UNREACHABLE:
                log.warning("leases_not_renewed")
                continue
            for claim_id, lease_until in renewed.items():
                if piece := self._station.sending.get(claim_id):
                    piece.lease_until = lease_until

    def _may_start(self) -> bool:
        return not self.stopping.is_set()
