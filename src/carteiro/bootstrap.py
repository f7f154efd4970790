"""The composition root: the only place that knows every layer."""

import asyncio
import os
import socket
from collections.abc import Callable
from functools import partial
from uuid import uuid4

import structlog

from carteiro.domain.outcomes import Parsed
from carteiro.domain.suppression import StopWords
from carteiro.providers.contract import KeyMissing, Provider
from carteiro.providers.registry import open_provider, parser_of
from carteiro.services import (
    audit,
    callback,
    control,
    create,
    finalise,
    receive,
    retention,
    suppression,
    sync,
    withdraw,
)
from carteiro.services.codes import publish_codes
from carteiro.services.dispatch.dispatcher import Dispatcher
from carteiro.services.dispatch.follow_up_reconcile import reconcile_follow_ups
from carteiro.services.dispatch.lapse import close_lapsed_claims
from carteiro.services.dispatch.reconcile import reconcile_unknown
from carteiro.settings import Settings
from carteiro.storage import catalog
from carteiro.storage.pool import Pool, open_pool
from carteiro.worker.signals import hear_halts
from carteiro.worker.supervisor import end_within, keep_running, run_jobs, stop_on_signal
from carteiro.worker.sweep import Chores, Sweeper
from carteiro.worker.tasks import duties

log = structlog.get_logger(__name__)

STOP_MARGIN_S = 4.5
"""What a worker has beyond its longest call to record what came of it: it is gone within five seconds after that."""


class Providers:
    """Open providers, one per (provider, address, key): services that share them share their connections."""

    def __init__(self, pool: Pool, settings: Settings) -> None:
        self._pool = pool
        self._settings = settings
        self._open: dict[tuple[str, str, str], Provider] = {}

    async def of_service(self, service_id: str) -> Provider:
        """Raises KeyMissing for an unset key variable, LookupError for an unknown service."""
        async with self._pool.connection() as conn:
            provider, base_url, key_variable = await catalog.read_connection(conn, service_id)
        api_key = os.environ.get(key_variable)
        if not api_key:
            raise KeyMissing(f"{key_variable} is not set: it holds the provider's key of service {service_id}")
        key = (provider, base_url, api_key)
        if key not in self._open:
            self._open[key] = open_provider(
                provider,
                base_url=base_url,
                api_key=api_key,
                timeout_s=self._settings.call_timeout_s,
                max_connections=self._settings.max_calls_in_flight,
                graph_version=self._settings.meta_graph_version,
            )
        return self._open[key]

    async def close(self) -> None:
        for provider in self._open.values():
            await provider.close()


def worker_name() -> str:
    """Unique per process start: a claim's owner is never confused with its successor."""
    return f"{socket.gethostname()}-{os.getpid()}-{uuid4().hex[:6]}"


async def run_worker(settings: Settings) -> None:
    """Run one worker until SIGTERM or SIGINT. What was claimed is sent or given back, and recorded, before it
    returns; where Postgres is away the process ends all the same.
    """
    dsn = settings.require_database_url()
    worker_id = worker_name()
    async with open_pool(
        dsn,
        min_size=settings.pool_min_size,
        max_size=settings.pool_max_size,
        application_name=f"carteiro-worker {worker_id}",
    ) as pool:
        await audit.publish_settings(pool, settings)
        await publish_codes(pool)
        providers = Providers(pool, settings)
        dispatcher = Dispatcher(pool, settings, worker_id, providers.of_service)
        duties.pump = dispatcher.pump
        duties.chores = {
            "apply_receipts": partial(
                receive.apply_all,
                pool,
                _parser,
                stop_words=StopWords(settings.stop_words),
                window_s=settings.service_window_s,
            ),
            "send_callbacks": partial(callback.send_due, pool, settings),
            "reconcile": partial(_reconcile, pool, settings, providers),
            "retention": partial(retention.retain_when_free, pool, settings),
            "sync": partial(sync.sync_when_due, pool, settings, providers.of_service, worker_id),
        }
        sweeper = Sweeper(
            pool,
            worker_id,
            _chores(pool, settings),
            interval_s=settings.sweep_interval_s,
            pumping=dispatcher.pumping,
            syncs=settings.sync_every_s > 0,
        )
        stop_on_signal(dispatcher.stopping)
        log.info("worker_started", worker_id=worker_id)
        parts = [
            asyncio.create_task(keep_running("recorder", dispatcher.recorder.run)),
            asyncio.create_task(keep_running("leases", dispatcher.keep_leases)),
            asyncio.create_task(keep_running("signals", partial(hear_halts, dsn, worker_id, dispatcher.halt))),
            asyncio.create_task(keep_running("sweep", sweeper.run)),
            asyncio.create_task(keep_running("jobs", partial(run_jobs, dsn, worker_id))),
        ]
        try:
            await dispatcher.stopping.wait()
            log.info("worker_stopping", worker_id=worker_id)
            end_within(settings.call_timeout_s + STOP_MARGIN_S)
            await dispatcher.drained()
        finally:
            for part in reversed(parts):
                part.cancel()
            await asyncio.gather(*parts, return_exceptions=True)
            await providers.close()


def _parser(provider: str) -> Callable[[bytes], Parsed]:
    return parser_of(provider)


async def _reconcile(pool: Pool, settings: Settings, providers: Providers) -> None:
    await reconcile_unknown(pool, settings, providers.of_service)
    await reconcile_follow_ups(pool, settings, providers.of_service)


def _chores(pool: Pool, settings: Settings) -> Chores:
    async def withdraw_ended() -> None:
        await withdraw.withdraw_ended(pool)
        await control.release_idle_holds(pool, settings)

    async def settle() -> None:
        await finalise.assume_delivered(pool, settings)
        await finalise.finalise_due(pool, settings)
        await finalise.fold_tallies(pool)

    async def tidy_up() -> None:
        await finalise.assume_found_late(pool, settings)
        await create.collect_abandoned_drafts(pool, older_than_s=3600.0)
        await suppression.forget_lapsed(pool)

    return Chores(
        close_lapsed_claims=partial(close_lapsed_claims, pool, settings),
        withdraw_follow_ups=partial(withdraw.withdraw_follow_ups, pool),
        withdraw_ended=withdraw_ended,
        settle=settle,
        hourly=tidy_up,
    )
