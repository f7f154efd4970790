"""Room that came back is another batch's to use: those that wait for capacity try again at once."""

from collections.abc import Iterable

from carteiro.storage import settlement
from carteiro.storage.pool import Pool, retry_serialization, transact


async def wake_waiting(pool: Pool, business_managers: Iterable[str]) -> None:
    """Wake the batches that wait for capacity on these business managers.

    In a transaction of its own, after the one that gave the room back: no transaction holds the row of one batch and
    waits for another's. Killed in between, they wake at their `next_attempt_at`.
    """

    async def attempt() -> None:
        async with transact(pool) as conn:
            await settlement.wake_waiting(conn, sorted(set(business_managers)))

    await retry_serialization(attempt)
