"""The test bed: a durable Postgres of our own, the simulator, the API and workers, all as real processes."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import psycopg

from carteiro.embedded import Cluster, reachable_home
from carteiro.storage.migrations import migrate
from tests.support.processes import ChildProcess, Processes, free_port, running_processes

MANAGERS = 10
START_TIMEOUT_S = 30.0
API_KEY = "bench-key"
DATABASE = "bench"
LATENCY_MS = 20.0
SETTINGS = {
    # Only looked at where statements are counted.
    "shared_preload_libraries": "pg_stat_statements",
    "pg_stat_statements.track": "none",
}
SIMULATOR = ("--latency-ms", f"{LATENCY_MS:g}", "--no-receipts", "--no-magic")


@dataclass
class Bed:
    """What a measurement needs. `environment` is what every process of it runs with."""

    dsn: str
    processes: Processes
    environment: dict[str, str]
    api_url: str
    simulator_url: str
    api: ChildProcess
    simulator_process: ChildProcess
    postgres_pid: int
    key: str = ""
    workers: list[ChildProcess] = field(default_factory=list)
    taken: int = 0
    """Contacts that were in a batch already: each batch has its own."""

    def take(self, n: int) -> int:
        """The first of `n` contacts that nobody had."""
        self.taken += n
        return self.taken - n

    def carteiro(self, *arguments: str) -> str:
        """Run a command to its end; its standard output."""
        command = [sys.executable, "-m", "carteiro", *arguments]
        environment = {**os.environ, **self.environment, "COLUMNS": "400"}
        return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout

    def start_workers(self, n: int, environment: Mapping[str, str] | None = None) -> None:
        self.workers = [
            self.processes.start("worker", name=f"worker-{number}", environment=environment) for number in range(n)
        ]
        wait_until(
            lambda: self.scalar("SELECT count(*) FROM worker WHERE seen_at > now() - interval '3 s'") >= n, "workers"
        )

    def stop_workers(self) -> None:
        for worker in self.workers:
            worker.stop()
        self.workers = []
        self.execute("DELETE FROM worker")

    def post_batch(self, contacts: list[dict[str, Any]], **fields: Any) -> tuple[UUID, float]:
        """Create a batch; (id, seconds from the first byte to the answer)."""
        body = json.dumps(
            {"service": "bench", "template": {"name": "bench", "language": "pt_BR"}, "contacts": contacts, **fields}
        ).encode()
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        with httpx.Client(timeout=120) as client:
            began_s = time.perf_counter()
            answer = client.post(f"{self.api_url}/api/v1/batches", content=body, headers=headers)
            took_s = time.perf_counter() - began_s
        if answer.status_code != 202:
            raise RuntimeError(f"the batch was refused: {answer.status_code} {answer.text[:500]}")
        return UUID(answer.json()["id"]), took_s

    def cancel(self, batch_id: UUID) -> None:
        headers = {"Authorization": f"Bearer {self.key}"}
        httpx.post(f"{self.api_url}/api/v1/batches/{batch_id}/cancel", headers=headers, timeout=60).raise_for_status()

    def sent(self, ids: list[UUID]) -> int:
        """How many messages of these batches are sent."""
        listed = ", ".join(f"'{id}'" for id in ids)
        return int(
            self.scalar(f"SELECT coalesce(sum(sent + delivered), 0) FROM batch_tally WHERE batch_id IN ({listed})")
        )

    def sent_per_second(self, ids: list[UUID], seconds: float) -> float:
        """The rate of the next so many seconds."""
        before, began_s = self.sent(ids), time.perf_counter()
        time.sleep(seconds)
        return (self.sent(ids) - before) / (time.perf_counter() - began_s)

    def simulator(self, method: str, path: str, body: object = None) -> Any:
        answer = httpx.request(method, f"{self.simulator_url}/_sim/{path}", json=body, timeout=60)
        answer.raise_for_status()
        return answer.json() if answer.content else None

    def execute(self, statement: str) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as conn:
            conn.execute(statement.encode())

    def scalar(self, statement: str) -> Any:
        with psycopg.connect(self.dsn, autocommit=True) as conn:
            row = conn.execute(statement.encode()).fetchone()
            return row[0] if row else None


def peak_mb(process: ChildProcess) -> float:
    """The process's largest resident memory, ever."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmHWM"))


def wait_until(condition: Any, what: str, timeout_s: float = START_TIMEOUT_S, every_s: float = 0.05) -> None:
    ends_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > ends_s:
            raise TimeoutError(f"waited {timeout_s:g} s for {what}")
        time.sleep(every_s)


@contextmanager
def test_bed() -> Iterator[Bed]:
    """A fresh database on a durable cluster (fsync on), a simulator without receipts, and one API process."""
    with tempfile.TemporaryDirectory(prefix="carteiro-bench-") as folder:
        home = reachable_home(Path(folder) / "postgres")
        with Cluster(home, durable=True, settings=SETTINGS) as cluster:
            with psycopg.connect(cluster.dsn("postgres"), autocommit=True) as conn:
                conn.execute(f"CREATE DATABASE {DATABASE}".encode())
                row = conn.execute("SHOW data_directory").fetchone()
                assert row is not None
                postgres_pid = int((Path(row[0]) / "postmaster.pid").read_text().split()[0])
            dsn = cluster.dsn(DATABASE)
            migrate(dsn)
            api_port, simulator_port = free_port(), free_port()
            environment = {
                "CARTEIRO_DATABASE_URL": dsn,
                "CARTEIRO_PORT": str(api_port),
                "CARTEIRO_LOG_LEVEL": "WARNING",
                "BENCH_PROVIDER_KEY": API_KEY,
            }
            with running_processes(Path(folder), environment) as processes:
                bed = Bed(
                    dsn,
                    processes,
                    environment,
                    f"http://127.0.0.1:{api_port}",
                    f"http://127.0.0.1:{simulator_port}",
                    processes.start("serve", name="api"),
                    processes.start("simulator", *SIMULATOR, "--port", str(simulator_port), name="simulator"),
                    postgres_pid,
                )
                _set_up(bed, Path(folder))
                yield bed


def _set_up(bed: Bed, folder: Path) -> None:
    catalog = folder / "catalog.toml"
    catalog.write_text(catalog_text(bed.simulator_url))
    bed.carteiro("catalog", "apply", str(catalog))
    bed.carteiro("credits", "grant", "bench", "10000000", "--cause", "benchmark")
    printed = bed.carteiro("keys", "create", "bench")
    bed.key = next(word for word in printed.split() if word.startswith("carteiro_live_"))
    wait_until(lambda: _answers(f"{bed.api_url}/readyz"), "the API")
    wait_until(lambda: _answers(f"{bed.simulator_url}/_sim/health"), "the simulator")


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=2).status_code == 200
    except httpx.HTTPError:
        return False


SERVICE = """
[[account]]
id = "bench"

[[service]]
id = "bench"
account = "bench"
kind = "multibm"
provider = "infobip"
base_url = "{simulator_url}"
api_key_env = "BENCH_PROVIDER_KEY"
messages_per_second = 20000
charge_rule = "sent_only"
category = "UTILITY"

[[template]]
name = "bench"
language = "pt_BR"
category = "UTILITY"
body = "Ola {{{{1}}}}, pedido {{{{2}}}} saiu."
"""

MANAGER = """
[[business_manager]]
id = "bm{number}"
daily_limit = 10000000

[[sender]]
id = "551140001{number:04d}"
business_manager = "bm{number}"
accounts = ["bench"]
quality = "HIGH"
use_waba_limit = true

[[submission]]
template = "bench"
business_manager = "bm{number}"
physical_name = "bench_v1"
status = "APPROVED"
"""


def catalog_text(simulator_url: str) -> str:
    """No limit in the way: ten business managers with ten million a day, a service of 20,000 a second."""
    managers = [MANAGER.format(number=number) for number in range(MANAGERS)]
    return SERVICE.format(simulator_url=simulator_url) + "".join(managers)


def contacts(n: int, first: int = 0) -> list[dict[str, Any]]:
    """`n` different Brazilian mobiles in plain E.164, with two placeholders each."""
    made = []
    for k in range(first, first + n):
        area, last = 11 + k // 10_000_000 % 80, 80_000_000 + k % 10_000_000
        made.append({"phone": f"+55{area}9{last}", "placeholders": [f"Cliente {k}", str(k)]})
    return made
