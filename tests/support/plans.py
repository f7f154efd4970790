"""Every statement of a run with the plan that Postgres chose for it, those inside its triggers and functions included.

`watched_pool` gives a pool on which the product runs as ever. Postgres explains what it executed (auto_explain, with
ANALYZE and BUFFERS) in notices, which are kept here beside the statement's name in storage/sql and its parameters.
"""

import json
import re
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, cast

import psycopg
from psycopg import AsyncConnection, AsyncCursor
from psycopg.conninfo import make_conninfo
from psycopg.errors import Diagnostic
from psycopg_pool import AsyncConnectionPool

from carteiro.storage.pool import Pool, session_dsn
from carteiro.storage.statements import load

EXPLAINING = {
    "session_preload_libraries": "auto_explain",
    "auto_explain.log_min_duration": "0",
    "auto_explain.log_level": "notice",
    "auto_explain.log_format": "json",
    "auto_explain.log_analyze": "on",
    "auto_explain.log_buffers": "on",
    "auto_explain.log_timing": "off",
    "auto_explain.log_nested_statements": "on",
}
SIZES = ("n", "limit", "reach")
"""Parameters that say how many rows a statement may take."""

_PARAMETER = re.compile(r"%\((\w+)\)s")
_PARTITION = re.compile(r"_p\d{8}$")


def statement_names() -> dict[str, str]:
    """The text of each statement in storage/sql, and its name as `noun.name`."""
    folder = files("carteiro.storage") / "sql"
    nouns = sorted(entry.name.removesuffix(".sql") for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return {getattr(load(noun), name): f"{noun}.{name}" for noun in nouns for name in dir(load(noun))}


@dataclass(frozen=True, slots=True)
class Ran:
    """One execution. `rows` and `buffers` are what its plan touched; `scans` the tables that it read whole."""

    name: str
    slice: int
    """How many rows it was asked for or told of: the longest list among its parameters, or their limits."""
    inside: bool
    """In a trigger or a function of that statement."""
    rows: int
    buffers: int
    scans: tuple[str, ...]
    text: str = field(repr=False)
    plan: Mapping[str, Any] = field(repr=False)


@dataclass
class Watch:
    """What ran on a watched pool, in order."""

    ran: list[Ran] = field(default_factory=list)
    names: Mapping[str, str] = field(default_factory=statement_names)

    def note(self, diagnostic: Diagnostic, recent: Sequence[tuple[str, object]]) -> None:
        """Of a SELECT inside a transaction Postgres speaks when the next statement begins, so the text decides which
        of the recent ones it was; what is none of them ran inside the last.
        """
        said = diagnostic.message_primary or ""
        _, separator, explained = said.partition("plan:\n")
        if not separator:
            return
        document = json.loads(explained)
        text, plan = document["Query Text"], document["Plan"]
        words = _words(text)
        asked = [(statement, params) for statement, params in recent if _words(_as_sent(statement)) == words]
        statement, params = (asked or recent)[-1]
        nodes = list(_nodes(plan))
        self.ran.append(
            Ran(
                name=self.names.get(statement, ""),
                slice=_slice(params),
                inside=not asked,
                rows=round(sum(_rows(node) for node in nodes)),
                buffers=plan.get("Shared Hit Blocks", 0) + plan.get("Shared Read Blocks", 0),
                scans=tuple(node["Relation Name"] for node in nodes if node["Node Type"] == "Seq Scan"),
                text=text,
                plan=plan,
            )
        )


class _Cursor(AsyncCursor[Any]):
    async def execute(self, query: Any, params: Any = None, **options: Any) -> Any:
        self._note(query, params)
        return await super().execute(query, params, **options)

    async def executemany(self, query: Any, params_seq: Any, **options: Any) -> None:
        listed = list(params_seq)
        self._note(query, listed[0] if listed else None)
        await super().executemany(query, listed, **options)

    def copy(self, statement: Any, params: Any = None, **options: Any) -> Any:
        self._note(statement, params)
        return super().copy(statement, params, **options)

    def _note(self, query: Any, params: Any) -> None:
        recent = cast("_Connection", self.connection).recent
        recent.append((query if isinstance(query, str) else bytes(query).decode(), params))


class _Connection(AsyncConnection[Any]):
    recent: deque[tuple[str, object]]


@asynccontextmanager
async def watched_pool(dsn: str, watch: Watch, *, plan_cache_mode: str) -> AsyncIterator[Pool]:
    """A pool as the product opens it, whose statements are all prepared and noted in `watch`."""
    given = " ".join(
        f"-c {name}={value}" for name, value in (EXPLAINING | {"plan_cache_mode": plan_cache_mode}).items()
    )

    async def configure(conn: _Connection) -> None:
        conn.recent = deque([("", None)], maxlen=3)
        conn.add_notice_handler(lambda diagnostic: watch.note(diagnostic, list(conn.recent)))

    pool = AsyncConnectionPool(
        session_dsn(make_conninfo(dsn, options=given), "plans"),
        connection_class=_Connection,
        kwargs={"autocommit": True, "cursor_factory": _Cursor, "prepare_threshold": 0},
        configure=configure,
        min_size=1,
        max_size=10,
        open=False,
    )
    async with pool:
        yield cast("Pool", pool)


def planned_scans(conn: psycopg.Connection[Any], statement: str) -> set[str]:
    """The tables that a statement would read whole, by the plan for any parameters; from Postgres 16 on."""
    numbers: dict[str, str] = {}
    sent = _PARAMETER.sub(lambda found: numbers.setdefault(found[1], f"${len(numbers) + 1}"), statement)
    cursor = conn.execute(f"EXPLAIN (GENERIC_PLAN, FORMAT JSON) {sent.replace('%%', '%')}".encode())
    row = cursor.fetchone()
    assert row is not None
    return {node["Relation Name"] for node in _nodes(row[0][0]["Plan"]) if node["Node Type"] == "Seq Scan"}


def parent_of(table: str) -> str:
    return _PARTITION.sub("", table)


def _nodes(plan: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)


def _rows(node: Mapping[str, Any]) -> float:
    """What the node gave and what it threw away, over all its loops."""
    thrown = sum(node.get(f"Rows Removed by {how}", 0) for how in ("Filter", "Index Recheck", "Join Filter"))
    return float((node.get("Actual Rows", 0) + thrown) * node.get("Actual Loops", 0))


def _slice(params: object) -> int:
    if isinstance(params, Mapping):
        sizes = [len(value) for value in params.values() if isinstance(value, Sequence) and not isinstance(value, str)]
        return max([1, *sizes, *(int(params[name]) for name in SIZES if name in params)])
    return 1


def _as_sent(statement: str) -> str:
    return _PARAMETER.sub("", statement).replace("%%", "%")


def _words(text: str) -> str:
    return re.sub(r"\s|\$\d+", "", text)
