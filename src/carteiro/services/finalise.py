"""Finalisation: freeze a batch's totals once, refund by rule, release what it held, tell the client."""

from collections.abc import Mapping, Sequence
from uuid import UUID

import structlog
from psycopg import InterfaceError, OperationalError

from carteiro.domain import money
from carteiro.domain.callbacks import batch_payload
from carteiro.domain.lifecycle import UNSETTLED, MessageState
from carteiro.settings import Settings
from carteiro.storage import callbacks, capacity, ledger, settlement
from carteiro.storage.pool import Connection, Pool, retry_serialization, transact
from carteiro.storage.settlement import Unsettled

log = structlog.get_logger(__name__)

CAUSE = "settled"
"""Of the ledger's entry: at most one per batch."""
ACTOR = "finalise"

ASSUME_SLICE = 5_000
"""Rows that one transaction takes for delivered."""
ASSUME_ROWS = 20_000
"""Rows of one call, so that a sweep is not kept from its other work."""
TALL_TALLY = 50
"""Rows of a batch's tally above which they are folded."""


async def finalise_due(pool: Pool, settings: Settings, *, limit: int = 100) -> list[UUID]:
    """Settle up to `limit` batches whose messages are all terminal; answers those that this call settled.

    One transaction a batch: once only, whoever calls at the same time. A batch that cannot be settled is reported and
    left, and holds up no other. Then the batches that waited for the released capacity are woken.
    """
    async with pool.connection() as conn:
        due = await settlement.settleable(conn, limit=limit)
    settled: list[UUID] = []
    freed: set[str] = set()
    for batch_id in due:
        try:
            released = await _finalise(pool, batch_id, settings)
        except (OperationalError, InterfaceError):
            raise
        except Exception:
            log.exception("batch_not_settled", batch_id=str(batch_id))
            continue
        if released is not None:
            settled.append(batch_id)
            freed.update(released)
    if freed:
        # Afterwards, so that no transaction holds the rows of one batch and waits for another's.
        async with transact(pool) as conn:
            await settlement.wake_waiting(conn, sorted(freed))
    return settled


async def assume_delivered(pool: Pool, settings: Settings, *, limit: int = ASSUME_ROWS) -> int:
    """Take messages for delivered that have no receipt so long after they were sent; how many, about `limit` at most.

    Looks at unsettled batches of which nothing was claimed for as long.
    """
    older_than_s = settings.assume_delivered_after_s
    async with pool.connection() as conn:
        batch_ids = await settlement.overdue(conn, older_than_s=older_than_s)
    return await _assume(pool, batch_ids, older_than_s, limit)


async def assume_found_late(pool: Pool, settings: Settings, *, limit: int = ASSUME_ROWS) -> int:
    """The same for messages that were found to have gone after their batch was settled, having been given up before.

    What they cost is frozen, so nothing waits for it: once an hour is enough, and the look through all tallies costs
    little.
    """
    async with pool.connection() as conn:
        batch_ids = await settlement.settled_with_sent(conn)
    return await _assume(pool, batch_ids, settings.assume_delivered_after_s, limit)


async def _assume(pool: Pool, batch_ids: Sequence[UUID], older_than_s: float, limit: int) -> int:
    assumed = 0
    for batch_id in batch_ids:
        after_seq: int | None = 0
        while after_seq is not None and assumed < limit:
            async with transact(pool) as conn:
                moved, after_seq = await settlement.assume_delivered(
                    conn, batch_id, after_seq=after_seq, older_than_s=older_than_s, limit=ASSUME_SLICE
                )
            assumed += moved
    return assumed


async def fold_tallies(pool: Pool, among: Sequence[UUID] | None = None) -> int:
    """Fold the tallies that have grown tall, of unsettled batches or of the given ones; how many. Counts stay."""
    async with pool.connection() as conn:
        tall = await settlement.tall_batches(conn, rows=TALL_TALLY, among=among)
        for batch_id in tall:
            await settlement.fold_tally(conn, batch_id)
    return len(tall)


async def _finalise(pool: Pool, batch_id: UUID, settings: Settings) -> list[str] | None:
    """Settle one batch: the business managers on which it still held capacity, or None when it was not settled."""

    async def attempt() -> list[str] | None:
        async with transact(pool) as conn:
            return await _settle(conn, batch_id, settings)

    return await retry_serialization(attempt)


async def _settle(conn: Connection, batch_id: UUID, settings: Settings) -> list[str] | None:
    """Locks the meters of the batch's holds, the batch FOR UPDATE, and the account."""
    holds = await capacity.read_holds(conn, batch_id)
    if holds:
        keep_s = settings.window_s + settings.bucket_s
        await capacity.lock_meters(conn, {("bm", owner) for owner in holds}, keep_s=keep_s)
    batch = await settlement.lock_unsettled(conn, batch_id)
    if batch is None:
        return None
    if not (await capacity.read_holds(conn, batch_id)).keys() <= holds.keys():
        return None  # it has come to hold elsewhere since: the next sweep locks that meter too
    counts = await settlement.read_counts(conn, batch_id)
    if any(counts[state] for state in UNSETTLED) or sum(counts.values()) != batch.total:
        return None
    await _pay(conn, batch_id, batch, counts)
    await settlement.fold_tally(conn, batch_id)
    return await settlement.release_holds(conn, batch_id)


async def _pay(conn: Connection, batch_id: UUID, batch: Unsettled, counts: Mapping[MessageState, int]) -> None:
    """Freeze the totals, refund, and queue the callback. Raises RuntimeError when the money would not add up."""
    # A batch that cost nothing is settled for nothing.
    charged, refund = money.settlement(batch.charge_rule, counts, batch.refunded) if batch.debited else (0, 0)
    settled = await settlement.settle(conn, batch_id, charged=charged, refund=refund)
    if settled is None or charged + settled.refunded != batch.debited:
        raise RuntimeError(f"batch {batch_id}: {batch.debited} debited, {charged} charged, {refund} to refund")
    if refund and await ledger.refund(conn, batch.billing_account_id, batch_id, refund, CAUSE, ACTOR) is None:
        raise RuntimeError(f"batch {batch_id} was refunded as {CAUSE} before its settlement")
    if batch.callback_url is None:
        return
    event = f"batch.{settled.status}"
    body = batch_payload(
        event=event,
        settled_at=settled.settled_at,
        batch_id=batch_id,
        reference=batch.reference,
        status=settled.status,
        total=batch.total,
        counts={str(state): n for state, n in counts.items()},
        money={"debited": batch.debited, "charged": charged, "refunded": settled.refunded},
        error_code=batch.error_code,
    )
    await callbacks.queue(conn, batch_id=batch_id, event=event, url=batch.callback_url, body=body)
