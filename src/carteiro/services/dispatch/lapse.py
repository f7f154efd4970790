"""Claims that nobody finishes: their worker died, froze, or lost Postgres for longer than its lease."""

from carteiro.settings import Settings
from carteiro.storage import follow_ups, outcomes
from carteiro.storage.outcomes import Move
from carteiro.storage.pool import Pool, retry_serialization, transact


async def close_lapsed_claims(pool: Pool, settings: Settings) -> int:
    """Rows still `pending_send` under a lapsed claim may have been sent: they become `unknown`. Answers the rows moved.

    A transaction a claim. Locks: the claim (skipping those in use), its batch FOR KEY SHARE, messages in order of
    seq. Their capacity stays charged. Follow-ups likewise.
    """

    async def close_one() -> int | None:
        async with transact(pool) as conn:
            lapsed = await outcomes.lock_lapsed_claim(conn, grace_s=settings.lease_grace_s)
            if lapsed is None:
                return None
            claim_id, batch_id, seqs, of_follow_ups = lapsed
            await outcomes.close_claim(conn, claim_id)
            await outcomes.share_batch(conn, batch_id)
            lost = [Move(seq, "lost", "LEASE_LAPSED") for seq in seqs]
            if of_follow_ups:
                return await follow_ups.move_claimed(
                    conn, batch_id, claim_id, lost, look_after_s=settings.reconcile_after_s
                )
            moved = await outcomes.move_claimed(conn, batch_id, claim_id, lost, look_after_s=settings.reconcile_after_s)
            return len(moved)

    total = 0
    while (moved := await retry_serialization(close_one)) is not None:
        total += moved
    return total
