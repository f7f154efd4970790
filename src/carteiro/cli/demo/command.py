"""The demo from an empty machine to a verdict."""

import asyncio
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psycopg
import rich_click as click
from rich.console import Console

from carteiro.cli import tenant
from carteiro.cli.children import LogFolder, ending_on_signals
from carteiro.cli.demo.client import Client, Provider, Refused
from carteiro.cli.demo.contacts import make_contacts, read_csv, write_csv
from carteiro.cli.demo.evidence import Evidence, judge
from carteiro.cli.demo.screen import Screen
from carteiro.cli.stack import Stack, StackError, demo_catalog, free_port, without_settings
from carteiro.embedded import ClusterError, throwaway_cluster
from carteiro.storage.migrations import migrate

SENDERS = 10
WORKERS = 2
CONTACTS = 1_000
CREDITS = 1_500
PATIENCE_S = 120.0
CALLBACK_PATIENCE_S = 30.0
POLL_S = 0.2
ENVIRONMENT = {
    # An answer that is lost on a busy machine should not hold up the demo for the usual three minutes.
    "CARTEIRO_CALL_TIMEOUT_S": "10",
    "CARTEIRO_RECONCILE_AFTER_S": "10",
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
    """Send a batch through a simulated provider, on a Postgres of its own, and check every promise.

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
            evidence = _send(screen, stack, dsn, folder, count)
            screen.show_result(evidence)
            verdicts = judge(evidence)
            screen.show_verdicts(verdicts)
    kept = not any(verdict.problems for verdict in verdicts)
    screen.say()
    screen.say(
        f"{'Every promise was kept' if kept else 'NOT every promise was kept'}, {screen.elapsed_s:.1f} s in all."
    )
    return kept


def _send(screen: Screen, stack: Stack, dsn: str, folder: Path, count: int) -> Evidence:
    # These two can start on an empty database, and take a while.
    stack.simulator.start()
    stack.api.start()
    _, revision = migrate(dsn)
    catalog = demo_catalog(stack.simulator_url, daily_limit=count // SENDERS)
    owner = asyncio.run(tenant.prepare(dsn, catalog, credits=CREDITS))
    screen.step(f"schema at revision {revision}; catalog of {SENDERS} business managers applied; key and credits given")
    for worker in stack.workers:
        worker.start()
    stack.wait_ready()
    screen.step(f"API, {len(stack.workers)} workers and the simulator run")

    write_csv(folder / "contacts.csv", make_contacts(count))
    contacts = read_csv(folder / "contacts.csv")
    client, provider = Client(stack.api_url, owner.key), Provider(stack.simulator_url)
    credits_before = client.read_balance()
    post = {"callback_url": stack.callback_url, "idempotency_key": "demo-1"}
    began_s = time.monotonic()
    batch, _ = client.post_batch(contacts, **post)
    took_ms = (time.monotonic() - began_s) * 1000
    screen.step(f"a CSV of {count:,} contacts was posted, and accepted in {took_ms:.0f} ms: batch {batch['id']}")

    batch = _watch(screen, stack, client, batch["id"])
    stack.wait_until(provider.read_callbacks, CALLBACK_PATIENCE_S, "the callback arrives")
    credits_after = client.read_balance()
    replay, replay_marked = client.post_batch(contacts, **post)
    evidence = Evidence(
        contacts=contacts,
        senders=SENDERS,
        credits_before=credits_before,
        credits_after=credits_after,
        batch=client.read_batch(batch["id"]),
        calls=provider.read_calls(),
        callbacks=provider.read_callbacks(),
        callback_secret=owner.callback_secret,
        replay=replay,
        replay_marked=replay_marked,
        credits_after_replay=client.read_balance(),
        breaches={finding.view: finding.rows for finding in asyncio.run(tenant.examine(dsn))},
    )
    client.close()
    provider.close()
    return evidence


def _watch(screen: Screen, stack: Stack, client: Client, batch_id: str) -> dict[str, Any]:
    """Show the batch until it is settled. Raises StackError after PATIENCE_S, or when a process ends."""
    deadline = time.monotonic() + PATIENCE_S
    with screen.progress() as progress:
        while True:
            batch = client.read_batch(batch_id)
            progress.show(batch)
            if batch["settled_at"] is not None:
                return batch
            stack.check_alive()
            if time.monotonic() >= deadline:
                raise StackError(f"the batch is not settled after {PATIENCE_S:g} s: {batch}")
            time.sleep(POLL_S)


def _version(dsn: str) -> str:
    with psycopg.connect(dsn) as conn:
        major, minor = divmod(conn.info.server_version, 10_000)
    return f"{major}.{minor}"
