"""The `carteiro` command. Each command's module is imported when it runs, so that the others do not pay for it."""

import importlib
import sys

import rich_click as click

from carteiro import __version__
from carteiro.settings import SettingsError

# Name of a command -> where its click command is.
COMMANDS: dict[str, str] = {
    "up": "carteiro.cli.up:up",
    "demo": "carteiro.cli.demo:demo",
    "migrate": "carteiro.cli.database:migrate",
    "catalog": "carteiro.cli.catalog:catalog",
    "keys": "carteiro.cli.keys:keys",
    "credits": "carteiro.cli.credits:credits",
    "serve": "carteiro.cli.serve:serve",
    "worker": "carteiro.cli.worker:worker",
    "simulator": "carteiro.cli.simulator:simulator",
    "sync": "carteiro.cli.sync:sync",
    "retention": "carteiro.cli.retention:retention",
    "erase": "carteiro.cli.erase:erase",
    "audit": "carteiro.cli.audit:audit",
    "docs": "carteiro.cli.docs:docs",
}


class LazyGroup(click.RichGroup):
    """A group that knows its commands' names, and imports one when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, attribute = COMMANDS[cmd_name].split(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="carteiro")
def carteiro() -> None:
    """Bulk dispatch of WhatsApp templates, on Postgres alone. Settings are CARTEIRO_* environment variables."""


def main() -> None:
    """Entry point: a wrong setting is one line, not a traceback."""
    try:
        carteiro()
    except SettingsError as error:
        sys.exit(f"carteiro: {error}")
