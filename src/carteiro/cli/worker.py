"""`carteiro worker`: one worker process; start as many as there are cores for it."""

import rich_click as click

from carteiro.bootstrap import run_worker
from carteiro.cli.loop import run_loop
from carteiro.logging import configure
from carteiro.settings import Settings


@click.command()
def worker() -> None:
    """Dispatch batches, apply receipts, settle and call back, until SIGTERM."""
    settings = Settings.from_environment()
    configure(settings.log_level, settings.log_format)
    run_loop(run_worker(settings))
