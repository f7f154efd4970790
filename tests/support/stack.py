"""A whole Carteiro as child processes: simulator, API and workers on a database of their own."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import httpx

from carteiro.services import audit
from carteiro.services.accounts import grant_credits
from carteiro.services.catalog import apply_catalog
from carteiro.storage.pool import Pool, open_pool
from tests.support import factories
from tests.support.evidence import Evidence
from tests.support.processes import ChildProcess, Processes, free_port
from tests.support.waiting import until

ENDED = ("completed", "cancelled", "error")

SHORT = {
    "CARTEIRO_SWEEP_INTERVAL_S": "0.2",
    "CARTEIRO_CALLBACK_ALLOW_PRIVATE": "true",
    "CARTEIRO_CALL_TIMEOUT_S": "1.5",
    "CARTEIRO_LEASE_S": "3",
    "CARTEIRO_LEASE_GRACE_S": "0",
    "CARTEIRO_RECONCILE_AFTER_S": "2",
    "CARTEIRO_BLACKOUT_FIRST_S": "1",
}
"""Timers scaled down, so that what takes minutes in production takes seconds here."""


def window(seconds: float, bucket_s: float = 0.2) -> dict[str, str]:
    """A short window of daily limits, with what has to be short beside it."""
    return {
        "CARTEIRO_WINDOW_S": str(seconds),
        "CARTEIRO_BUCKET_S": str(bucket_s),
        "CARTEIRO_CALL_TIMEOUT_S": "0.3",
        "CARTEIRO_LATENESS_S": "0.05",
    }


class Api:
    """A client of one account."""

    def __init__(self, url: str, key: str) -> None:
        self.http = httpx.AsyncClient(
            base_url=f"{url}/api/v1", headers={"Authorization": f"Bearer {key}"}, timeout=30.0, trust_env=False
        )

    async def post(self, body: Mapping[str, Any], key: str | None = None) -> httpx.Response:
        headers = {"Idempotency-Key": key} if key else {}
        return await self.http.post("/batches", json=body, headers=headers)

    async def create(self, n: int, **options: Any) -> UUID:
        """Create a batch that has to be accepted; its id."""
        answer = await self.post(factories.batch_body(n, **options))
        assert answer.status_code == 202, answer.text
        return UUID(answer.json()["id"])

    async def batch(self, batch_id: UUID) -> dict[str, Any]:
        seen = await self._get(f"/batches/{batch_id}")
        assert sum(seen["counts"].values()) == seen["total"], seen
        return seen

    async def messages(self, batch_id: UUID, **query: Any) -> list[dict[str, Any]]:
        """All of them, page by page."""
        items: list[dict[str, Any]] = []
        page: dict[str, Any] = {"next_cursor": None}
        while not items or page["next_cursor"]:
            cursor = {"cursor": page["next_cursor"]} if page["next_cursor"] else {}
            page = await self._get(f"/batches/{batch_id}/messages", limit=200, **query, **cursor)
            if not page["items"]:
                break
            items += page["items"]
        return items

    async def credits(self) -> int:
        return int((await self._get("/credits"))["balance"])

    async def capacity(self) -> dict[str, Any]:
        return await self._get("/capacity")

    async def _get(self, path: str, **query: Any) -> dict[str, Any]:
        answer = await self.http.get(path, params=query)
        assert answer.status_code == 200, answer.text
        seen: dict[str, Any] = answer.json()
        return seen


class Simulator:
    def __init__(self, url: str) -> None:
        self.url = url
        self.http = httpx.AsyncClient(base_url=f"{url}/_sim", timeout=30.0, trust_env=False)

    @property
    def callback_url(self) -> str:
        return f"{self.url}/_sim/callback"

    async def evidence(self) -> Evidence:
        lines, since = b"", 0
        while True:
            answer = await self.http.get("/calls", params={"since": since, "limit": 10_000})
            lines += answer.content
            since += answer.content.count(b"\n")
            if answer.content.count(b"\n") < 10_000:
                return Evidence.read(lines)

    async def accepted(self) -> int:
        return int((await self.http.get("/stats")).json()["accepted"])

    async def callbacks(self) -> list[dict[str, Any]]:
        kept: list[dict[str, Any]] = (await self.http.get("/callbacks")).json()["callbacks"]
        return kept

    async def fault(self, **fault: Any) -> None:
        answer = await self.http.post("/faults", json=fault)
        assert answer.status_code == 201, answer.text

    async def clear_faults(self) -> None:
        await self.http.delete("/faults")


@dataclass
class Stack:
    pool: Pool
    processes: Processes
    simulator: Simulator
    server: ChildProcess
    api_url: str
    workers: list[ChildProcess] = field(default_factory=list)
    clients: list[Api] = field(default_factory=list)

    async def client(self, account: str = factories.ACCOUNT, owner: str | None = None) -> Api:
        api = Api(self.api_url, await factories.add_key(self.pool, account, owner=owner))
        self.clients.append(api)
        return api

    async def start_workers(self, n: int = 1, environment: Mapping[str, str] | None = None) -> list[ChildProcess]:
        """Start workers, and wait until each has swept once."""
        before = await factories.value(self.pool, "SELECT count(*) FROM worker")
        started = [self.processes.start("worker", environment=environment) for _ in range(n)]
        self.workers += started
        for worker in started:
            await worker.ready(lambda: self._seen(before + n))
        return started

    async def _seen(self, n: int) -> bool:
        seen: bool = await factories.value(self.pool, "SELECT count(*) >= %s FROM worker", n)
        return seen

    async def set_pace(self, *, bm_per_minute: int | None = None, sender_per_second: int | None = None) -> None:
        """The pace of every business manager and sender."""
        async with self.pool.connection() as conn:
            await conn.execute("UPDATE business_manager SET messages_per_minute = %s", (bm_per_minute,))
            await conn.execute("UPDATE sender SET messages_per_second = %s", (sender_per_second,))

    async def settled(self, api: Api, batch_id: UUID, timeout_s: float = 30.0) -> dict[str, Any]:
        """Wait until the batch has ended and its money is settled."""
        seen: dict[str, Any] = {}

        async def is_settled() -> bool:
            nonlocal seen
            self.check_alive()
            seen = await api.batch(batch_id)
            return seen["settled_at"] is not None

        try:
            await until(is_settled, timeout_s, f"batch {batch_id} settled")
        except AssertionError as error:
            raise AssertionError(f"{error}; it is {seen}; {self.log_tails()}") from None
        return seen

    async def counted(self, api: Api, batch_id: UUID, timeout_s: float, **expected: int) -> dict[str, Any]:
        """Wait until the batch has at least so many messages in each of the given states; `gone` is all that left."""
        seen: dict[str, Any] = {}

        async def is_counted() -> bool:
            nonlocal seen
            self.check_alive()
            seen = await api.batch(batch_id)
            counts = seen["counts"]
            counts["gone"] = counts["sent"] + counts["delivered"] + counts["seen"]
            return all(counts[state] >= n for state, n in expected.items())

        try:
            await until(is_counted, timeout_s, f"batch {batch_id} has {expected}")
        except AssertionError as error:
            raise AssertionError(f"{error}; it is {seen}; {self.log_tails()}") from None
        return seen

    async def waiting(self, api: Api, batch_id: UUID, reason: str, timeout_s: float = 5.0) -> dict[str, Any]:
        """Wait until the batch says that it waits for `reason`, and until when."""
        seen: dict[str, Any] = {}

        async def waits() -> bool:
            nonlocal seen
            seen = await api.batch(batch_id)
            return bool(seen["blocked_by"] == reason)

        await until(waits, timeout_s, f"batch {batch_id} waits for {reason}")
        return seen

    def check_alive(self) -> None:
        """Fails when a process ended that nobody stopped."""
        if not self.server.running:
            raise AssertionError(f"the API ended with {self.server.returncode}:\n{self.server.log_tail()}")
        for worker in self.workers:
            if not worker.running and worker.returncode not in (0, -9):
                raise AssertionError(f"{worker.name} ended with {worker.returncode}:\n{worker.log_tail()}")

    def log_tails(self, characters: int = 1500) -> str:
        return "\n".join(f"{child.name}:\n{child.log_tail(characters)}" for child in [*self.workers, self.server])

    async def check(self) -> Evidence:
        """Nothing was sent twice, the audit is clean, and no process ended by itself; answers the evidence."""
        self.check_alive()
        evidence = await self.simulator.evidence()
        doubles = evidence.doubles()
        assert not doubles, doubles
        violations = await audit.violations(self.pool, lookback=audit.EVERYTHING)
        assert not violations, violations
        async with self.pool.connection() as conn:
            cursor = await conn.execute(
                "SELECT b.id FROM batch b WHERE b.total <> (SELECT count(*) FROM message m WHERE m.batch_id = b.id)"
                " OR b.total <> (SELECT sum(t.pending + t.pending_send + t.unknown + t.sent + t.delivered + t.seen"
                " + t.failed + t.unsent) FROM batch_tally t WHERE t.batch_id = b.id)"
            )
            uneven = await cursor.fetchall()
        assert not uneven, uneven
        return evidence


@contextlib.asynccontextmanager
async def running_stack(
    dsn: str,
    processes: Processes,
    catalog: str | Mapping[str, Any],
    *,
    workers: int = 1,
    settings: Mapping[str, str] | None = None,
    simulator: Sequence[str] = (),
    credits: int = 100_000,
) -> AsyncIterator[Stack]:
    """Start everything on a migrated database. `catalog`: options of `factories.catalog_text`, or a whole text.

    After a block without an error the promises are checked.
    """
    simulator_port, api_port = free_port(), free_port()
    simulator_url, api_url = f"http://127.0.0.1:{simulator_port}", f"http://127.0.0.1:{api_port}"
    processes.environment |= {
        **SHORT,
        "INFOBIP_KEY": "any",
        "CARTEIRO_PORT": str(api_port),
        "CARTEIRO_PUBLIC_URL": api_url,
        **(settings or {}),
    }
    # Without dedupe a message that is sent twice is taken twice, and seen to be.
    options = ["--port", str(simulator_port), "--no-magic", "--no-dedupe", *simulator]
    simulated = processes.start("simulator", *options)
    server = processes.start("serve")
    async with contextlib.AsyncExitStack() as opened:
        pool = await opened.enter_async_context(open_pool(dsn, min_size=1, max_size=4, application_name="tests"))
        text = catalog if isinstance(catalog, str) else factories.catalog_text(**catalog)
        await apply_catalog(pool, text.replace(factories.SERVICE_FIELDS["base_url"], simulator_url))
        async with pool.connection() as conn:
            cursor = await conn.execute("SELECT id FROM account WHERE bills_to IS NULL")
            payers = [payer for (payer,) in await cursor.fetchall()]
        for payer in payers:
            if credits:
                await grant_credits(pool, payer, credits, cause="test", actor="test")
        stack = Stack(pool, processes, Simulator(simulator_url), server, api_url)
        opened.push_async_callback(stack.simulator.http.aclose)
        await asyncio.gather(
            stack.start_workers(workers),
            simulated.ready_at(f"{simulator_url}/_sim/health"),
            server.ready_at(f"{api_url}/readyz"),
        )
        yield stack
        await stack.check()
        for api in stack.clients:
            await api.http.aclose()


def now_ns() -> int:
    """The clock of the evidence's `arrived_ns`."""
    return time.monotonic_ns()
