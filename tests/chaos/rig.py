"""What is tried: a Postgres of its own, the simulator, APIs and workers, all of them real processes."""

import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
from psycopg.rows import dict_row

from carteiro.embedded import Cluster, throwaway_cluster
from carteiro.services.accounts import grant_credits
from carteiro.services.catalog import apply_catalog
from carteiro.storage.migrations import migrate
from carteiro.storage.pool import open_pool
from tests.chaos.proxy import Proxy
from tests.chaos.steer import Steering
from tests.chaos.steps import SERVE, WORKER
from tests.chaos.world import ACCOUNT, CREDITS, JITTER_MS, LATENCY_MS, World
from tests.support import factories
from tests.support.databases import chosen_binaries
from tests.support.directories import LEADER, load_directory
from tests.support.processes import ChildProcess, free_port, running_processes
from tests.support.stack import Simulator
from tests.support.waiting import until

ROOT = Path(__file__).parents[2]
LAUNCHER = "tests.chaos.process"

SIMULATOR = ["--latency-ms", str(LATENCY_MS), "--jitter-ms", str(JITTER_MS), "--no-dedupe", "--no-magic"]
"""It takes an id again that it has taken before: a second call would be seen to have been one."""
REPORTS = ["--receipt-attempts", "12", "--receipt-retry-ms", "200", "--receipt-jitter-ms", "5000"]
"""Most come later than a lease lasts and the log is asked: a lost answer is not settled by them alone."""

Environments = Callable[[str, int], Mapping[str, str]]
"""More variables of the n-th process of a kind, `serve` or `worker`."""


@dataclass(frozen=True, slots=True)
class Moment:
    """One instant by both clocks, in nanoseconds."""

    monotonic_ns: int
    wall_ns: int

    @classmethod
    def now(cls) -> "Moment":
        return cls(time.monotonic_ns(), time.time_ns())


@dataclass
class Rig:
    world: World
    home: Path
    cluster: Cluster
    simulator: Simulator
    apis: list[ChildProcess]
    api_urls: list[str]
    workers: list[ChildProcess]
    key: str
    proxy: Proxy | None
    dsn: str
    steering: Steering
    came_back: list[Moment] = field(default_factory=list)
    """When Postgres answered again after it had been stopped."""
    frozen: list[tuple[int, Moment, Moment]] = field(default_factory=list)
    """(process id, from, until) of workers that were stopped beyond their lease."""
    killed: list[tuple[int, Moment]] = field(default_factory=list)
    """(process id, when) of workers that got a SIGKILL."""
    findings: list[str] = field(default_factory=list)
    """What a fault itself saw that must not be."""

    @property
    def processes(self) -> list[ChildProcess]:
        return [*self.apis, *self.workers]

    def of_kind(self, kind: str) -> list[ChildProcess]:
        return self.apis if kind == SERVE else self.workers

    async def read(self, query: str, *params: object) -> list[dict[str, Any]]:
        """Rows of a query, on a connection that is none of the product's."""
        async with await psycopg.AsyncConnection.connect(
            self.dsn, autocommit=True, row_factory=dict_row, options="-c TimeZone=UTC", connect_timeout=5
        ) as conn:
            cursor = await conn.execute(query.encode(), params)
            return await cursor.fetchall() if cursor.description else []

    def log_tails(self, characters: int = 1_000) -> str:
        return "\n".join(f"{child.name}:\n{child.log_tail(characters)}" for child in self.processes)


def _no_more(_kind: str, _place: int) -> Mapping[str, str]:
    return {}


@contextlib.asynccontextmanager
async def running_rig(
    world: World, home: Path, *, seed: int, proxied: bool = False, environments: Environments = _no_more
) -> AsyncIterator[Rig]:
    """Everything started and ready. `proxied`: all workers but the last reach Postgres through the rig's proxy."""
    home.mkdir(parents=True, exist_ok=True)
    async with contextlib.AsyncExitStack() as stack:
        cluster = stack.enter_context(_cluster(free_port()))
        dsn = cluster.dsn()
        migrate(dsn)
        proxy = await stack.enter_async_context(Proxy(cluster.port)) if proxied else None
        worker_dsns = [dsn] * world.workers
        if proxy is not None:
            worker_dsns[:-1] = [_through(cluster, proxy)] * (world.workers - 1)
        ports = [free_port() for _ in range(world.apis)]
        urls = [f"http://127.0.0.1:{port}" for port in ports]
        environment = {
            **world.settings,
            "INFOBIP_KEY": "any",
            "CARTEIRO_PUBLIC_URL": urls[0],
            "CARTEIRO_DATABASE_URL": dsn,
            "PYTHONPATH": str(ROOT),
        }
        processes = stack.enter_context(running_processes(home, environment))
        simulator_port = free_port()
        simulator = Simulator(f"http://127.0.0.1:{simulator_port}")
        stack.push_async_callback(simulator.http.aclose)
        told = ["--port", str(simulator_port), "--seed", str(seed % 2**31), "--witness-dsn", dsn]
        if world.doors:
            told += ["--meta-webhook-url", f"{urls[0]}/webhooks/whatsapp-status"]
            load_directory(dsn)
        simulated = processes.start("simulator", *told, *SIMULATOR, *REPORTS)
        key = await _set_up(dsn, world.catalog(simulator.url), LEADER if world.doors else None)
        apis = [
            processes.start(
                SERVE, module=LAUNCHER, environment={"CARTEIRO_PORT": str(port), **environments(SERVE, place)}
            )
            for place, port in enumerate(ports)
        ]
        workers = [
            processes.start(
                WORKER,
                module=LAUNCHER,
                environment={"CARTEIRO_DATABASE_URL": worker_dsn, **environments(WORKER, place)},
            )
            for place, worker_dsn in enumerate(worker_dsns)
        ]
        steering = Steering(urls, key, seed)
        stack.push_async_callback(steering.close)
        await simulated.ready_at(f"{simulator.url}/_sim/health")
        for api, url in zip(apis, urls, strict=True):
            await api.ready_at(f"{url}/readyz", 60)
        rig = Rig(world, home, cluster, simulator, apis, urls, workers, key, proxy, dsn, steering)
        await _until_workers(rig, world.workers)
        yield rig


async def _until_workers(rig: Rig, n: int, timeout_s: float = 60.0) -> None:
    """Wait until `n` workers have swept."""

    async def have_swept() -> bool:
        return bool((await rig.read("SELECT count(*) AS n FROM worker"))[0]["n"] >= n)

    await until(have_swept, timeout_s, f"{n} workers have swept")


def _cluster(tcp_port: int) -> contextlib.AbstractContextManager[Cluster]:
    return throwaway_cluster(binaries=chosen_binaries(), tcp_port=tcp_port)


def _through(cluster: Cluster, proxy: Proxy) -> str:
    return cluster.tcp_dsn().replace(f":{cluster.port}/", f":{proxy.port}/")


async def _set_up(dsn: str, catalog: str, owner: str | None) -> str:
    """Catalog and credits; an API key."""
    async with open_pool(dsn, min_size=1, max_size=2, application_name="rig") as pool:
        await apply_catalog(pool, catalog)
        await grant_credits(pool, ACCOUNT, CREDITS, cause="rig", actor="rig")
        return await factories.add_key(pool, owner=owner)


def to_ns(at: datetime) -> int:
    """Nanoseconds since 1970, exact to the microsecond."""
    whole = int(at.replace(microsecond=0).timestamp())
    return whole * 1_000_000_000 + at.microsecond * 1_000
