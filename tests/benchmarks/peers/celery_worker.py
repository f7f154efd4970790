"""Celery: the queue in Redis, a thread a job.

Of its pools, threads is the fastest here: prefork reaches two thirds of it and gevent less than half. The job runs on
one event loop beside the threads, where the common HTTP client works; urllib3 in the threads themselves is as fast.
"""

import asyncio
import sys
import threading
from asyncio import AbstractEventLoop
from concurrent.futures import Future

import uvloop
from celery import Celery
from celery.signals import worker_init

from tests.benchmarks.peers.job import IN_FLIGHT, Job, open_job
from tests.benchmarks.peers.place import Place

place = Place.from_environment()
app = Celery("peer", broker=f"redis+socket://{place.redis_socket}")
# Late: like the others, it loses no job with a worker.
app.conf.update(task_ignore_result=True, task_acks_late=True)
opened: Future[tuple[AbstractEventLoop, Job]] = Future()


@app.task(name="send")
def send(seq: int) -> None:
    loop, job = opened.result()
    asyncio.run_coroutine_threadsafe(job(seq), loop).result()


@worker_init.connect
def open_beside(**_: object) -> None:
    threading.Thread(target=lambda: uvloop.run(_keep_open()), daemon=True).start()


async def _keep_open() -> None:
    async with open_job(place) as job:
        opened.set_result((asyncio.get_running_loop(), job))
        await asyncio.Event().wait()


def fill() -> None:
    with app.producer_or_acquire() as producer:
        for seq in range(1, place.messages + 1):
            send.apply_async((seq,), producer=producer)


def work() -> None:
    pool = ["--pool", "threads", "--concurrency", str(IN_FLIGHT)]
    app.worker_main(
        ["worker", *pool, "--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "WARNING"]
    )


if __name__ == "__main__":
    {"fill": fill, "work": work}[sys.argv[1]]()
