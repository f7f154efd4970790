"""Messages a second through the whole path, beside the floor: the same client with no database."""

import json
import subprocess
import sys
from dataclasses import dataclass
from uuid import UUID

from tests.benchmarks.bed import API_KEY, Bed, contacts, wait_until
from tests.benchmarks.cpu import tree_s

MESSAGES = 30_000
ROUNDS = 3
IN_FLIGHT = 64
LONGEST_S = 180.0


@dataclass(frozen=True)
class Setting:
    """What is varied. `workers` are also the processes of the floor that a run is compared with."""

    workers: int = 2
    latency_ms: float = 20.0
    together: int = 1
    """Messages a request at most."""
    batches: int = 1
    messages: int = MESSAGES
    rounds: int = 1


RUNS = (
    Setting(rounds=ROUNDS),
    Setting(together=100, messages=100_000, rounds=ROUNDS),
    Setting(workers=1),
    Setting(workers=4),
    Setting(batches=50),
    Setting(latency_ms=0),
    Setting(latency_ms=200, messages=12_000),
)


@dataclass(frozen=True)
class Rate:
    """What one run came to. Everything but the rate is per message; CPU in microseconds."""

    setting: Setting
    per_second: float
    worker_us: float
    simulator_us: float
    postgres_us: float = 0.0
    commits: float = 0.0
    wal_bytes: float = 0.0
    requests: float = 1.0


@dataclass(frozen=True)
class Round:
    """Ours right after the floor of as many processes: a machine's speed changes within minutes."""

    floor: Rate
    ours: Rate

    @property
    def ratio(self) -> float:
        return self.ours.per_second / self.floor.per_second


@dataclass(frozen=True)
class Rounds:
    """All of one setting, the slowest first."""

    each: list[Round]

    @property
    def middle(self) -> Round:
        return self.each[len(self.each) // 2]


def measure_dispatch(bed: Bed) -> list[Rounds]:
    """Of each setting."""
    return [
        Rounds(
            sorted((measure_round(bed, setting) for _ in range(setting.rounds)), key=lambda measured: measured.ratio)
        )
        for setting in RUNS
    ]


def measure_round(bed: Bed, setting: Setting) -> Round:
    messages = min(setting.messages, MESSAGES)
    return Round(measure_floor(bed, setting.workers, setting.latency_ms, messages=messages), measure_ours(bed, setting))


def measure_floor(bed: Bed, processes: int, latency_ms: float = 20.0, *, messages: int = MESSAGES) -> Rate:
    """Bare loops over the same HTTP client: as many processes, IN_FLIGHT calls in flight each, nothing stored."""
    bed.simulator("POST", "reset")
    bed.simulator("POST", "settings", {"latency_ms": latency_ms})
    before_s = tree_s(bed.simulator_process.pid)
    each = messages // processes
    command = [sys.executable, "-m", "tests.benchmarks.floor", bed.simulator_url, API_KEY, str(each), str(IN_FLIGHT)]
    loops = [subprocess.Popen([*command, str(number)], stdout=subprocess.PIPE) for number in range(processes)]
    told = [json.loads(loop.communicate(timeout=LONGEST_S)[0]) for loop in loops]
    n = each * processes
    return Rate(
        Setting(processes, latency_ms),
        n / max(one["seconds"] for one in told),
        worker_us=sum(one["cpu_s"] for one in told) / n * 1e6,
        simulator_us=(tree_s(bed.simulator_process.pid) - before_s) / n * 1e6,
    )


def measure_ours(bed: Bed, setting: Setting) -> Rate:
    """The whole path with credits, capacity, pacing and audit on. From the first call at the provider to the last."""
    bed.simulator("POST", "reset")
    bed.simulator("POST", "settings", {"latency_ms": setting.latency_ms})
    bed.execute(f"UPDATE service SET messages_per_request = {setting.together}")
    bed.start_workers(setting.workers)
    before, cpu_before = _database(bed), _cpu(bed)
    each = setting.messages // setting.batches
    ids = [bed.post_batch(contacts(each, first=bed.take(each)))[0] for _ in range(setting.batches)]
    wait_until(lambda: bed.sent(ids) == each * setting.batches, "all messages sent", LONGEST_S)
    after, cpu = _database(bed), _cpu(bed)
    bed.stop_workers()
    n = each * setting.batches
    stats = bed.simulator("GET", "stats")
    if stats["accepted"] != n:
        raise RuntimeError(f"the simulator accepted {stats['accepted']} of {n}")
    worker_us, postgres_us, simulator_us = ((b - a) / n * 1e6 for a, b in zip(cpu_before, cpu, strict=True))
    return Rate(
        setting,
        n / _span_s(bed, ids),
        worker_us,
        simulator_us,
        postgres_us,
        commits=(after[0] - before[0]) / n,
        wal_bytes=(after[1] - before[1]) / n,
        requests=stats["requests"]["send"] / n,
    )


def _cpu(bed: Bed) -> tuple[float, float, float]:
    """Seconds of the workers, of Postgres and of the simulator."""
    workers_s = sum(tree_s(worker.pid) for worker in bed.workers)
    return workers_s, tree_s(bed.postgres_pid), tree_s(bed.simulator_process.pid)


def _span_s(bed: Bed, ids: list[UUID]) -> float:
    """From the first call's slot to the last one's answer."""
    listed = ", ".join(f"'{id}'" for id in ids)
    return float(
        bed.scalar(f"SELECT extract(epoch FROM max(sent_at) - min(slot_at)) FROM message WHERE batch_id IN ({listed})")
    )


def _database(bed: Bed) -> tuple[int, int]:
    commits = bed.scalar("SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()")
    return int(commits), int(bed.scalar("SELECT pg_current_wal_lsn() - '0/0'::pg_lsn"))
