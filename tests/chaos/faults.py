"""What is done to the rig under load. Each fault has a name, begins with `start` and has undone itself after `stop`."""

import asyncio
import contextlib
import random
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import psycopg

from tests.chaos import clock
from tests.chaos.rig import CALL_TIMEOUT_S, LEASE_S, Moment, Rig
from tests.support.processes import ChildProcess
from tests.support.waiting import until

GRACE_S = 5.0
"""How long beside the timeout of a call a worker that was asked to stop may take."""


def now() -> Moment:
    return Moment(time.monotonic_ns(), time.time_ns())


class Fault:
    """Strikes again and again, at random intervals. A strike that has begun is finished, and undone, before `stop`
    returns.
    """

    name: ClassVar[str]
    does: ClassVar[str]
    every_s: ClassVar[tuple[float, float]]
    proxied: ClassVar[bool] = False
    """Workers, all but one, reach Postgres through the proxy."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(f"{seed}-{self.name}")
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @classmethod
    def worker_environments(cls, home: Path) -> dict[int, Mapping[str, str]]:
        """More variables of single workers, by their place."""
        return {}

    async def start(self, rig: Rig) -> None:
        self._task = asyncio.create_task(self._run(rig))

    async def stop(self, rig: Rig) -> None:
        self._stopping.set()
        if self._task is not None:
            await self._task

    async def strike(self, rig: Rig) -> None:
        raise NotImplementedError

    async def _run(self, rig: Rig) -> None:
        while not self._stopping.is_set():
            await self.rest(*self.every_s)
            if not self._stopping.is_set():
                await self.strike(rig)

    async def rest(self, least_s: float, most_s: float) -> None:
        """Wait a random time, or until the fault is to end."""
        try:
            async with asyncio.timeout(self.random.uniform(least_s, most_s)):
                await self._stopping.wait()
        except TimeoutError:
            pass


class Nothing(Fault):
    name = "nothing"
    does = "load, pauses, resumes and cancellations alone"
    every_s = (1.0, 1.0)

    async def strike(self, rig: Rig) -> None:
        pass


class Kill(Fault):
    name = "kill"
    does = "kill -9 of a random API or worker every few seconds, and a new one in its place"
    every_s = (1.0, 4.0)

    async def strike(self, rig: Rig) -> None:
        dead = self.random.choice(rig.processes)
        dead.kill()
        await self.rest(0.0, 1.0)
        dead.start()


class RollingStop(Fault):
    name = "rolling-stop"
    does = "SIGTERM to one worker after the other; each has to be gone within the timeout of a call and 5 s"
    every_s = (0.5, 2.0)

    async def strike(self, rig: Rig) -> None:
        for worker in rig.workers:
            worker.signal(signal.SIGTERM)
            await _ended(worker, CALL_TIMEOUT_S + GRACE_S)
            if worker.running:
                rig.findings.append(f"{worker.name} did not end within {CALL_TIMEOUT_S + GRACE_S:g} s of SIGTERM")
                worker.kill()
            elif worker.returncode:
                rig.findings.append(f"{worker.name} ended with {worker.returncode} after SIGTERM")
            worker.start()
            await self.rest(0.2, 1.5)


class Freeze(Fault):
    name = "freeze"
    does = "SIGSTOP of a worker in the middle of its calls, SIGCONT when its lease is long over"
    every_s = (0.5, 2.0)
    open_claims = "SELECT 1 FROM claim WHERE closed_at IS NULL AND split_part(worker_id, '-', -2) = %s::text"

    async def strike(self, rig: Rig) -> None:
        worker = await self._freeze_at_work(rig)
        if worker is None:
            return
        since = now()
        # Not shortened by the end of the load: a lease must have lapsed.
        await asyncio.sleep(self.random.uniform(LEASE_S + 1.0, LEASE_S * 2.5))
        worker.signal(signal.SIGCONT)
        rig.frozen.append((worker.pid, since, now()))

    async def _freeze_at_work(self, rig: Rig) -> ChildProcess | None:
        for worker in self.random.sample(rig.workers, len(rig.workers)):
            worker.signal(signal.SIGSTOP)
            if await rig.read(self.open_claims, worker.pid):
                return worker
            worker.signal(signal.SIGCONT)
        return None


class PostgresRestart(Fault):
    name = "postgres-restart"
    does = "Postgres stopped without a checkpoint (immediate), away for up to 4 s, started again"
    every_s = (6.0, 9.0)

    async def strike(self, rig: Rig) -> None:
        rig.cluster.stop_immediately()
        await asyncio.sleep(self.random.uniform(0.2, 4.0))
        rig.cluster.start()
        rig.came_back.append(now())


class PostgresKill(PostgresRestart):
    name = "postgres-kill"
    does = "kill -9 of Postgres, away for up to 4 s, started again"

    async def strike(self, rig: Rig) -> None:
        rig.cluster.kill()
        await asyncio.sleep(self.random.uniform(0.2, 4.0))
        rig.cluster.start()
        rig.came_back.append(now())


class Terminate(Fault):
    name = "terminate"
    does = "pg_terminate_backend of a random session of ours once a second"
    every_s = (0.8, 1.2)

    async def strike(self, rig: Rig) -> None:
        sessions = await rig.read(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            " AND starts_with(application_name, 'carteiro') ORDER BY pid"
        )
        if sessions:
            await rig.read("SELECT pg_terminate_backend(%s)", self.random.choice(sessions)["pid"])


class Truncate(Fault):
    name = "truncate"
    does = "TRUNCATE of the job queue's tables every few seconds"
    every_s = (1.0, 3.0)

    async def strike(self, rig: Rig) -> None:
        for statement in (
            "TRUNCATE procrastinate_jobs, procrastinate_events RESTART IDENTITY CASCADE",
            "DELETE FROM procrastinate_workers",
        ):
            try:
                await rig.read(statement)
            except psycopg.errors.DeadlockDetected:
                continue


class Cut(Fault):
    name = "cut"
    does = "three of four workers cut off from Postgres beyond their lease, without a word; then late bytes, or a reset"
    every_s = (2.0, 5.0)
    proxied = True

    async def strike(self, rig: Rig) -> None:
        assert rig.proxy is not None
        rig.proxy.cut()
        await asyncio.sleep(self.random.uniform(LEASE_S + 1.0, LEASE_S * 3))
        rig.proxy.mend(reset=self.random.random() < 0.5)


class ProviderFault(Fault):
    """Faults of the simulator, in force for a while and lifted for a while."""

    every_s = (0.5, 2.0)
    lasts_s: ClassVar[tuple[float, float]] = (2.0, 6.0)

    def plans(self) -> Sequence[dict[str, Any]]:
        """The first that strikes a call counts."""
        raise NotImplementedError

    async def strike(self, rig: Rig) -> None:
        for plan in self.plans():
            await rig.simulator.fault(**plan)
        await self.rest(*self.lasts_s)
        await rig.simulator.clear_faults()


class Outage(ProviderFault):
    name = "outage"
    does = "the provider refuses or resets everything, its log too, and recovers"

    def plans(self) -> Sequence[dict[str, Any]]:
        down = self.random.choice(
            [
                {"answer": "reset"},
                {"answer": "http", "http_status": 503, "envelope": "newer"},
                {"answer": "http", "http_status": 502, "envelope": "none"},
            ]
        )
        return [{"plan": down}, {"plan": down, "on": "log"}]


class Throttle(ProviderFault):
    name = "throttle"
    does = "a storm of 429, with Retry-After in seconds, as a date, 0 and absent"

    def plans(self) -> Sequence[dict[str, Any]]:
        plan = {"answer": "http", "http_status": 429}
        return [
            {"plan": plan | {"retry_after": after}, "probability": 0.4}
            for after in self.random.sample(["1", "0", "date+1", None], 3)
        ]


RESETS: list[dict[str, Any]] = [
    {"plan": {"answer": "reset", "accept": True}, "probability": 0.15},
    {"plan": {"answer": "close", "accept": True, "log_lag_ms": 1_000}, "probability": 0.1},
    {
        "plan": {"answer": "http", "http_status": 504, "envelope": "none", "accept": True, "receipt": "none"},
        "probability": 0.1,
    },
    {"plan": {"answer": "reset"}, "probability": 0.1},
]


class Resets(ProviderFault):
    name = "resets"
    does = "connections end without an answer; most messages were taken, some not; the log lags, reports are missing"
    lasts_s = (4.0, 8.0)

    def plans(self) -> Sequence[dict[str, Any]]:
        return RESETS


class Silence(ProviderFault):
    name = "silence"
    does = "calls that are never answered: some were taken, some were not"

    def plans(self) -> Sequence[dict[str, Any]]:
        return [
            {"plan": {"answer": "hang", "accept": True}, "probability": 0.3},
            {"plan": {"answer": "hang"}, "probability": 0.3},
        ]


class LogDown(ProviderFault):
    name = "log-down"
    does = "lost answers while the provider's log is unreachable"

    def plans(self) -> Sequence[dict[str, Any]]:
        down = self.random.choice([{"answer": "http", "http_status": 503}, {"answer": "hang"}, {"answer": "reset"}])
        return [*RESETS, {"plan": down, "on": "log"}]


class Clocks(Fault):
    name = "clocks"
    does = "two of four workers have a clock that is an hour wrong, one ahead and one behind"
    every_s = (1.0, 1.0)

    @classmethod
    def worker_environments(cls, home: Path) -> dict[int, Mapping[str, str]]:
        return {0: clock.shifted_by(3_600, home), 1: clock.shifted_by(-3_600, home)}

    async def strike(self, rig: Rig) -> None:
        pass


FAULTS: dict[str, type[Fault]] = {
    fault.name: fault
    for fault in (
        Nothing,
        Kill,
        RollingStop,
        Freeze,
        PostgresRestart,
        PostgresKill,
        Terminate,
        Truncate,
        Cut,
        Outage,
        Throttle,
        Resets,
        Silence,
        LogDown,
        Clocks,
    )
}


async def _ended(process: ChildProcess, timeout_s: float) -> None:
    """Wait until it ended, or the time is up."""
    with contextlib.suppress(AssertionError):
        await until(lambda: not process.running, timeout_s, "it ended")


def chosen(names: str) -> list[type[Fault]]:
    """`kill+truncate`: faults that strike together. Raises KeyError."""
    return [FAULTS[name] for name in names.split("+")]
