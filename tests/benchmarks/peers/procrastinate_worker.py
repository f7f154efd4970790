"""Procrastinate: the queue in Postgres, one fetch and one finish a job."""

import psycopg
from procrastinate import App, PsycopgConnector

from tests.benchmarks.peers.job import DATABASE_CONNECTIONS, IN_FLIGHT, open_job, run
from tests.benchmarks.peers.place import Place


def _app(place: Place) -> App:
    async def autocommit(conn: psycopg.AsyncConnection) -> None:
        await conn.set_autocommit(True)

    return App(
        connector=PsycopgConnector(conninfo=place.dsn, min_size=2, max_size=DATABASE_CONNECTIONS, configure=autocommit)
    )


async def fill(place: Place) -> None:
    async with _app(place).open_async() as app:
        await app.schema_manager.apply_schema_async()
        task = app.configure_task("send")
        await task.batch_defer_async(*({"seq": seq} for seq in range(1, place.messages + 1)))


async def work(place: Place) -> None:
    app = _app(place)
    async with open_job(place) as send:
        app.task(name="send")(send)
        async with app.open_async():
            await app.run_worker_async(concurrency=IN_FLIGHT, delete_jobs="always", install_signal_handlers=False)


if __name__ == "__main__":
    run(fill=fill, work=work)
