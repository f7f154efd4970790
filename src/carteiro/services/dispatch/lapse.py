"""Claims that nobody finishes: their worker died, froze, or lost Postgres for longer than its lease."""

from carteiro.settings import Settings
from carteiro.storage import outcomes
from carteiro.storage.outcomes import Move
from carteiro.storage.pool import Pool, retry_serialization, transact


async def close_lapsed_claims(pool: Pool, settings: Settings) -> int:
    """Rows still `pending_send` under a lapsed claim may have been sent: they become `unknown`. Answers the rows moved.

    Locks: the claims (skipping those in use), each batch FOR KEY SHARE, messages in order of seq. Their capacity
    stays charged.
    """

    async def attempt() -> int:
        moved = 0
        async with transact(pool) as conn:
            for claim_id, batch_id, seqs in await outcomes.lock_lapsed_claims(conn, grace_s=settings.lease_grace_s):
                await outcomes.share_batch(conn, batch_id)
                lost = [Move(seq, "lost", "LEASE_LAPSED") for seq in seqs]
                rows = await outcomes.move_claimed(
                    conn, batch_id, claim_id, lost, look_after_s=settings.reconcile_after_s
                )
                await outcomes.close_claim(conn, claim_id)
                moved += len(rows)
        return moved

    return await retry_serialization(attempt)
