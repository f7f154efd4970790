"""Rows that will never be sent, because their batch ended or expired, become `unsent`."""

from carteiro.storage import sweep
from carteiro.storage.pool import Pool, transact

ROWS_A_TRANSACTION = 5_000


async def withdraw_ended(pool: Pool) -> int:
    """Withdraw the pending rows of batches that no longer send; the settlement refunds them. Answers the rows moved.

    In bounded transactions: a million rows must not hold the batch's lock for long. Killed in between, the next sweep
    goes on.
    """
    withdrawn = 0
    async with pool.connection() as conn:
        ended = await sweep.batches_to_withdraw(conn)
    for batch_id in ended:
        moved = ROWS_A_TRANSACTION
        while moved == ROWS_A_TRANSACTION:
            async with transact(pool) as conn:
                moved = await sweep.withdraw_rows(conn, batch_id, n=ROWS_A_TRANSACTION, code="BATCH_ENDED")
            withdrawn += moved
    return withdrawn
