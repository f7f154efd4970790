"""The table of commands."""

import subprocess
import sys

import pytest
import rich_click as click
from click.testing import CliRunner

from carteiro import __version__
from carteiro.cli import COMMANDS, carteiro


def test_version() -> None:
    result = CliRunner().invoke(carteiro, ["--version"])
    assert result.output == f"carteiro, version {__version__}\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_of_the_table_exists_and_says_what_it_does(name: str) -> None:
    command = carteiro.get_command(click.Context(carteiro), name)
    assert command is not None
    assert command.name == name
    assert command.get_short_help_str()


def test_an_unknown_command_is_refused() -> None:
    assert CliRunner().invoke(carteiro, ["post"]).exit_code == 2


def test_starting_the_command_line_imports_no_framework() -> None:
    code = (
        "import sys, carteiro.cli;"
        "print(sorted({'litestar', 'procrastinate', 'sqlalchemy', 'psycopg', 'httpx'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
