"""The signal that a batch was paused or cancelled: heard by every worker, so that it starts no further call of it."""

import asyncio
from collections.abc import Callable
from uuid import UUID

from psycopg import AsyncConnection

from carteiro.storage import control
from carteiro.storage.pool import session_dsn

CHECK_EVERY_S = 5.0
"""How soon it is noticed that a connection was cut without a word."""
CHECK_TIMEOUT_S = 5.0


async def hear_halts(dsn: str, worker_id: str, halt: Callable[[UUID], None]) -> None:
    """Call `halt` for every batch that is paused or cancelled from now on, until Postgres goes away or this task is
    cancelled. On a direct connection of its own.

    What was missed while it was away does no harm: whoever pauses or cancels waits for the slots of open claims.
    """
    conn = await AsyncConnection.connect(session_dsn(dsn, f"carteiro-signals {worker_id}"), autocommit=True)
    async with conn:
        await control.listen(conn)
        while True:
            async with asyncio.timeout(CHECK_EVERY_S + CHECK_TIMEOUT_S):
                async for batch_id in control.heard(conn, timeout_s=CHECK_EVERY_S):
                    halt(batch_id)
