"""What processes cost while there is nothing to do."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.bed import DATABASE, Bed, wait_until

SECONDS = 20.0
SETTLED_S = 6.0
WORKERS = 2


@dataclass(frozen=True)
class Idle:
    workers: int
    worker_core: float
    """Of one core, a worker on average."""
    api_core: float
    statements_per_s: float
    """Of a worker, on average; transactions' BEGIN and COMMIT count."""
    commits_per_s: float
    """Of all processes together."""


def measure_idle(bed: Bed) -> Idle:
    """Two workers and an API, all batches done. Statements are counted by Postgres."""
    bed.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
    bed.execute(f"ALTER DATABASE {DATABASE} SET pg_stat_statements.track = 'top'")
    bed.start_workers(WORKERS)
    began_s = time.monotonic()
    wait_until(lambda: time.monotonic() > began_s + SETTLED_S, "the workers to settle", SETTLED_S + 5)
    pids = [worker.pid for worker in bed.workers]
    bed.execute("SELECT pg_stat_statements_reset()")
    commits, began_s = _commits(bed), time.monotonic()
    cpu_s, api_cpu_s = sum(map(_cpu_s, pids)), _cpu_s(bed.api.pid)
    time.sleep(SECONDS)
    took_s = time.monotonic() - began_s
    idle = Idle(
        workers=WORKERS,
        worker_core=(sum(map(_cpu_s, pids)) - cpu_s) / took_s / WORKERS,
        api_core=(_cpu_s(bed.api.pid) - api_cpu_s) / took_s,
        # Less the ones of this process.
        statements_per_s=max(0, bed.scalar(STATEMENTS)) / took_s / WORKERS,
        commits_per_s=(_commits(bed) - commits) / took_s,
    )
    bed.stop_workers()
    bed.execute(f"ALTER DATABASE {DATABASE} RESET pg_stat_statements.track")
    return idle


STATEMENTS = """
SELECT sum(calls)::int FROM pg_stat_statements
WHERE toplevel AND query NOT LIKE '%pg_stat_%'
    AND dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


def _commits(bed: Bed) -> int:
    return int(bed.scalar("SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"))


def _cpu_s(pid: int) -> float:
    """User and system time of a process, its threads included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
