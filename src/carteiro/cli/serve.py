"""`carteiro serve`: the HTTP API in one process."""

import asyncio
import contextlib
import signal
import sys

import rich_click as click
import uvicorn

from carteiro.api.app import create_app
from carteiro.bootstrap import Providers, worker_name
from carteiro.cli.loop import run_loop
from carteiro.logging import configure
from carteiro.services.broadcast import open_directory
from carteiro.services.group_links.reminder import Reminders
from carteiro.settings import Settings
from carteiro.storage.pool import open_pool

SWITCH_S = 0.0002
"""How long the event loop waits for a thread that checks contacts to make room. Python's own 5 ms, for each exchange
with Postgres of a batch that is being placed, would keep its service locked for a tenth of a second.
"""
GRACE_S = 30
"""How long requests that are being served may go on after SIGTERM."""


@click.command()
def serve() -> None:
    """Serve the HTTP API on CARTEIRO_HOST and CARTEIRO_PORT until SIGTERM."""
    settings = Settings.from_environment()
    configure(settings.log_level, settings.log_format)
    sys.setswitchinterval(SWITCH_S)
    run_loop(run_server(settings))


async def run_server(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT; what is being answered then is finished first."""
    async with (
        open_pool(
            settings.database_pooler_url or settings.require_database_url(),
            min_size=settings.pool_min_size,
            max_size=settings.pool_max_size,
            application_name="carteiro-api",
            pooled=settings.database_pooler_url is not None,
        ) as pool,
        open_directory(settings, application_name="carteiro-api directory") as directory,
    ):
        checking = asyncio.create_task(directory.check(pool))
        providers = Providers(pool, settings)
        reminders = Reminders(pool, settings, f"api-{worker_name()}", providers.of_service)
        config = uvicorn.Config(
            create_app(settings, pool, directory, reminders),
            host=settings.host,
            port=settings.port,
            http="httptools",
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            timeout_graceful_shutdown=GRACE_S,
        )
        server = uvicorn.Server(config)
        # uvicorn raises the signal again when it is done, for whoever handled it before: it would end us as killed.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, server.handle_exit)
        await server.serve()
        checking.cancel()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(settings.call_timeout_s):
                await reminders.drained()
        await providers.close()
