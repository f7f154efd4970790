-- What a sweep asks: everything is derived from our own tables, so that a lost job costs a second.

-- name: services_to_pump
WITH due AS (
    SELECT b.service_id FROM batch b
    WHERE b.status IN ('pending', 'processing') AND b.door <> 'reminder'
        AND (b.scheduled_at IS NULL OR b.scheduled_at <= clock_timestamp())
        AND (b.expires_at IS NULL OR b.expires_at > clock_timestamp())
        AND (b.next_attempt_at IS NULL OR b.next_attempt_at <= clock_timestamp())
        AND (b.cursor_seq < b.total OR EXISTS (SELECT FROM message_return r WHERE r.batch_id = b.id AND r.available_at <= clock_timestamp()))
    UNION
    SELECT service_id FROM follow_up_claimable
)
SELECT due.service_id
FROM due
JOIN service s ON s.id = due.service_id AND s.active
JOIN service_health h ON h.service_id = s.id
WHERE (h.wait_until IS NULL OR h.wait_until <= clock_timestamp())
    AND (s.max_inflight IS NULL OR s.max_inflight > (
        SELECT coalesce(sum(c.open), 0) FROM claim c WHERE c.service_id = s.id AND c.closed_at IS NULL))

-- name: try_lead
INSERT INTO lead AS l (name, holder, until)
VALUES ('sweep', %(worker_id)s, clock_timestamp() + make_interval(secs => %(lease_s)s))
ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until = excluded.until
WHERE l.holder = excluded.holder OR l.until <= clock_timestamp()
RETURNING true

-- name: due
-- A clock in a subquery is read once, and an index can begin there.
SELECT
    EXISTS (SELECT FROM receipt_inbox)
        OR EXISTS (
            SELECT FROM receipt_waiting w CROSS JOIN LATERAL (SELECT FROM message_alias a WHERE a.provider_id = w.provider_id LIMIT 1) a)
        OR EXISTS (SELECT FROM receipt_waiting w WHERE w.received_at < (SELECT clock_timestamp() - interval '1 hour')) AS receipts,
    EXISTS (SELECT FROM callback WHERE delivered_at IS NULL AND gave_up_at IS NULL AND next_attempt_at <= (SELECT clock_timestamp())) AS callbacks,
    EXISTS (SELECT FROM claim WHERE closed_at IS NULL AND lease_until < clock_timestamp()) AS lapsed,
    EXISTS (SELECT FROM batch WHERE settled_at IS NULL AND status <> 'draft') AS unsettled,
    EXISTS (SELECT FROM message_unknown WHERE look_at <= (SELECT clock_timestamp()))
        OR EXISTS (SELECT FROM follow_up WHERE status = 'unknown' AND look_at <= (SELECT clock_timestamp())) AS unknown,
    EXISTS (
        SELECT FROM follow_up f JOIN batch b ON b.id = f.batch_id
        WHERE f.status = 'pending' AND (b.status IN ('cancelled', 'error') OR f.window_until <= clock_timestamp())) AS follow_ups,
    NOT EXISTS (SELECT FROM lead WHERE name = 'sync' AND until > clock_timestamp()) AS sync

-- name: see_worker
INSERT INTO worker (id) VALUES (%(worker_id)s)
ON CONFLICT (id) DO UPDATE SET seen_at = clock_timestamp()

-- name: forget_workers
WITH gone AS (
    DELETE FROM worker WHERE seen_at < clock_timestamp() - make_interval(secs => %(silent_s)s) RETURNING id
)
DELETE FROM procrastinate_jobs j USING gone WHERE j.queue_name = 'pump.' || gone.id AND j.status = 'todo'

-- name: ensure_partitions
SELECT ensure_partitions(1, 8)

-- name: batches_to_withdraw
-- Batches that no longer send, or whose time is over, and still have pending rows.
SELECT b.id FROM batch b
WHERE b.settled_at IS NULL AND b.status <> 'draft'
    AND (b.status IN ('completed', 'cancelled', 'error') OR b.expires_at <= clock_timestamp())
    AND (SELECT sum(t.pending) FROM batch_tally t WHERE t.batch_id = b.id) > 0
ORDER BY b.id LIMIT 20

-- name: expire_batch
-- Before dispatch began it ends the batch; later the batch goes on to its settlement with what has left.
UPDATE batch b SET status = e.target, event = e.event, reason = 'expires_at passed before dispatch began', ended_at = clock_timestamp(),
    blocked_by = NULL, next_attempt_at = NULL
FROM lifecycle_edge e
WHERE b.id = %(batch_id)s AND b.expires_at <= clock_timestamp()
    AND e.machine = 'batch' AND e.event = 'expired' AND e.source = b.status

-- name: lock_batch
SELECT id FROM batch WHERE id = %(batch_id)s FOR UPDATE

-- name: withdraw_rows
-- The pending ones among the next `n` seqs, so that all steps together read a batch once. Where none is said to be the first step,
-- it begins where nothing was claimed yet.
WITH closed AS MATERIALIZED (
    SELECT total, coalesce(%(after_seq)s::int, CASE WHEN total <= %(n)s THEN 0 ELSE cursor_seq END) AS after_seq, CASE
            WHEN status = 'error' THEN 'BATCH_ERROR'
            WHEN status = 'cancelled' AND event <> 'expired' THEN 'BATCH_CANCELLED'
            ELSE 'BATCH_EXPIRED'
        END AS code
    FROM batch
    WHERE id = %(batch_id)s AND (status IN ('completed', 'cancelled', 'error') OR expires_at <= clock_timestamp())
), picked AS MATERIALIZED (
    SELECT m.seq FROM message m
    WHERE m.batch_id = %(batch_id)s AND m.status = 'pending'
        AND m.seq > (SELECT after_seq FROM closed) AND m.seq <= (SELECT after_seq FROM closed) + %(n)s
    ORDER BY m.seq
    FOR UPDATE
), moved AS (
    UPDATE message m SET status = e.target, event = e.event, code = (SELECT code FROM closed)
    FROM lifecycle_edge e
    WHERE m.batch_id = %(batch_id)s AND m.seq = ANY(ARRAY(SELECT seq FROM picked)) AND e.machine = 'message' AND e.event = 'withdrawn' AND e.source = m.status
    RETURNING m.seq
), gone AS (
    DELETE FROM message_return WHERE batch_id = %(batch_id)s AND seq = ANY(ARRAY(SELECT seq FROM moved))
)
SELECT (SELECT count(*)::int FROM moved), (SELECT after_seq + %(n)s FROM closed WHERE after_seq + %(n)s < total)
