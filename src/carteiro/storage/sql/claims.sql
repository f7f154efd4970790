-- The hot path: a slice of one batch is claimed. What Postgres expects of a batch is a guess, so nothing here may depend on it:
-- messages are named by `seq = ANY(...)` beside any join, or a batch could be read whole for each slice; what has only to be found
-- again is named by an array alone, because two short lists that are both taken for one row are joined by comparing all with all;
-- and coalesce() around what holds of nearly all rows keeps it from being taken for rare.

-- name: lock_service
SELECT pg_advisory_xact_lock(hashtextextended('service:' || %(service_id)s, 0))

-- name: service
-- After the lock, in a statement of its own: the snapshot must be younger than the lock, and so must the clock.
SELECT clock_timestamp(), s.provider, s.messages_per_second, s.max_inflight, s.messages_per_request, s.rotation, s.webhook_token, s.active,
    h.latency_s, h.failures_in_a_row, CASE WHEN h.wait_until > clock_timestamp() THEN h.wait_until END, h.wait_reason,
    (SELECT coalesce(sum(c.open), 0)::int FROM claim c WHERE c.service_id = s.id AND c.closed_at IS NULL)
FROM service s JOIN service_health h ON h.service_id = s.id
WHERE s.id = %(service_id)s

-- name: next_batch
-- Turns: the highest priority first, then whoever has waited longest since its last slice.
SELECT b.id, b.account_id, b.status, b.total, b.cursor_seq, b.template_name, b.template_language, b.template_signature,
    b.template_content, b.header, b.max_attempts
FROM batch b
WHERE b.service_id = %(service_id)s AND b.status IN ('pending', 'processing') AND b.door <> 'reminder'
    AND (b.scheduled_at IS NULL OR b.scheduled_at <= clock_timestamp())
    AND (b.expires_at IS NULL OR b.expires_at > clock_timestamp())
    AND (b.next_attempt_at IS NULL OR b.next_attempt_at <= clock_timestamp())
    AND (b.cursor_seq < b.total OR EXISTS (SELECT FROM message_return r WHERE r.batch_id = b.id AND r.available_at <= clock_timestamp()))
ORDER BY b.priority DESC, b.turn_at NULLS FIRST, b.id
LIMIT 1

-- name: one_batch
-- The turn of a batch that is sent by the request that made it.
SELECT b.id, b.account_id, b.status, b.total, b.cursor_seq, b.template_name, b.template_language, b.template_signature,
    b.template_content, b.header, b.max_attempts
FROM batch b
WHERE b.id = %(batch_id)s AND b.status IN ('pending', 'processing')
    AND (b.expires_at IS NULL OR b.expires_at > clock_timestamp())
    AND (b.next_attempt_at IS NULL OR b.next_attempt_at <= clock_timestamp())
    AND (b.cursor_seq < b.total OR EXISTS (SELECT FROM message_return r WHERE r.batch_id = b.id AND r.available_at <= clock_timestamp()))

-- name: one_due
SELECT extract(epoch FROM greatest(b.next_attempt_at, r.available_at) - clock_timestamp())::float
FROM batch b LEFT JOIN message_return r ON r.batch_id = b.id
WHERE b.id = %(batch_id)s AND b.status IN ('pending', 'processing') AND b.expires_at > clock_timestamp()
    AND (b.cursor_seq < b.total OR r.seq IS NOT NULL)

-- name: next_due
-- When the next of the service's batches that waits may be tried again. Of returned rows only those of single sends are looked at:
-- a batch with many is found by the sweep.
SELECT extract(epoch FROM min(greatest(b.next_attempt_at, b.scheduled_at, r.available_at)) - clock_timestamp())::float
FROM batch b
LEFT JOIN message_return r ON b.total = 1 AND r.batch_id = b.id AND r.seq = 1
WHERE b.service_id = %(service_id)s AND b.status IN ('pending', 'processing') AND b.door <> 'reminder'
    AND greatest(b.next_attempt_at, b.scheduled_at, r.available_at) > clock_timestamp()
    AND (b.expires_at IS NULL OR b.expires_at > clock_timestamp())
    AND (b.cursor_seq < b.total OR EXISTS (SELECT FROM message_return r WHERE r.batch_id = b.id))

-- name: lock_batch
-- Pause, cancel and reschedule take the row FOR UPDATE: whoever commits first is seen by the other.
SELECT b.status, b.cursor_seq, (SELECT coalesce(sum(t.pending), 0)::int FROM batch_tally t WHERE t.batch_id = b.id)
FROM batch b
WHERE b.id = %(batch_id)s AND b.status IN ('pending', 'processing')
    AND (b.scheduled_at IS NULL OR b.scheduled_at <= clock_timestamp())
    AND (b.expires_at IS NULL OR b.expires_at > clock_timestamp())
FOR NO KEY UPDATE

-- name: take_rows
-- Rows given back first, then the cursor's next. Locked rows are skipped; the caller notes the gaps that this leaves. A probe takes
-- whichever has failed least: a row that always fails must not keep its whole service suspended.
WITH back AS MATERIALIZED (
    SELECT m.seq, m.attempt, m.phone_key, r.together
    FROM (
        SELECT r.seq, r.together FROM message_return r WHERE r.batch_id = %(batch_id)s AND r.available_at <= clock_timestamp()
        ORDER BY r.seq LIMIT CASE WHEN %(probing)s THEN NULL ELSE %(reach)s END
    ) r
    JOIN message m ON m.batch_id = %(batch_id)s AND m.seq = r.seq
    WHERE m.status = 'pending'
    ORDER BY m.attempt, m.seq LIMIT %(n)s
    FOR UPDATE OF m SKIP LOCKED
), fresh AS MATERIALIZED (
    SELECT m.seq, m.attempt, m.phone_key FROM message m
    WHERE m.batch_id = %(batch_id)s AND m.seq > %(cursor_seq)s AND m.seq <= %(cursor_seq)s + %(reach)s AND m.status = 'pending'
    ORDER BY m.seq LIMIT (SELECT CASE WHEN %(probing)s THEN %(n)s ELSE %(n)s - count(*) END FROM back)
    FOR UPDATE OF m SKIP LOCKED
)
SELECT taken.seq, taken.fresh, taken.attempt, taken.phone_key, c.address, c.placeholders, c.extra, taken.together
FROM (
    SELECT * FROM (
        SELECT seq, attempt, phone_key, together, false AS fresh FROM back
        UNION ALL SELECT seq, attempt, phone_key, NULL, true FROM fresh
    ) either ORDER BY attempt, seq LIMIT %(n)s
) taken
JOIN message_content c ON c.batch_id = %(batch_id)s AND c.seq = taken.seq
ORDER BY taken.seq

-- name: open_claim
WITH opened AS (
    INSERT INTO claim (batch_id, service_id, worker_id, seqs, size, open, last_slot_at, lease_until)
    VALUES (%(batch_id)s, %(service_id)s, %(worker_id)s, %(seqs)s::int[], %(size)s, %(size)s, %(last_slot_at)s,
        clock_timestamp() + make_interval(secs => %(lease_s)s))
    RETURNING id, lease_until
), claimed AS (
    UPDATE message m SET status = e.target, event = e.event, code = NULL, unit_returned = false, claim_id = opened.id, sender_id = t.sender_id,
        business_manager_id = t.bm, slot_at = t.slot_at, bucket_at = t.bucket_at
    FROM opened,
        unnest(%(seqs)s::int[], %(senders)s::text[], %(bms)s::text[], %(slots)s::timestamptz[], %(buckets)s::timestamptz[])
            AS t (seq, sender_id, bm, slot_at, bucket_at),
        lifecycle_edge e
    WHERE m.batch_id = %(batch_id)s AND m.seq = t.seq AND m.seq = ANY(%(seqs)s::int[])
        AND e.machine = 'message' AND e.event = 'claimed' AND coalesce(e.source = m.status, false)
    RETURNING m.seq
), taken AS (
    DELETE FROM message_return WHERE batch_id = %(batch_id)s AND seq = ANY(ARRAY(SELECT seq FROM claimed))
)
SELECT opened.id, opened.lease_until, (SELECT count(*)::int FROM claimed) FROM opened

-- name: fail_guarded
WITH failed AS (
    UPDATE message m SET status = e.target, event = e.event, failed_at = clock_timestamp(), code = t.code
    FROM unnest(%(seqs)s::int[], %(codes)s::text[]) AS t (seq, code), lifecycle_edge e
    WHERE m.batch_id = %(batch_id)s AND m.seq = t.seq AND m.seq = ANY(%(seqs)s::int[])
        AND e.machine = 'message' AND e.event = 'guarded' AND coalesce(e.source = m.status, false)
    RETURNING m.seq
)
DELETE FROM message_return WHERE batch_id = %(batch_id)s AND seq = ANY(ARRAY(SELECT seq FROM failed))

-- name: note_gaps
INSERT INTO message_return (batch_id, seq)
SELECT m.batch_id, m.seq FROM message m
WHERE m.batch_id = %(batch_id)s AND m.seq > %(cursor_seq)s AND m.seq <= %(reached_seq)s
    AND m.status = 'pending' AND NOT m.seq = ANY(%(handled)s::int[])
ON CONFLICT DO NOTHING

-- name: drop_stale_returns
DELETE FROM message_return r
WHERE r.batch_id = %(batch_id)s
    AND (SELECT m.status FROM message m WHERE m.batch_id = %(batch_id)s AND m.seq = r.seq) <> 'pending'

-- name: start_batch
UPDATE batch b SET status = e.target, event = e.event, reason = NULL, started_at = coalesce(b.started_at, clock_timestamp())
FROM lifecycle_edge e
WHERE b.id = %(batch_id)s AND e.machine = 'batch' AND e.event = 'started' AND e.source = b.status

-- name: advance_batch
UPDATE batch SET cursor_seq = least(total, %(cursor_seq)s), turn_at = clock_timestamp(), blocked_by = NULL, next_attempt_at = NULL
WHERE id = %(batch_id)s

-- name: block_batch
UPDATE batch SET turn_at = clock_timestamp(), blocked_by = %(blocked_by)s, next_attempt_at = %(next_attempt_at)s
WHERE id = %(batch_id)s

-- name: block_service
-- What could be sent and waits for longer than another worker, which may have what we lack, would need to take it.
WITH waiting AS MATERIALIZED (
    SELECT b.id FROM batch b
    WHERE b.service_id = %(service_id)s AND b.status IN ('pending', 'processing') AND b.door <> 'reminder'
        AND greatest(b.created_at, b.scheduled_at, b.next_attempt_at, b.turn_at) <= clock_timestamp() - make_interval(secs => %(quiet_s)s)
        AND (b.expires_at IS NULL OR b.expires_at > clock_timestamp())
        AND (b.cursor_seq < b.total OR EXISTS (SELECT FROM message_return r WHERE r.batch_id = b.id AND r.available_at <= clock_timestamp()))
        AND NOT EXISTS (
            SELECT FROM batch o WHERE o.service_id = %(service_id)s AND o.status IN ('pending', 'processing')
                AND o.turn_at > clock_timestamp() - make_interval(secs => %(quiet_s)s))
    ORDER BY b.id
    FOR NO KEY UPDATE OF b SKIP LOCKED
)
UPDATE batch b SET blocked_by = %(blocked_by)s, next_attempt_at = clock_timestamp() + make_interval(secs => %(retry_s)s)
FROM waiting WHERE b.id = waiting.id

-- name: fail_batch
-- Only before the first send: later the same cause is a `blocked_by`.
UPDATE batch b SET status = e.target, event = e.event, reason = %(reason)s, error_code = %(code)s, ended_at = clock_timestamp(),
    blocked_by = NULL, next_attempt_at = NULL
FROM lifecycle_edge e
WHERE b.id = %(batch_id)s AND e.machine = 'batch' AND e.event = 'erred' AND e.source = b.status
    AND b.cursor_seq = 0
RETURNING b.id

-- name: read_pace
SELECT p.kind, p.owner, p.slots_us, p.counts
FROM pace_meter p JOIN unnest(%(kinds)s::text[], %(owners)s::text[]) AS t (kind, owner) USING (kind, owner)
ORDER BY p.kind, p.owner
FOR UPDATE OF p

-- name: ensure_pace
INSERT INTO pace_meter (kind, owner)
SELECT * FROM unnest(%(kinds)s::text[], %(owners)s::text[]) AS t (kind, owner)
WHERE NOT EXISTS (SELECT FROM pace_meter m WHERE m.kind = t.kind AND m.owner = t.owner)
ON CONFLICT DO NOTHING

-- name: write_pace
UPDATE pace_meter SET slots_us = %(slots_us)s::bigint[], counts = %(counts)s::int[] WHERE kind = %(kind)s AND owner = %(owner)s
