"""pgqueuer: the queue in Postgres, fetched and finished in batches over asyncpg."""

import asyncpg
from pgqueuer import AsyncpgPoolDriver, PgQueuer, Queries
from pgqueuer.models import Job

from tests.benchmarks.peers.job import open_job, run
from tests.benchmarks.peers.place import Place

BATCH = 500
"""Jobs of one fetch, and of one finish. Its default of 10 reaches two thirds of the rate."""
TASKS = 2 * BATCH
"""Fetched jobs at most, the least that it takes. The HTTP client decides how many are in flight."""


async def fill(place: Place) -> None:
    async with asyncpg.create_pool(place.dsn, min_size=1) as pool:
        queries = Queries(AsyncpgPoolDriver(pool))
        await queries.install()
        n = place.messages
        await queries.enqueue(["send"] * n, [b"%d" % seq for seq in range(1, n + 1)], [0] * n)


async def work(place: Place) -> None:
    async with asyncpg.create_pool(place.dsn, min_size=4) as pool, open_job(place) as send:
        queuer = PgQueuer.from_asyncpg_pool(pool)

        @queuer.entrypoint("send")
        async def one(job: Job) -> None:
            assert job.payload is not None
            await send(int(job.payload))

        await queuer.run(batch_size=BATCH, max_concurrent_tasks=TASKS)


if __name__ == "__main__":
    run(fill=fill, work=work)
