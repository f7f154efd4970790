"""Rows that will never be sent, because their batch ended or expired or their window closed, become `unsent`."""

from uuid import UUID

from carteiro.storage import follow_ups, sweep
from carteiro.storage.pool import Pool, transact

ROWS_A_TRANSACTION = 5_000
ROWS_A_SWEEP = 50_000
"""So that the sweep is not kept from its other work by a batch of a million."""


async def withdraw_ended(pool: Pool) -> int:
    """Withdraw the pending rows of batches that no longer send; the settlement refunds them. Answers the rows moved,
    about ROWS_A_SWEEP at most.

    In bounded transactions: a million rows must not hold the batch's lock for long. Killed in between, the next sweep
    goes on.
    """
    withdrawn = 0
    async with pool.connection() as conn:
        ended = await sweep.batches_to_withdraw(conn)
    for batch_id in ended:
        after_seq: int | None = 0
        while after_seq is not None and withdrawn < ROWS_A_SWEEP:
            moved, after_seq = await _withdraw(pool, batch_id, after_seq)
            withdrawn += moved
    return withdrawn


async def withdraw_some(pool: Pool, batch_id: UUID) -> None:
    """Withdraw the first pending rows of a batch that ended or expired, about ROWS_A_TRANSACTION; the sweep does the
    rest.
    """
    await _withdraw(pool, batch_id, None)


async def _withdraw(pool: Pool, batch_id: UUID, after_seq: int | None) -> tuple[int, int | None]:
    async with transact(pool) as conn:
        return await sweep.withdraw_rows(conn, batch_id, after_seq=after_seq, n=ROWS_A_TRANSACTION)


async def withdraw_follow_ups(pool: Pool) -> int:
    """Withdraw pending follow-ups of batches that were cancelled or failed, and those whose window has closed; about
    ROWS_A_SWEEP at most.
    """
    withdrawn, moved = 0, ROWS_A_TRANSACTION
    while moved == ROWS_A_TRANSACTION and withdrawn < ROWS_A_SWEEP:
        async with transact(pool) as conn:
            moved = await follow_ups.withdraw_ended(conn, n=ROWS_A_TRANSACTION)
        withdrawn += moved
    return withdrawn
