"""Faults of processes, of Postgres and of the ways to it."""

import asyncio
import contextlib
import json
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

import psycopg

from tests.chaos import clock
from tests.chaos.book import LAPSED
from tests.chaos.door_judge import summary
from tests.chaos.fault import Fault, Record
from tests.chaos.rig import Moment, Rig, to_ns
from tests.chaos.steps import WORKER
from tests.chaos.world import World
from tests.support.processes import ChildProcess
from tests.support.waiting import until

GRACE_S = 5.0
"""How long beside the timeout of a call a worker that was asked to stop may take."""
FENCED = ("given_back", "dropped", "exhausted", "lost")
"""Moves that are a claim's own: none after its lease has lapsed."""
DEADLOCK_TRIES = 5
RECOVERY_S = 10.0
"""From Postgres being back to the next call, at most."""
SHIFTS_S = (3_600, -3_600)
SHIFT_TOLERANCE_S = 300


class Nothing(Fault):
    name = "nothing"
    does = "load, pauses, resumes and cancellations alone"
    every_s = (1.0, 1.0)

    async def strike(self, rig: Rig) -> None:
        self.did["seconds"] += 1


class Load(Fault):
    """A kind of load, which breaks nothing: what it has led to says its judge."""

    every_s = (1.0, 1.0)

    async def strike(self, rig: Rig) -> None:
        pass


class Doors(Load):
    name = "doors"
    does = "broadcasts, group links and reminders beside the batches, batches by Meta, and contacts who answer"
    world = World(doors=True, messages_per_s=25.0, orders_every_s=(0.5, 2.0), cancels=0.1)

    def judge(self, record: Record) -> Iterable[str]:
        self.did = summary(record.book)
        for what in ("broadcasts", "group links", "reminders", "follow-ups"):
            if not self.did[what]:
                yield f"there were no {what}"


class Company(Load):
    name = "company"
    does = "up to 100 messages a request, at a rate at which several are due at once"
    world = World(messages_per_request=100, rate_per_s=400)

    def judge(self, record: Record) -> Iterable[str]:
        together = Counter(arrival.arrived_ns for arrival in record.evidence.arrivals)
        self.did["messages in company"] = sum(n for n in together.values() if n > 1)
        self.did["in one request at most"] = max(together.values(), default=0)
        if self.did["messages in company"] < len(record.evidence.arrivals) / 2:
            yield "most messages went alone"


class Kill(Fault):
    name = "kill"
    does = "kill -9 of a random API or worker every few seconds, and a new one in its place"
    every_s = (1.0, 4.0)

    async def strike(self, rig: Rig) -> None:
        dead = self.random.choice(rig.processes)
        if not dead.running:  # another fault was here before
            return
        dead.kill()
        self.did["killed"] += 1
        await self.rest(0.0, 1.0)
        if not dead.running:
            dead.start()


class RollingStop(Fault):
    name = "rolling-stop"
    does = "SIGTERM to one worker after the other; each has to be gone within the timeout of a call and 5 s"
    every_s = (0.5, 2.0)
    longest_s = 0.0
    """From SIGTERM to the end of a worker."""

    async def strike(self, rig: Rig) -> None:
        within_s = rig.world.call_timeout_s + GRACE_S
        for worker in rig.workers:
            asked_s = time.monotonic()
            worker.signal(signal.SIGTERM)
            await _ended(worker, within_s)
            if worker.running:
                rig.findings.append(f"{worker.name} did not end within {within_s:g} s of SIGTERM")
                worker.kill()
            elif worker.returncode:
                rig.findings.append(f"{worker.name} ended with {worker.returncode} after SIGTERM")
            self.longest_s = max(self.longest_s, time.monotonic() - asked_s)
            self.did["stopped"] += 1
            worker.start()
            await self.rest(0.2, 1.5)

    def judge(self, record: Record) -> Iterable[str]:
        yield from super().judge(record)
        self.did[f"gone in {self.longest_s:.1f} s at most"] = 1
        if lapsed := sum(map(len, record.book.lapsed.values())):
            yield f"{lapsed} messages were left under a lease by workers that were asked to stop"


class Freeze(Fault):
    name = "freeze"
    does = "SIGSTOP of a worker in the middle of its calls, SIGCONT when its lease is long over"
    every_s = (0.5, 2.0)
    at_work = (
        "SELECT 1 FROM claim WHERE closed_at IS NULL AND last_slot_at > clock_timestamp() + interval '50 ms'"
        " AND split_part(worker_id, '-', -2) = %s::text"
    )
    """It has calls still to make."""
    tries = 5

    async def strike(self, rig: Rig) -> None:
        worker = await self._freeze_at_work(rig)
        if worker is None:
            return
        since, lease_s = Moment.now(), rig.world.lease_s
        # Not shortened by the end of the load: a lease must have lapsed.
        await asyncio.sleep(self.random.uniform(lease_s + 1.0, lease_s * 2.5))
        worker.signal(signal.SIGCONT)
        rig.frozen.append((worker.pid, since, Moment.now()))
        self.did["frozen at work"] += 1

    def judge(self, record: Record) -> Iterable[str]:
        """What a lapsed claim moves is evidence only, whoever tells it."""
        yield from super().judge(record)
        moved = [
            (event["event"], event["claim_id"], str(event["batch_id"]), event["seqs"])
            for event in record.book.tables["events"]
            if event["event"] in FENCED and event["code"] != LAPSED
            if to_ns(event["at"]) > record.book.lapsed_ns.get(event["claim_id"], sys.maxsize)
        ]
        if moved:
            yield f"moved under a claim that had lapsed: {len(moved)}, such as {moved[:3]}"

    async def _freeze_at_work(self, rig: Rig) -> ChildProcess | None:
        for worker in self.random.sample(rig.workers * self.tries, len(rig.workers) * self.tries):
            worker.signal(signal.SIGSTOP)
            if await rig.read(self.at_work, worker.pid):
                return worker
            worker.signal(signal.SIGCONT)
        return None


class PostgresRestart(Fault):
    name = "postgres-restart"
    does = "Postgres stopped without a checkpoint (immediate), away for up to 4 s, started again"
    every_s = (6.0, 9.0)
    strikes_postgres = True

    async def strike(self, rig: Rig) -> None:
        self.end(rig)
        await asyncio.sleep(self.random.uniform(0.2, 4.0))
        rig.cluster.start()
        rig.came_back.append(Moment.now())
        self.did["restarts"] += 1

    def end(self, rig: Rig) -> None:
        rig.cluster.stop_immediately()

    def judge(self, record: Record) -> Iterable[str]:
        yield from super().judge(record)
        waits_s = recoveries_s(record)
        if waits_s and max(waits_s) > RECOVERY_S:
            yield f"no call for {max(waits_s):.1f} s after Postgres was back"
        if waits_s:
            self.did[f"recovered in {max(waits_s):.1f} s at most"] = 1


class PostgresKill(PostgresRestart):
    name = "postgres-kill"
    does = "kill -9 of Postgres, away for up to 4 s, started again"

    def end(self, rig: Rig) -> None:
        rig.cluster.kill()


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
            self.did["sessions ended"] += 1


class Truncate(Fault):
    name = "truncate"
    does = "TRUNCATE of the job queue's tables every few seconds"
    every_s = (1.0, 3.0)

    async def strike(self, rig: Rig) -> None:
        self.did["truncated"] += 1
        self.did["jobs lost"] += (await rig.read("SELECT count(*) AS n FROM procrastinate_jobs"))[0]["n"]
        for statement in (
            "TRUNCATE procrastinate_jobs, procrastinate_events RESTART IDENTITY CASCADE",
            "DELETE FROM procrastinate_workers",
        ):
            for _ in range(DEADLOCK_TRIES):
                try:
                    await rig.read(statement)
                except psycopg.errors.DeadlockDetected:
                    continue
                break


class Cut(Fault):
    name = "cut"
    does = "three of four workers cut off from Postgres beyond their lease, without a word; then late bytes, or a reset"
    every_s = (2.0, 5.0)
    proxied = True

    async def strike(self, rig: Rig) -> None:
        assert rig.proxy is not None
        self.did["connections cut"] += rig.proxy.cut()
        await asyncio.sleep(self.random.uniform(rig.world.lease_s + 1.0, rig.world.lease_s * 3))
        rig.proxy.mend(reset=self.random.random() < 0.5)
        self.did["cuts"] += 1


class Clocks(Fault):
    name = "clocks"
    does = "two of four workers have a clock that is an hour wrong, one ahead and one behind"
    claims = "SELECT count(*) AS n FROM claim WHERE split_part(worker_id, '-', -2) = %s::text"
    every_s = (1.0, 1.0)

    def environment(self, kind: str, place: int) -> Mapping[str, str]:
        if kind != WORKER or place >= len(SHIFTS_S):
            return {}
        return clock.shifted_by(SHIFTS_S[place], self.home)

    async def strike(self, rig: Rig) -> None:
        """Look whether they are wrong, and whether they are at work all the same."""
        for worker, shift_s in zip(rig.workers, SHIFTS_S, strict=False):
            line = next((line for line in worker.log().splitlines() if "worker_started" in line), None)
            if line is None:
                continue
            told_at = datetime.fromisoformat(json.loads(line)["timestamp"])
            wrong_s = (told_at - datetime.now(UTC)).total_seconds()
            if abs(wrong_s - shift_s) > SHIFT_TOLERANCE_S:
                rig.findings.append(f"the clock of {worker.name} is wrong by {wrong_s:.0f} s, not by {shift_s} s")
            self.did[f"claims of the worker {shift_s:+} s"] = (await rig.read(self.claims, worker.pid))[0]["n"]

    def judge(self, record: Record) -> Iterable[str]:
        if sum(n > 0 for n in self.did.values()) != len(SHIFTS_S):
            yield f"not every worker with a wrong clock was at work: {dict(self.did)}"


def recoveries_s(record: Record) -> list[float]:
    """From each return of Postgres to the next call."""
    waits_s = []
    for back in record.rig.came_back:
        after = [call.arrived_ns for call in record.evidence.arrivals if call.arrived_ns > back.monotonic_ns]
        if after:
            waits_s.append((after[0] - back.monotonic_ns) / 1e9)
    return waits_s


async def _ended(process: ChildProcess, timeout_s: float) -> None:
    """Wait until it ended, or the time is up."""
    with contextlib.suppress(AssertionError):
        await until(lambda: not process.running, timeout_s, "it ended")
