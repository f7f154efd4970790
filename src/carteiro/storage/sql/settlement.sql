-- The end of a batch: its totals, what it still held, and the tallies behind its counts.

-- name: settleable
-- By the tallies, before any lock. Drafts, and batches that have not begun, cannot be settled; nor can a paused one that follows
-- up: completed, it would go on following up although it was told to stop.
SELECT b.id FROM batch b
WHERE b.settled_at IS NULL AND b.status IN ('processing', 'paused', 'completed', 'cancelled', 'error')
    AND NOT (b.status = 'paused' AND b.follow_up IS NOT NULL)
    AND (SELECT sum(t.delivered + t.seen + t.failed + t.unsent) FROM batch_tally t WHERE t.batch_id = b.id) = b.total
ORDER BY b.id LIMIT %(limit)s

-- name: lock_unsettled
SELECT billing_account_id, status, charge_rule, total, debited, refunded, callback_url, reference, error_code
FROM batch
WHERE id = %(batch_id)s AND settled_at IS NULL AND status IN ('processing', 'paused', 'completed', 'cancelled', 'error')
    AND NOT (status = 'paused' AND follow_up IS NOT NULL)
FOR UPDATE

-- name: counts
SELECT coalesce(sum(pending), 0)::int, coalesce(sum(pending_send), 0)::int, coalesce(sum(unknown), 0)::int,
    coalesce(sum(sent), 0)::int, coalesce(sum(delivered), 0)::int, coalesce(sum(seen), 0)::int,
    coalesce(sum(failed), 0)::int, coalesce(sum(unsent), 0)::int
FROM batch_tally WHERE batch_id = %(batch_id)s

-- name: settle
-- A batch that was still open is completed; a cancelled or failed one keeps its state.
UPDATE batch b SET
    status = coalesce(next.target, b.status), event = coalesce(next.event, b.event),
    reason = CASE WHEN next.target IS NULL THEN b.reason END, ended_at = coalesce(b.ended_at, clock_timestamp()),
    charged = %(charged)s, refunded = b.refunded + %(refund)s, settled_at = clock_timestamp(),
    blocked_by = NULL, next_attempt_at = NULL
FROM (
    SELECT old.id, e.event, e.target
    FROM batch old
    LEFT JOIN lifecycle_edge e ON e.machine = 'batch' AND e.event = 'completed' AND e.source = old.status
    WHERE old.id = %(batch_id)s
) next
WHERE b.id = next.id AND b.settled_at IS NULL
RETURNING b.status, b.refunded, b.settled_at

-- name: release_holds
WITH gone AS (
    DELETE FROM capacity_hold WHERE batch_id = %(batch_id)s RETURNING business_manager_id, held
)
UPDATE capacity_meter m SET held = m.held - gone.held FROM gone
WHERE m.kind = 'bm' AND m.owner = gone.business_manager_id AND gone.held > 0
RETURNING m.owner

-- name: wake_waiting
-- Batches that wait for one of these reasons and whose account may send from one of these business managers.
WITH waiting AS MATERIALIZED (
    SELECT b.id FROM batch b
    WHERE b.status IN ('pending', 'processing') AND b.blocked_by = ANY(%(reasons)s::text[]) AND b.next_attempt_at IS NOT NULL
        AND EXISTS (
            SELECT FROM sender_account sa JOIN sender s ON s.id = sa.sender_id
            WHERE sa.account_id = b.account_id AND s.business_manager_id = ANY(%(business_managers)s::text[]))
    ORDER BY b.id
    FOR NO KEY UPDATE
)
UPDATE batch b SET next_attempt_at = NULL FROM waiting WHERE b.id = waiting.id

-- name: overdue
-- Everything was claimed so long ago that whatever is still `sent` may be due. The rows themselves are read batch by batch.
SELECT b.id FROM batch b
WHERE b.settled_at IS NULL AND b.status <> 'draft'
    AND coalesce(b.turn_at, b.started_at) <= clock_timestamp() - make_interval(secs => %(older_than_s)s)
    AND (SELECT sum(t.sent) FROM batch_tally t WHERE t.batch_id = b.id) > 0
ORDER BY b.id

-- name: settled_with_sent
SELECT t.batch_id
FROM batch_tally t JOIN batch b ON b.id = t.batch_id AND b.settled_at IS NOT NULL
GROUP BY t.batch_id HAVING sum(t.sent) > 0
ORDER BY t.batch_id

-- name: share_batch
SELECT total FROM batch WHERE id = %(batch_id)s FOR KEY SHARE

-- name: assume_delivered
-- Those among the next `limit` seqs, so that all steps together read a batch once.
WITH due AS MATERIALIZED (
    SELECT seq FROM message
    WHERE batch_id = %(batch_id)s AND seq > %(after_seq)s AND seq <= %(after_seq)s + %(limit)s AND status = 'sent'
        AND sent_at <= clock_timestamp() - make_interval(secs => %(older_than_s)s)
    ORDER BY seq
    FOR UPDATE
), moved AS (
    UPDATE message m SET status = e.target, event = e.event, assumed_at = clock_timestamp()
    FROM lifecycle_edge e
    WHERE m.batch_id = %(batch_id)s AND m.seq = ANY(ARRAY(SELECT seq FROM due))
        AND e.machine = 'message' AND e.event = 'assumed' AND e.source = m.status
    RETURNING m.seq
)
SELECT count(*)::int FROM moved

-- name: tall_unsettled
-- A batch of one never gets tall, and there may be many of them.
SELECT b.id FROM batch b
WHERE b.settled_at IS NULL AND b.total > 1
    AND (SELECT count(*) FROM (SELECT FROM batch_tally t WHERE t.batch_id = b.id LIMIT %(rows)s + 1) few) > %(rows)s

-- name: tall_among
SELECT b.id FROM unnest(%(batch_ids)s::uuid[]) AS b (id)
WHERE (SELECT count(*) FROM (SELECT FROM batch_tally t WHERE t.batch_id = b.id LIMIT %(rows)s + 1) few) > %(rows)s

-- name: fold_tally
-- One statement: a snapshot has either the rows or their sum. Rows that another fold holds are left to it.
WITH gone AS (
    DELETE FROM batch_tally
    WHERE ctid = ANY(ARRAY(SELECT ctid FROM batch_tally WHERE batch_id = %(batch_id)s FOR UPDATE SKIP LOCKED))
    RETURNING pending, pending_send, unknown, sent, delivered, seen, failed, unsent
)
INSERT INTO batch_tally (batch_id, pending, pending_send, unknown, sent, delivered, seen, failed, unsent)
SELECT %(batch_id)s, sum(pending), sum(pending_send), sum(unknown), sum(sent), sum(delivered), sum(seen), sum(failed), sum(unsent)
FROM gone
HAVING count(*) > 0
