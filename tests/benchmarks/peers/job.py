"""The job that every peer does for a message: one POST, one UPDATE. And the two commands of a peer's module."""

import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from uuid import UUID

import uvloop
from psycopg_pool import AsyncConnectionPool

from carteiro.domain.outcomes import Accepted, Outgoing
from carteiro.providers.registry import open_provider
from tests.benchmarks.peers.place import Place

IN_FLIGHT = 64
"""Calls in flight a worker process, as many as the floor has."""
DATABASE_CONNECTIONS = 10
STORE = "UPDATE sent SET at = clock_timestamp(), by = %s WHERE seq = %s"

Job = Callable[[int], Awaitable[None]]


def outgoing(seq: int) -> Outgoing:
    phone = f"55119{80_000_000 + seq}"
    return Outgoing(UUID(int=99), seq, "5511400010000", phone, "bench_v1", "pt_BR", ("Cliente", str(seq)))


@asynccontextmanager
async def open_job(place: Place) -> AsyncIterator[Job]:
    """With Carteiro's own HTTP client and a small pool of connections."""
    provider = open_provider("infobip", base_url=place.simulator_url, api_key=place.api_key, max_connections=IN_FLIGHT)
    pool = AsyncConnectionPool(
        place.dsn, kwargs={"autocommit": True}, min_size=DATABASE_CONNECTIONS, max_size=DATABASE_CONNECTIONS, open=False
    )

    async def send(seq: int) -> None:
        [outcome] = await provider.submit([outgoing(seq)])
        if not isinstance(outcome, Accepted):
            raise RuntimeError(f"not accepted: {outcome}")
        async with pool.connection() as conn:
            await conn.execute(STORE, (os.getpid(), seq))

    async with pool:
        yield send
    await provider.close()


def run(*, fill: Callable[[Place], Awaitable[None]], work: Callable[[Place], Awaitable[None]]) -> None:
    """`fill` puts a job a message in the queue and ends; `work` goes on until it is killed."""
    command = {"fill": fill, "work": work}[sys.argv[1]]
    uvloop.run(_whole(command(Place.from_environment())))


async def _whole(done: Awaitable[None]) -> None:
    await done
