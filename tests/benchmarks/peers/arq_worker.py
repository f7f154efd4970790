"""arq: the queue in Redis, a coroutine a job."""

import asyncio
from typing import Any

from arq.connections import RedisSettings, create_pool
from arq.worker import Worker, func

from tests.benchmarks.peers.job import IN_FLIGHT, open_job, run
from tests.benchmarks.peers.place import Place

JOBS = 100
"""At a time, ten times its default: a worker reads the queue every half second, five times as many ids as this, so it
must not be full by then. Looking more often is slower: two workers then try for the same jobs.
"""


def _redis(place: Place) -> RedisSettings:
    return RedisSettings(unix_socket_path=place.redis_socket)


async def fill(place: Place) -> None:
    pool = await create_pool(_redis(place))
    numbers = iter(range(1, place.messages + 1))

    async def enqueue() -> None:
        for seq in numbers:
            await pool.enqueue_job("send", seq)

    await asyncio.gather(*(enqueue() for _ in range(IN_FLIGHT)))
    await pool.aclose()


async def work(place: Place) -> None:
    async with open_job(place) as send:

        async def one(ctx: dict[str, Any], seq: int) -> None:
            await send(seq)

        worker = Worker(
            [func(one, name="send")],
            redis_settings=_redis(place),
            max_jobs=JOBS,
            keep_result=0,
            log_results=False,
            handle_signals=False,
        )
        await worker.async_run()


if __name__ == "__main__":
    run(fill=fill, work=work)
