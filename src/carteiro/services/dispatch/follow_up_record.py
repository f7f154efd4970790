"""Record what the calls of claimed follow-ups came to. None had capacity, and nothing ambiguous is tried again."""

from collections.abc import Sequence
from dataclasses import replace

from carteiro.domain.outcomes import followup_key
from carteiro.services.dispatch.model import Result, Slice
from carteiro.services.dispatch.record import final_move, judge, note_service, wait_for_pairs
from carteiro.settings import Settings
from carteiro.storage import follow_ups, outcomes
from carteiro.storage.pool import Pool, retry_serialization, transact


async def record_follow_ups(
    pool: Pool, piece: Slice, results: Sequence[Result], flush: int, settings: Settings
) -> None:
    """Write one flush; repeating it is harmless.

    Locks: the claim, the batch (FOR KEY SHARE), follow-ups in order of seq, then what `note_service` writes.
    """

    async def attempt() -> None:
        async with transact(pool) as conn:
            if not await outcomes.begin_flush(conn, piece.claim_id, flush, len(results)):
                return
            verdicts = judge(results)
            await outcomes.share_batch(conn, piece.batch_id)
            facts = [replace(fact, followup=True) for fact in verdicts.facts]
            await follow_ups.merge_facts(conn, piece.batch_id, facts, claim_id=piece.claim_id)
            earlier = {result.due.outgoing.seq: result.due.attempt for result in results}
            pair_waits_s = await wait_for_pairs(conn, piece, verdicts.pairs)
            await follow_ups.move_claimed(
                conn,
                piece.batch_id,
                piece.claim_id,
                [
                    final_move(
                        move,
                        earlier[move.seq],
                        followup_key(piece.batch_id, move.seq),
                        pair_wait_s=pair_waits_s.get(move.seq, 0.0),
                    )
                    for move in verdicts.moves
                ],
                look_after_s=settings.reconcile_after_s,
            )
            await note_service(conn, piece, verdicts, settings)

    await retry_serialization(attempt)
