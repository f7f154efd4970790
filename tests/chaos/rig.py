"""What is tried: a Postgres of its own, the simulator, two APIs and four workers, all of them real processes."""

import contextlib
from collections.abc import AsyncIterator, Mapping
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
from tests.support import factories
from tests.support.databases import chosen_binaries
from tests.support.processes import ChildProcess, free_port, running_processes
from tests.support.stack import SHORT, Simulator, window
from tests.support.waiting import until

APIS, WORKERS = 2, 4
WINDOW_S = 20.0
CREDITS = 100_000

SETTINGS: Mapping[str, str] = {
    **SHORT,
    **window(WINDOW_S),
    "CARTEIRO_CALL_TIMEOUT_S": "0.5",
    "CARTEIRO_LATENESS_S": "0.15",
    "CARTEIRO_BLACKOUT_LONGEST_S": "4",
    "CARTEIRO_ASSUME_DELIVERED_AFTER_S": "30",
}
CALL_TIMEOUT_S = float(SETTINGS["CARTEIRO_CALL_TIMEOUT_S"])
LATENESS_S = float(SETTINGS["CARTEIRO_LATENESS_S"])
LEASE_S = float(SETTINGS["CARTEIRO_LEASE_S"])

SIMULATOR = ["--latency-ms", "30", "--jitter-ms", "30", "--no-dedupe", "--no-magic"]
"""It takes an id again that it has taken before: a second call would be seen to have been one."""
REPORTS = ["--receipt-attempts", "12", "--receipt-retry-ms", "200"]

ACCOUNT = factories.ACCOUNT
SERVICES = {"acme-utility": "sent_only", "acme-full": "full"}
MANAGER_LIMITS = {"acme-bm1": 280, "acme-bm2": 280, "acme-bm3": 280, "acme-bm4": 280}
SENDER_LIMITS = {"acme-bm4": 110}
"""Limits of each sender's own, by business manager; where there is none only the business manager's counts."""
SENDERS_EACH = 2
RATE_PER_S = 40
"""Of each service. Together they could send more in a window than the limits allow."""


@dataclass(frozen=True, slots=True)
class Moment:
    """One instant by both clocks, in nanoseconds."""

    monotonic_ns: int
    wall_ns: int


@dataclass
class Rig:
    cluster: Cluster
    simulator: Simulator
    apis: list[ChildProcess]
    api_urls: list[str]
    workers: list[ChildProcess]
    key: str
    proxy: Proxy | None
    dsn: str
    came_back: list[Moment] = field(default_factory=list)
    """When Postgres answered again after it had been stopped."""
    frozen: list[tuple[int, Moment, Moment]] = field(default_factory=list)
    """(process id, from, until) of workers that were stopped beyond their lease."""
    findings: list[str] = field(default_factory=list)
    """What a fault itself saw that must not be."""

    @property
    def processes(self) -> list[ChildProcess]:
        return [*self.apis, *self.workers]

    async def read(self, query: str, *params: object) -> list[dict[str, Any]]:
        """Rows of a query, on a connection that is none of the product's."""
        async with await psycopg.AsyncConnection.connect(
            self.dsn, autocommit=True, row_factory=dict_row, options="-c TimeZone=UTC", connect_timeout=5
        ) as conn:
            cursor = await conn.execute(query.encode(), params)
            return await cursor.fetchall() if cursor.description else []

    def log_tails(self, characters: int = 1_000) -> str:
        return "\n".join(f"{child.name}:\n{child.log_tail(characters)}" for child in self.processes)


@contextlib.asynccontextmanager
async def running_rig(
    home: Path, *, seed: int, proxied: bool = False, worker_environments: Mapping[int, Mapping[str, str]] | None = None
) -> AsyncIterator[Rig]:
    """Everything started and ready. `proxied`: all workers but the last reach Postgres through the rig's proxy.
    `worker_environments`: more variables of single workers, by their place.
    """
    home.mkdir(parents=True, exist_ok=True)
    async with contextlib.AsyncExitStack() as stack:
        cluster = stack.enter_context(_cluster(free_port()))
        migrate(cluster.dsn())
        proxy = await stack.enter_async_context(Proxy(cluster.port)) if proxied else None
        worker_dsns = [cluster.dsn()] * WORKERS
        if proxy is not None:
            worker_dsns[:-1] = [_through(cluster, proxy)] * (WORKERS - 1)
        ports = [free_port() for _ in range(APIS)]
        urls = [f"http://127.0.0.1:{port}" for port in ports]
        environment = {**SETTINGS, "INFOBIP_KEY": "any", "CARTEIRO_PUBLIC_URL": urls[0]}
        processes = stack.enter_context(running_processes(home, environment))
        simulator_port = free_port()
        simulator = Simulator(f"http://127.0.0.1:{simulator_port}")
        stack.push_async_callback(simulator.http.aclose)
        simulated = processes.start(
            "simulator", "--port", str(simulator_port), "--seed", str(seed % 2**31), *SIMULATOR, *REPORTS
        )
        key = await _set_up(cluster.dsn(), simulator.url)
        apis = [
            processes.start("serve", environment={"CARTEIRO_DATABASE_URL": cluster.dsn(), "CARTEIRO_PORT": str(port)})
            for port in ports
        ]
        more = worker_environments or {}
        workers = [
            processes.start("worker", environment={"CARTEIRO_DATABASE_URL": worker_dsn, **more.get(place, {})})
            for place, worker_dsn in enumerate(worker_dsns)
        ]
        await simulated.ready_at(f"{simulator.url}/_sim/health")
        for api, url in zip(apis, urls, strict=True):
            await api.ready_at(f"{url}/readyz", 60)
        rig = Rig(cluster, simulator, apis, urls, workers, key, proxy, cluster.dsn())
        await until_workers(rig, WORKERS)
        yield rig


async def until_workers(rig: Rig, n: int, timeout_s: float = 60.0) -> None:
    """Wait until `n` workers have swept."""

    async def have_swept() -> bool:
        return bool((await rig.read("SELECT count(*) AS n FROM worker"))[0]["n"] >= n)

    await until(have_swept, timeout_s, f"{n} workers have swept")


def _cluster(tcp_port: int) -> contextlib.AbstractContextManager[Cluster]:
    return throwaway_cluster(binaries=chosen_binaries(), tcp_port=tcp_port)


def _through(cluster: Cluster, proxy: Proxy) -> str:
    return cluster.tcp_dsn().replace(f":{cluster.port}/", f":{proxy.port}/")


async def _set_up(dsn: str, base_url: str) -> str:
    """Catalog and credits; an API key."""
    async with open_pool(dsn, min_size=1, max_size=2, application_name="rig") as pool:
        await apply_catalog(pool, catalog().replace(factories.SERVICE_FIELDS["base_url"], base_url))
        await grant_credits(pool, ACCOUNT, CREDITS, cause="rig", actor="rig")
        return await factories.add_key(pool)


def catalog() -> str:
    """One account with a service for each charge rule, and a template that all business managers have approved."""
    tables = [f'[[account]]\nid = "{ACCOUNT}"', f'[[template]]\nname = "{factories.TEMPLATE}"\ncategory = "UTILITY"']
    tables[-1] += f'\nbody = "{factories.BODY}"'
    for service, rule in SERVICES.items():
        fields = {**factories.SERVICE_FIELDS, "messages_per_second": RATE_PER_S, "charge_rule": rule}
        lines = [f"{name} = {given if isinstance(given, int) else repr(given)}" for name, given in fields.items()]
        tables.append("\n".join([f'[[service]]\nid = "{service}"\naccount = "{ACCOUNT}"', *lines]))
    for number, (manager, limit) in enumerate(MANAGER_LIMITS.items(), 1):
        tables.append(f'[[business_manager]]\nid = "{manager}"\ndaily_limit = {limit}')
        own = SENDER_LIMITS.get(manager)
        for place in range(1, SENDERS_EACH + 1):
            limited = "use_waba_limit = true" if own is None else f"daily_limit = {own}"
            tables.append(
                f'[[sender]]\nid = "{factories.sender_id(number, place)}"\nbusiness_manager = "{manager}"\n'
                f'accounts = ["{ACCOUNT}"]\n{limited}'
            )
        tables.append(
            f'[[submission]]\ntemplate = "{factories.TEMPLATE}"\nbusiness_manager = "{manager}"\n'
            f'physical_name = "{factories.TEMPLATE}_v{number}"\nstatus = "APPROVED"'
        )
    return "\n\n".join(tables) + "\n"


def to_ns(at: datetime) -> int:
    """Nanoseconds since 1970, exact to the microsecond."""
    whole = int(at.replace(microsecond=0).timestamp())
    return whole * 1_000_000_000 + at.microsecond * 1_000
