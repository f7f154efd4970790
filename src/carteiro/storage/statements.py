"""Named SQL statements from `storage/sql/<noun>.sql`.

A file is a sequence of blocks, each headed by its name; other comment lines are left out of what is sent:

    -- name: claim_messages
    -- Why it is written this way.
    SELECT ... %(limit)s ...

`SQL = load("messages")` gives `SQL.claim_messages`, a string with psycopg's `%(name)s` parameters.
"""

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import LiteralString

_HEADER = re.compile(r"-- name: ([a-z][a-z0-9_]*)")
_LOOKS_LIKE_HEADER = re.compile(r"\s*--\s*name\s*:", re.IGNORECASE)


class StatementFileError(ValueError):
    """A statement file breaks the format above."""


class Statements:
    """The statements of one file, as attributes. An unknown name raises AttributeError."""

    def __init__(self, noun: str, statements: Mapping[str, LiteralString]) -> None:
        self._noun = noun
        self._statements = dict(statements)

    def __getattr__(self, name: str) -> LiteralString:
        try:
            return self._statements[name]
        except KeyError:
            raise AttributeError(f"storage/sql/{self._noun}.sql has no statement {name!r}") from None

    def __dir__(self) -> list[str]:
        return sorted(self._statements)


@cache
def load(noun: str) -> Statements:
    """Read and check `storage/sql/<noun>.sql`. Raises FileNotFoundError or StatementFileError."""
    text = (files("carteiro.storage") / "sql" / f"{noun}.sql").read_text(encoding="utf-8")
    return Statements(noun, parse(noun, text))


def parse(noun: str, text: str) -> dict[str, LiteralString]:
    """Statements by name. Raises StatementFileError, naming the line."""
    found: dict[str, list[str]] = {}
    lines: list[str] | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        where = f"storage/sql/{noun}.sql:{number}"
        if header := _HEADER.fullmatch(line.rstrip()):
            name = header.group(1)
            if name in found:
                raise StatementFileError(f"{where}: a second statement named {name}")
            lines = found[name] = []
        elif _LOOKS_LIKE_HEADER.match(line):
            raise StatementFileError(f"{where}: write the header as `-- name: lower_case_name`")
        elif line.strip() and not line.lstrip().startswith("--"):
            if lines is None:
                raise StatementFileError(f"{where}: SQL before the first `-- name:`")
            lines.append(line.rstrip())
    statements: dict[str, LiteralString] = {}
    for name, body in found.items():
        statement = "\n".join(body).strip().removesuffix(";").rstrip()
        if not statement:
            raise StatementFileError(f"storage/sql/{noun}.sql: {name} is empty")
        statements[name] = statement
    return statements
