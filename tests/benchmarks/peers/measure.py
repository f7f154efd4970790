"""Each peer by itself on the same bed: filled, then two worker processes."""

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import psycopg

from tests.benchmarks.bed import API_KEY, LATENCY_MS, Bed, wait_until
from tests.benchmarks.cpu import tree_s
from tests.benchmarks.dispatch import Rate, Setting, measure_ours
from tests.benchmarks.peers.place import Place
from tests.benchmarks.peers.redis_server import PROGRAM, Redis, has_redis, running_redis

MESSAGES = 12_000
WORKERS = 2
LONGEST_S = 180.0
DATABASE = "peer"
PACKAGE = "tests.benchmarks.peers"
RATE = """
    WITH began AS (SELECT max(first_at) AS at FROM (SELECT min(at) AS first_at FROM sent GROUP BY by) AS each)
    SELECT count(*) / extract(epoch FROM max(sent.at) - min(began.at)) FROM sent, began WHERE sent.at > began.at
"""
"""Messages a second from when all workers are sending to the last UPDATE: what a worker imports is not counted."""


@dataclass(frozen=True)
class Peer:
    name: str
    package: str
    """Without it the peer is skipped."""
    module: str
    how: str
    redis: bool = False


PEERS = (
    Peer("Procrastinate", "procrastinate", "procrastinate_worker", "64 jobs at a time, jobs deleted"),
    Peer("pgqueuer", "pgqueuer", "pgqueuer_worker", "asyncpg, 500 jobs a fetch"),
    Peer("arq", "arq", "arq_worker", "Redis, hiredis, 100 jobs at a time, no results", redis=True),
    Peer("Celery", "celery", "celery_worker", "Redis, hiredis, 64 threads, late acks, no results", redis=True),
)


@dataclass(frozen=True)
class PeerRate:
    """CPU in microseconds a message."""

    peer: Peer
    per_second: float
    worker_us: float
    servers_us: float
    """Postgres and Redis."""
    simulator_us: float


@dataclass(frozen=True)
class Comparison:
    ours: Rate
    rates: list[PeerRate]
    """The fastest first."""
    skipped: list[tuple[Peer, str]]


def measure_peers(bed: Bed) -> Comparison:
    """Ours again beside them, by as many workers: ratios travel within the same minutes."""
    skipped = [(peer, why) for peer in PEERS if (why := _why_not(peer))]
    absent = {peer for peer, _ in skipped}
    ours = measure_ours(bed, Setting(WORKERS, LATENCY_MS))
    rates = [_measure(bed, peer) for peer in PEERS if peer not in absent]
    return Comparison(ours, sorted(rates, key=lambda rate: -rate.per_second), skipped)


def _why_not(peer: Peer) -> str:
    if importlib.util.find_spec(peer.package) is None:
        return f"skipped: {peer.package} is not installed"
    if peer.redis and not has_redis():
        return f"skipped: {PROGRAM} is not installed"
    return ""


def _measure(bed: Bed, peer: Peer) -> PeerRate:
    bed.simulator("POST", "reset")
    bed.simulator("POST", "settings", {"latency_ms": LATENCY_MS})
    with _database(bed) as dsn, running_redis() if peer.redis else nullcontext() as redis:
        place = Place(dsn, redis.socket if redis else "", bed.simulator_url, API_KEY, MESSAGES)
        _fill(bed, peer, place)
        rate = _run(bed, peer, place, redis)
    accepted = bed.simulator("GET", "stats")["accepted"]
    if accepted != MESSAGES:
        raise RuntimeError(f"{peer.name}: the simulator accepted {accepted} of {MESSAGES}")
    return rate


@contextmanager
def _database(bed: Bed) -> Iterator[str]:
    """The address of a database with a row for each message; it is dropped afterwards."""
    bed.execute(f"CREATE DATABASE {DATABASE}")
    dsn = urlsplit(bed.dsn)._replace(path=f"/{DATABASE}").geturl()
    try:
        with psycopg.connect(dsn, autocommit=True) as conn:
            conn.execute("CREATE TABLE sent (seq int PRIMARY KEY, at timestamptz, by int) WITH (fillfactor = 60)")
            conn.execute("INSERT INTO sent (seq) SELECT generate_series(1, %s)", (MESSAGES,))
        yield dsn
    finally:
        bed.execute(f"DROP DATABASE {DATABASE} WITH (FORCE)")


def _fill(bed: Bed, peer: Peer, place: Place) -> None:
    child = bed.processes.start("fill", name=peer.module, environment=place.environment(), module=_module(peer))
    if child.wait(LONGEST_S) != 0:
        raise RuntimeError(f"{peer.name} could not be filled:\n{child.log_tail()}")


def _run(bed: Bed, peer: Peer, place: Place, redis: Redis | None) -> PeerRate:
    workers = [
        bed.processes.start("work", name=peer.module, environment=place.environment(), module=_module(peer))
        for _ in range(WORKERS)
    ]
    pids = [worker.pid for worker in workers]
    try:
        with psycopg.connect(place.dsn, autocommit=True) as conn:
            wait_until(lambda: _scalar(conn, "SELECT count(DISTINCT by) FROM sent") == WORKERS, "all workers send")
            before, cpu_before = _scalar(conn, "SELECT count(at) FROM sent"), _cpu(bed, pids, redis)
            wait_until(lambda: _scalar(conn, "SELECT count(at) FROM sent") == MESSAGES, "all sent", LONGEST_S)
            cpu = _cpu(bed, pids, redis)
            per_second = float(_scalar(conn, RATE))
    except TimeoutError as error:
        raise RuntimeError(f"{peer.name}: {error}\n{workers[0].log_tail()}") from error
    finally:
        for worker in workers:
            worker.kill()
    used_us = [(b - a) / (MESSAGES - before) * 1e6 for a, b in zip(cpu_before, cpu, strict=True)]
    return PeerRate(peer, per_second, *used_us)


def _module(peer: Peer) -> str:
    return f"{PACKAGE}.{peer.module}"


def _cpu(bed: Bed, workers: list[int], redis: Redis | None) -> tuple[float, float, float]:
    """Seconds of the workers, of the servers they use, and of the simulator."""
    servers = [bed.postgres_pid, *([redis.pid] if redis else [])]
    return sum(map(tree_s, workers)), sum(map(tree_s, servers)), tree_s(bed.simulator_process.pid)


def _scalar(conn: psycopg.Connection, statement: str) -> Any:
    row = conn.execute(statement.encode()).fetchone()
    assert row is not None
    return row[0]
