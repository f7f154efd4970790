"""`carteiro worker`: one worker process; start as many as there are cores for it."""

import asyncio

import rich_click as click

from carteiro.bootstrap import run_worker
from carteiro.logging import configure
from carteiro.settings import Settings


@click.command()
def worker() -> None:
    """Dispatch batches, apply receipts, settle and call back, until SIGTERM."""
    settings = Settings.from_environment()
    configure(settings.log_level, settings.log_format)
    try:
        import uvloop
    except ImportError:
        asyncio.run(run_worker(settings))
    else:
        uvloop.run(run_worker(settings))
