"""Connections, and the one way to open a transaction."""

import asyncio
import random
import select
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
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

from carteiro.storage.parameters import convert_parameters

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
) -> AsyncIterator[Pool]:
    """A pool of autocommit connections in UTC, open and with `min_size` connections made.

    It survives a restart of Postgres: dead connections are noticed when they are taken, and replaced. While Postgres
    is away, taking one raises psycopg_pool.PoolTimeout after `acquire_timeout_s`; so does opening the pool, unless
    `min_size` is 0. `options` are further settings of its sessions (`name=value`).
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
        session_dsn(dsn, application_name, options),
        kwargs={"autocommit": True},
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
        yield pool
    finally:
        await pool.close()


def session_dsn(dsn: str, application_name: str, further: Sequence[str] = ()) -> str:
    """The DSN with what every session of ours needs; set in the start-up packet, so no statement is sent for it."""
    given = str(conninfo_to_dict(dsn).get("options") or "")
    options = (
        "TimeZone=UTC",
        "jit=off",
        "default_transaction_isolation=read\\ committed",
        f"idle_in_transaction_session_timeout={IDLE_TRANSACTION_S}s",
        *further,
    )
    return make_conninfo(
        dsn,
        application_name=application_name,
        connect_timeout=CONNECT_TIMEOUT_S,
        options=" ".join([given, *(f"-c {option}" for option in options)]).strip(),
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
