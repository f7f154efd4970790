"""`carteiro up`: a Carteiro to play with, until Ctrl-C."""

import asyncio
import contextlib
import os
import shlex
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import rich_click as click
from psycopg import OperationalError

from carteiro.cli import tenant
from carteiro.cli.children import PrefixedLines, ending_on_signals
from carteiro.cli.stack import ACCOUNT, SERVICE, TEMPLATE, Stack, StackError, demo_catalog, is_free
from carteiro.embedded import Cluster, ClusterError, reachable_home
from carteiro.settings import Settings
from carteiro.storage.migrations import migrate

HOME = Path(".carteiro")
SIMULATOR_PORT = 9100
CREDITS = 100_000
LOOK_EVERY_S = 0.5
RESTART_PAUSE_S = 1.0
NAME_WIDTH = len("simulator")


@click.command()
@click.option(
    "--simulator-port", type=click.IntRange(1, 65535), default=SIMULATOR_PORT, show_default=True, help="Its port."
)
def up(simulator_port: int) -> None:
    """Run API, worker and simulator here until Ctrl-C, and say how to post a batch.

    Data, and the API key that is made the first time, are kept in ./.carteiro; with CARTEIRO_DATABASE_URL the data are
    there. What dies is started again.
    """
    settings = Settings.from_environment()
    for name, port in (("the API", settings.port), ("the simulator", simulator_port)):
        if not is_free(port):
            option = "CARTEIRO_PORT" if port == settings.port else "--simulator-port"
            raise click.ClickException(f"port {port} for {name} is taken: choose another with {option}")
    HOME.mkdir(exist_ok=True)
    try:
        with ending_on_signals(), _postgres(settings) as (dsn, cluster):
            _run(settings, simulator_port, dsn, cluster)
    except KeyboardInterrupt:
        click.echo("everything was ended; `carteiro up` goes on from here")
    except tenant.ForeignCatalog as foreign:
        raise click.ClickException(
            f"this database is not the demo's: applying its catalog would end {foreign}. "
            "Use another CARTEIRO_DATABASE_URL, or none; for real work there are `carteiro serve` and `carteiro worker`"
        ) from foreign
    except (ClusterError, StackError, OperationalError) as error:
        raise click.ClickException(str(error)) from error


@contextlib.contextmanager
def _postgres(settings: Settings) -> Iterator[tuple[str, Cluster | None]]:
    """The database to use, and the server if it is ours."""
    if settings.database_url is not None:
        yield settings.database_url, None
        return
    with Cluster(reachable_home(HOME / "postgres")) as cluster:
        yield cluster.dsn(), cluster


def _run(settings: Settings, simulator_port: int, dsn: str, cluster: Cluster | None) -> None:
    """Start everything, and keep it running until interrupted."""
    output = PrefixedLines(sys.stdout, NAME_WIDTH)
    stack = Stack(
        dsn,
        output,
        api_port=settings.port,
        simulator_port=simulator_port,
        workers=1,
        environment={"CARTEIRO_LOG_FORMAT": "console", **os.environ},
    )
    with stack.ended_afterwards():
        migrate(dsn)
        key_file = _prepare(stack, dsn)
        for child in stack.children:
            child.start()
        stack.wait_ready()
        click.echo(_instructions(stack, dsn, key_file))
        _keep_alive(stack, cluster, output)


def _prepare(stack: Stack, dsn: str) -> Path:
    """Catalog, credits and key are there afterwards; where the key is."""
    path = HOME.absolute() / "api-key"
    kept_key = path.read_text(encoding="ascii").strip() if path.exists() else None
    owner = asyncio.run(tenant.prepare(dsn, demo_catalog(stack.simulator_url), credits=CREDITS, kept_key=kept_key))
    if owner.key != kept_key:
        new = path.with_name("api-key.new")
        new.unlink(missing_ok=True)
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
            file.write(f"{owner.key}\n")
        new.rename(path)
    return path


def _keep_alive(stack: Stack, cluster: Cluster | None, output: PrefixedLines) -> None:
    """Start again whatever ends, until interrupted."""
    never = threading.Event()
    while True:
        never.wait(LOOK_EVERY_S)
        if cluster is not None and cluster.pid is None:
            output.say("postgres", "it ended, and is started again")
            cluster.start()
        for child in stack.children:
            if not child.running:
                output.say(child.name, f"it ended with {child.exit_code}, and is started again")
                never.wait(RESTART_PAUSE_S)
                child.start()


def _instructions(stack: Stack, dsn: str, key_file: Path) -> str:
    authorization = f'-H "Authorization: Bearer $(cat {shlex.quote(str(key_file))})"'
    batches = f"{stack.api_url}/api/v1/batches"
    program = Path(sys.argv[0]).absolute()
    return f"""
API        {stack.api_url}   (its documentation: {stack.api_url}/docs)
simulator  {stack.simulator_url}/_sim/stats   (what it took; docs/simulator.md lists numbers that make it fail)
account    {ACCOUNT}, which got {CREDITS:,} credits at the start; its API key is in {key_file}

Post a batch:

curl -sS {batches} \\
  {authorization} \\
  -H "Content-Type: application/json" \\
  -d '{{
    "service": "{SERVICE}",
    "template": {{"name": "{TEMPLATE}"}},
    "contacts": [
      {{"phone": "+5511987654321", "placeholders": ["Ana", "1042"]}},
      {{"phone": "+5521987654322", "placeholders": ["Rui", "1043"]}}
    ],
    "callback_url": "{stack.callback_url}"
  }}'

The same contacts within five minutes are the same batch. Look at it, at what came to the callback, and at the audit:

curl -sS "{batches}?limit=1" {authorization}
curl -sS {stack.simulator_url}/_sim/callbacks
CARTEIRO_DATABASE_URL={shlex.quote(dsn)} {shlex.quote(str(program))} audit

Send a broadcast to a group that the key's owner leads:

curl -sS {stack.api_url}/api/v1/broadcasts \\
  {authorization} \\
  -H "Content-Type: application/json" \\
  -d '{{"group_id": "customers", "template_name": "group_notice", "variables": {{"1": "Saturday, 9 h"}}}}'

Ctrl-C ends everything.
"""
