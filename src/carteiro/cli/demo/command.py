"""The demo from an empty machine to a verdict."""

import asyncio
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import psycopg
import rich_click as click
from rich.console import Console

from carteiro.cli import tenant
from carteiro.cli.children import LogFolder, ending_on_signals
from carteiro.cli.demo.batch import SENDERS, send_batch
from carteiro.cli.demo.broadcast import send_broadcast
from carteiro.cli.demo.client import Client, Provider, Refused
from carteiro.cli.demo.group_link import RETRY_BASE_S, send_group_links
from carteiro.cli.demo.screen import Screen
from carteiro.cli.demo.stage import Stage
from carteiro.cli.demo.verdicts import Verdict, judge_audit
from carteiro.cli.stack import Stack, StackError, demo_catalog, free_port, without_settings
from carteiro.embedded import ClusterError, throwaway_cluster
from carteiro.storage.migrations import migrate

STEPS: tuple[Callable[[Stage], list[Verdict]], ...] = (send_batch, send_broadcast, send_group_links)
"""What is done and judged, one after the other; what all of it left in the audit is judged last."""
WORKERS = 2
CONTACTS = 1_000
CREDITS = 1_500
ENVIRONMENT = {
    # An answer that is lost on a busy machine should not hold up the demo for the usual three minutes.
    "CARTEIRO_CALL_TIMEOUT_S": "10",
    "CARTEIRO_RECONCILE_AFTER_S": "10",
    "CARTEIRO_GROUP_LINK_RETRY_BASE_S": str(RETRY_BASE_S),
}


@click.command()
@click.option(
    "--contacts",
    "count",
    type=click.IntRange(SENDERS, CONTACTS),
    default=CONTACTS,
    show_default=True,
    help=f"How many to write to: a multiple of {SENDERS}.",
)
def demo(count: int) -> None:
    """Send a batch, a broadcast and group links through a simulated provider, on a Postgres of its own, and check
    every promise.

    Everything is started for it and ended with it; nothing leaves this machine. Exits 1 naming what failed.
    """
    if count % SENDERS:
        raise click.BadParameter(f"{count} is not a multiple of {SENDERS}", param_hint="--contacts")
    screen = Screen(Console())
    folder = Path(tempfile.mkdtemp(prefix="carteiro-demo-"))
    failed = True
    try:
        with ending_on_signals():
            failed = not _run(screen, folder, count)
    except (ClusterError, Refused, StackError) as error:
        screen.say(f"FAILED  {error}")
    except KeyboardInterrupt:
        screen.say("interrupted; everything was ended")
        failed = False
        sys.exit(130)
    finally:
        if failed:
            screen.say(f"logs of all processes: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    if failed:
        sys.exit(1)


def _run(screen: Screen, folder: Path, count: int) -> bool:
    """Whether all promises were kept."""
    screen.say(f"Carteiro demo: {count:,} messages over {SENDERS} senders, through a simulated provider")
    screen.say()
    with throwaway_cluster() as cluster:
        dsn = cluster.dsn()
        screen.step(f"Postgres {_version(dsn)} is up, for this demo only")
        stack = Stack(
            dsn,
            LogFolder(folder),
            api_port=free_port(),
            simulator_port=free_port(),
            workers=WORKERS,
            environment={**without_settings(), **ENVIRONMENT},
        )
        with stack.ended_afterwards():
            stage = _prepare(screen, stack, dsn, folder, count)
            verdicts = [verdict for step in STEPS for verdict in step(stage)]
            findings = asyncio.run(tenant.examine(dsn))
            verdicts.append(judge_audit({finding.view: finding.rows for finding in findings}))
            stage.client.close()
            stage.provider.close()
            screen.show_verdicts(verdicts)
    kept = not any(verdict.problems for verdict in verdicts)
    screen.say()
    screen.say(
        f"{'Every promise was kept' if kept else 'NOT every promise was kept'}, {screen.elapsed_s:.1f} s in all."
    )
    return kept


def _prepare(screen: Screen, stack: Stack, dsn: str, folder: Path, count: int) -> Stage:
    # These two can start on an empty database, and take a while.
    stack.simulator.start()
    stack.api.start()
    _, revision = migrate(dsn)
    catalog = demo_catalog(stack.simulator_url, daily_limit=count // SENDERS)
    owner = asyncio.run(tenant.prepare(dsn, catalog, credits=CREDITS))
    screen.step(f"schema at revision {revision}; catalog and directory are there; key and credits given")
    for worker in stack.workers:
        worker.start()
    stack.wait_ready()
    screen.step(f"API, {len(stack.workers)} workers and the simulator run")
    return Stage(
        screen=screen,
        stack=stack,
        client=Client(stack.api_url, owner.key),
        provider=Provider(stack.simulator_url),
        folder=folder,
        count=count,
        callback_secret=owner.callback_secret,
    )


def _version(dsn: str) -> str:
    with psycopg.connect(dsn) as conn:
        major, minor = divmod(conn.info.server_version, 10_000)
    return f"{major}.{minor}"
