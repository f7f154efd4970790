"""Room that came back is another batch's to use, and so is a sender: those that wait for it try again at once."""

from collections.abc import Iterable

from carteiro.storage import settlement
from carteiro.storage.pool import Pool, retry_serialization, transact

ROOM = ("capacity",)
SENDERS = ("capacity", "no_active_senders")
"""What a batch may wait for on a business manager of which a limit, a sender or a template's copy changed."""


async def wake_waiting(pool: Pool, business_managers: Iterable[str], reasons: tuple[str, ...] = ROOM) -> None:
    """Wake the batches that wait for `reasons` on these business managers.

    In a transaction of its own, after the one that made it possible: no transaction holds the row of one batch and
    waits for another's. Killed in between, they wake at their `next_attempt_at`.
    """

    async def attempt() -> None:
        async with transact(pool) as conn:
            await settlement.wake_waiting(conn, sorted(set(business_managers)), reasons=reasons)

    await retry_serialization(attempt)
