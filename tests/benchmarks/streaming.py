"""A million contacts streamed, and what everybody else on the service notices of it."""

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from tempfile import TemporaryFile
from typing import Any
from uuid import UUID

import httpx
import psycopg

from tests.benchmarks.bed import Bed, contacts, peak_mb
from tests.benchmarks.holding import watched_lock

CONTACTS = 1_000_000
SMALL_PER_S = 50
PIECE = 5_000
CHUNK_BYTES = 256 * 1024
SMALL_THREADS = 5


@dataclass(frozen=True)
class Streaming:
    contacts: int
    megabytes: float
    seconds: float
    """From the first byte to the 202."""
    api_mb: float
    """The API process's largest resident memory, ever."""
    api_mb_before: float
    small: int
    """Batches of ten that others created on the same service meanwhile."""
    small_p99_ms: float
    holds: int
    """How often the service's lock was held meanwhile."""
    held_p50_ms: tuple[float, float]
    """How long, from its grant to the commit: at least and at most, as it was looked at now and then."""
    held_p99_ms: tuple[float, float]
    held_worst_ms: tuple[float, float]
    wait_p99_ms: float
    """How long somebody who wants the lock waits for it, behind all who want it too."""
    wait_worst_ms: float


def measure_streaming(bed: Bed) -> Streaming:
    """One stream of CONTACTS, beside it SMALL_PER_S small batches a second, and somebody who asks for the lock all the
    time.
    """
    before_mb = peak_mb(bed.api)
    over = threading.Event()
    waits_ms: list[float] = []
    small_ms: list[float] = []
    with psycopg.connect(bed.dsn, autocommit=True) as asking, watched_lock(bed.dsn, asking.info.backend_pid) as held:
        others = [
            threading.Thread(target=_want_lock, args=(asking, over, waits_ms)),
            *(threading.Thread(target=_create_small, args=(bed, over, small_ms, n)) for n in range(SMALL_THREADS)),
        ]
        for other in others:
            other.start()
        try:
            _, took_s, size = post_stream(bed, ndjson(CONTACTS), CONTACTS)
        finally:
            over.set()
            for other in others:
                other.join()
    return Streaming(
        contacts=CONTACTS,
        megabytes=size / 1e6,
        seconds=took_s,
        api_mb=peak_mb(bed.api),
        api_mb_before=before_mb,
        small=len(small_ms),
        small_p99_ms=_p99(small_ms),
        holds=len(held.most_ms),
        held_p50_ms=(median(held.least_ms), median(held.most_ms)),
        held_p99_ms=(_p99(held.least_ms), _p99(held.most_ms)),
        held_worst_ms=(max(held.least_ms), max(held.most_ms)),
        wait_p99_ms=_p99(waits_ms),
        wait_worst_ms=max(waits_ms),
    )


def post_stream(bed: Bed, pieces: Iterator[bytes], total: int) -> tuple[UUID, float, int]:
    """Create a batch of `total` contacts from a stream: (id, seconds from the first byte to the answer, bytes)."""
    headers = {"Authorization": f"Bearer {bed.key}", "Content-Type": "application/x-ndjson"}
    with TemporaryFile() as body:  # made before the clock starts: making it costs as much as sending it
        for piece in pieces:
            body.write(piece)
        size = body.tell()
        body.seek(0)
        chunks = iter(lambda: body.read(CHUNK_BYTES), b"")
        began_s = time.perf_counter()
        answer = httpx.post(f"{bed.api_url}/api/v1/batches", content=chunks, headers=headers, timeout=300)
        took_s = time.perf_counter() - began_s
    if answer.status_code != 202 or answer.json()["total"] != total:
        raise RuntimeError(f"the stream was refused: {answer.status_code} {answer.text[:500]}")
    return UUID(answer.json()["id"]), took_s, size


def ndjson(n: int, first: int = 20_000_000, **fields: Any) -> Iterator[bytes]:
    """A request of `n` contacts, in pieces."""
    terms = {"service": "bench", "template": {"name": "bench", "language": "pt_BR"}, **fields}
    yield json.dumps(terms).encode() + b"\n"
    for start in range(0, n, PIECE):
        made = contacts(min(PIECE, n - start), first + start)
        yield "".join([f"{json.dumps(contact)}\n" for contact in made]).encode()


def _want_lock(conn: psycopg.Connection, over: threading.Event, waits_ms: list[float]) -> None:
    while not over.is_set():
        began_s = time.perf_counter()
        conn.execute("SELECT pg_advisory_xact_lock(hashtextextended('service:bench', 0))")
        waits_ms.append((time.perf_counter() - began_s) * 1000)
        time.sleep(0.002)


def _create_small(bed: Bed, over: threading.Event, took_ms: list[float], number: int) -> None:
    """A part of SMALL_PER_S batches of ten a second."""
    pause_s = SMALL_THREADS / SMALL_PER_S
    first = 40_000_000 + number * 1_000_000
    headers = {"Authorization": f"Bearer {bed.key}"}
    with httpx.Client(base_url=bed.api_url, headers=headers, timeout=60) as client:
        terms = {"service": "bench", "template": {"name": "bench", "language": "pt_BR"}}
        while not over.is_set():
            began_s = time.perf_counter()
            client.post("/api/v1/batches", json={**terms, "contacts": contacts(10, first)}).raise_for_status()
            took_s = time.perf_counter() - began_s
            took_ms.append(took_s * 1000)
            first += 10
            time.sleep(max(0.0, pause_s - took_s))


def _p99(values: list[float]) -> float:
    return sorted(values)[len(values) * 99 // 100] if values else 0.0
