"""Record what the calls of claimed follow-ups came to. None had capacity, and nothing ambiguous is tried again."""

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from carteiro.domain.outcomes import followup_key
from carteiro.domain.retries import attempt_delay_s
from carteiro.services.dispatch.model import Result, Slice
from carteiro.services.dispatch.record import ATTEMPTS_MAX, judge, note_service, wait_for_pairs
from carteiro.settings import Settings
from carteiro.storage import follow_ups, outcomes
from carteiro.storage.outcomes import Move
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
                    _final(move, earlier[move.seq], piece.batch_id, pair_waits_s.get(move.seq, 0.0))
                    for move in verdicts.moves
                ],
                look_after_s=settings.reconcile_after_s,
            )
            await note_service(conn, piece, verdicts, settings)

    await retry_serialization(attempt)


def _final(move: Move, earlier: int, batch_id: UUID, pair_wait_s: float) -> Move:
    """What did not leave waits, or fails after too many tries."""
    if move.event != "given_back":
        return move
    if not move.attempts:
        return replace(move, delay_s=max(move.delay_s, pair_wait_s))
    attempt = earlier + move.attempts
    if attempt >= min(ATTEMPTS_MAX, move.tries_max or ATTEMPTS_MAX):
        return replace(move, event="exhausted")
    return replace(move, delay_s=attempt_delay_s(None, attempt, followup_key(batch_id, move.seq)))
