"""Connections, and the one way to open a transaction."""

import asyncio
import random
import select
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

from psycopg import AsyncConnection, InterfaceError, OperationalError
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.errors import (
    DeadlockDetected,
    IdleInTransactionSessionTimeout,
    ReadOnlySqlTransaction,
    SerializationFailure,
)
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout

from carteiro.settings import SettingsError
from carteiro.storage.parameters import convert_parameters
from carteiro.storage.statements import load

SQL = load("session")

Connection = AsyncConnection[TupleRow]
Pool = AsyncConnectionPool[Connection]
Result = TypeVar("Result")

UNREACHABLE: tuple[type[Exception], ...] = (
    OperationalError,
    InterfaceError,
    PoolTimeout,
    PoolClosed,
    IdleInTransactionSessionTimeout,
    ReadOnlySqlTransaction,
)
"""Postgres is away, closed our connection or is a standby by now: nothing is known to be wrong with what was asked."""

# How long a caller waits for a connection, and how long one run of reconnection attempts lasts. The pool doubles the
# delay between attempts: a long run would leave it asleep after Postgres is back, a short one is begun anew by the
# next caller.
ACQUIRE_TIMEOUT_S = 10.0
RECONNECT_TIMEOUT_S = 5.0
CONNECT_TIMEOUT_S = 5

IDLE_TRANSACTION_S = 10
"""A process that freezes, or whose machine goes away, inside a transaction keeps its locks, and a service waits for
them: Postgres ends such a session after this time. Nothing of ours lingers between two statements.
"""

SESSION: Mapping[str, str] = {
    "TimeZone": "UTC",
    "jit": "off",
    "default_transaction_isolation": "read committed",
    "idle_in_transaction_session_timeout": f"{IDLE_TRANSACTION_S}s",
}
"""What every session of ours has, as `current_setting` shows it."""

DIRECT_NEEDED = (
    "The DSN leads to a pooler, but locks and notifications belong to a session: CARTEIRO_DATABASE_URL must be a direct"
    " connection. Only `serve` may go through a pooler, by CARTEIRO_DATABASE_POOLER_URL."
)

CONFLICT_TRIES = 5
CONFLICT_DELAY_S = 0.01


@asynccontextmanager
async def open_pool(
    dsn: str,
    *,
    min_size: int,
    max_size: int,
    application_name: str,
    options: Sequence[str] = (),
    acquire_timeout_s: float = ACQUIRE_TIMEOUT_S,
    pooled: bool = False,
) -> AsyncIterator[Pool]:
    """A pool of autocommit connections whose sessions are as `SESSION` says, open and with `min_size` connections made.

    It survives a restart of Postgres: dead connections are noticed when they are taken, and replaced. While Postgres
    is away, taking one raises psycopg_pool.PoolTimeout after `acquire_timeout_s`; so does opening the pool, unless
    `min_size` is 0. `options` are further settings of its sessions (`name=value`).

    `pooled`: the DSN leads to a pooler in transaction mode, which hands each transaction to any of its sessions. It
    takes no settings from us, so the role has to have them, and nothing that outlives a transaction may be left in a
    session: statements are not prepared. With a first connection made, SettingsError is raised where its session is not
    as it must be, and where the DSN leads to a pooler without being said to.
    """

    async def check(conn: Connection) -> None:
        if not _socket_is_quiet(conn):
            try:
                await AsyncConnectionPool.check_connection(conn)
            except Exception:
                # One is dead: the others most likely too. Left in, each would cost a caller a growing delay.
                await pool.drain()
                raise

    pool: Pool = AsyncConnectionPool(
        _named_dsn(dsn, application_name) if pooled else session_dsn(dsn, application_name, options),
        kwargs={"autocommit": True, **({"prepare_threshold": None} if pooled else {})},
        configure=convert_parameters,
        min_size=min_size,
        max_size=max_size,
        check=check,
        timeout=acquire_timeout_s,
        reconnect_timeout=RECONNECT_TIMEOUT_S,
        name=application_name,
        open=False,
    )
    try:
        await pool.open(wait=True, timeout=acquire_timeout_s)
        if min_size:
            async with pool.connection() as conn:
                fault = (None if pooled else await _find_pooler(conn)) or await find_session_fault(conn)
            if fault:
                raise SettingsError(fault)
        yield pool
    finally:
        await pool.close()


def session_dsn(dsn: str, application_name: str, further: Sequence[str] = ()) -> str:
    """The DSN with what every session of ours needs; set in the start-up packet, so no statement is sent for it."""
    given = str(conninfo_to_dict(dsn).get("options") or "")
    settings = [*(f"{name}={value}" for name, value in SESSION.items()), *further]
    options = [given, *("-c " + setting.replace(" ", "\\ ") for setting in settings)]
    return make_conninfo(_named_dsn(dsn, application_name), options=" ".join(options).strip())


async def find_session_fault(conn: Connection) -> str | None:
    """What the session behind the connection lacks, and the statements that give it to those to come; None: nothing."""
    cursor = await conn.execute(SQL.lacking, {"names": list(SESSION), "values": list(SESSION.values())})
    lacking = await cursor.fetchall()
    if not lacking:
        return None
    found = ", ".join(f"{name} = {value}" for name, value, _ in lacking)
    remedy = "; ".join(statement for _, _, statement in lacking)
    return (
        f"Sessions of the database have {found}, and a pooler lets us set nothing. "
        f"Run: {remedy}; then RECONNECT in the pooler."
    )


@asynccontextmanager
async def transact(pool: Pool) -> AsyncIterator[Connection]:
    """One transaction (READ COMMITTED) on a connection from the pool: committed at the end, rolled back on any error.

    Keep network calls out of the block: an open transaction stops vacuum for every queue.
    """
    async with pool.connection() as conn, conn.transaction():
        yield conn


async def retry_serialization(work: Callable[[], Awaitable[Result]], *, tries: int = CONFLICT_TRIES) -> Result:
    """Run `work`, again when Postgres ended its transaction for a deadlock (40P01) or a conflict (40001).

    `work` must open its own transaction and have no effect outside it. The error of the last try is raised.
    """
    for attempt in range(1, tries):
        try:
            return await work()
        except (DeadlockDetected, SerializationFailure):
            await asyncio.sleep(CONFLICT_DELAY_S * 2**attempt * random.random())
    return await work()


def _socket_is_quiet(conn: Connection) -> bool:
    """Whether an idle connection's socket has nothing to say; when it has, that is nearly always that it is closed.

    Asking the server on every use would cost a round trip each; this costs one system call.
    """
    poller = select.poll()
    poller.register(conn.fileno(), select.POLLIN | select.POLLHUP | select.POLLERR)
    return not poller.poll(0)


def _named_dsn(dsn: str, application_name: str) -> str:
    return make_conninfo(dsn, application_name=application_name, connect_timeout=CONNECT_TIMEOUT_S)


async def _find_pooler(conn: Connection) -> str | None:
    """A pooler gives its clients numbers of its own instead of the server process's."""
    cursor = await conn.execute(SQL.process)
    return None if await cursor.fetchone() == (conn.info.backend_pid,) else DIRECT_NEEDED
