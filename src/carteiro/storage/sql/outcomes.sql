-- What a claim's calls came to, and what becomes of claims that nobody finishes.

-- name: begin_flush
-- The flush number makes a record idempotent: after a lost commit answer the repeat finds it taken.
UPDATE claim SET flushes = flushes + 1, open = open - %(n)s,
    closed_at = CASE WHEN open = %(n)s THEN coalesce(closed_at, clock_timestamp()) ELSE closed_at END
WHERE id = %(claim_id)s AND flushes = %(flush)s
RETURNING id

-- name: share_batch
SELECT status, max_attempts, retry_base_s FROM batch WHERE id = %(batch_id)s FOR KEY SHARE

-- name: clock
SELECT clock_timestamp()

-- name: move_claimed
-- Rows that are certainly not sent, or whose outcome is unknown: only while they are `pending_send` under this claim.
WITH told AS (
    SELECT * FROM unnest(%(seqs)s::int[], %(events)s::text[], %(attempts)s::int[], %(codes)s::text[], %(delays)s::float[], %(duplicates)s::bool[],
            %(together)s::int[]) AS t (seq, event, attempts, code, delay_s, duplicate, together)
), held AS MATERIALIZED (
    SELECT m.seq, m.sender_id, m.business_manager_id, m.bucket_at, m.slot_at, m.unknown_at, e.event, e.target, t.attempts, t.code,
        t.delay_s, t.duplicate, t.together
    FROM told t
    JOIN message m ON m.batch_id = %(batch_id)s AND m.seq = t.seq
    JOIN lifecycle_edge e ON e.machine = 'message' AND e.event = t.event AND coalesce(e.source = m.status, false)
    -- coalesce(): see claims.sql.
    WHERE m.seq = ANY(%(seqs)s::int[]) AND coalesce(m.claim_id = %(claim_id)s, false)
    ORDER BY m.seq
    FOR UPDATE OF m
), moved AS (
    UPDATE message m SET status = h.target, event = h.event, attempt = m.attempt + h.attempts, code = coalesce(h.code, m.code),
        unit_returned = h.event <> 'lost',
        failed_at = CASE WHEN h.event = 'exhausted' THEN clock_timestamp() ELSE m.failed_at END,
        unknown_at = CASE WHEN h.event = 'lost' THEN coalesce(m.unknown_at, clock_timestamp()) ELSE m.unknown_at END
    FROM held h WHERE m.batch_id = %(batch_id)s AND m.seq = h.seq AND m.seq = ANY(%(seqs)s::int[])
    RETURNING m.seq
), returned AS (
    INSERT INTO message_return (batch_id, seq, available_at, together)
    SELECT %(batch_id)s, seq, clock_timestamp() + make_interval(secs => delay_s), together FROM held WHERE event = 'given_back'
    ON CONFLICT (batch_id, seq) DO UPDATE SET available_at = excluded.available_at, together = excluded.together
), unknown AS (
    -- Unknown since its call, or its first one: the provider's log forgets by that time, not by when we noticed.
    INSERT INTO message_unknown (batch_id, seq, since_at, look_at, duplicate)
    SELECT %(batch_id)s, seq, least(clock_timestamp(), slot_at, unknown_at),
        clock_timestamp() + make_interval(secs => %(look_after_s)s), duplicate
    FROM held WHERE event = 'lost'
    ON CONFLICT (batch_id, seq) DO UPDATE SET duplicate = message_unknown.duplicate OR excluded.duplicate
)
SELECT seq, event, sender_id, business_manager_id, bucket_at FROM held

-- name: note_duplicates
-- The claim may have lapsed before the provider said so: the row is unknown already, and must never be proven absent.
UPDATE message_unknown SET duplicate = true
WHERE batch_id = %(batch_id)s AND seq = ANY(ARRAY(
    SELECT m.seq FROM message m WHERE m.batch_id = %(batch_id)s AND m.seq = ANY(%(seqs)s::int[]) AND m.claim_id = %(claim_id)s))

-- name: lapsed_claim
SELECT id, batch_id, seqs, follow_ups FROM claim
WHERE closed_at IS NULL AND lease_until < clock_timestamp()
    AND pg_postmaster_start_time() < clock_timestamp() - make_interval(secs => %(grace_s)s)
ORDER BY batch_id, id LIMIT 1
FOR UPDATE SKIP LOCKED

-- name: close_claim
UPDATE claim SET closed_at = clock_timestamp() WHERE id = %(claim_id)s AND closed_at IS NULL

-- name: renew_leases
UPDATE claim SET lease_until = clock_timestamp() + make_interval(secs => %(lease_s)s)
WHERE id = ANY(%(claim_ids)s::bigint[]) AND closed_at IS NULL AND lease_until > clock_timestamp()
RETURNING id, lease_until

-- name: note_health
UPDATE service_health SET
    latency_s = CASE WHEN %(latency_s)s::float IS NULL THEN latency_s ELSE latency_s * 0.8 + %(latency_s)s::float * 0.2 END,
    failures_in_a_row = CASE WHEN %(answered)s THEN 0 ELSE failures_in_a_row END + %(failures)s,
    probe_s = CASE WHEN %(answered)s THEN 0 ELSE probe_s END
WHERE service_id = %(service_id)s
RETURNING failures_in_a_row

-- name: wait_service
UPDATE service_health SET wait_until = greatest(wait_until, clock_timestamp() + make_interval(secs => %(wait_s)s)), wait_reason = %(reason)s
WHERE service_id = %(service_id)s

-- name: black_out
-- Once a pause: the other calls in flight that fail meanwhile do not make it longer.
UPDATE service_health SET
    probe_s = least(%(longest_s)s, greatest(%(first_s)s, probe_s * 2)),
    wait_until = clock_timestamp() + make_interval(secs => least(%(longest_s)s, greatest(%(first_s)s, probe_s * 2))),
    wait_reason = 'blackout'
WHERE service_id = %(service_id)s AND (wait_until IS NULL OR wait_until <= clock_timestamp())

-- name: wait_senders
WITH told AS MATERIALIZED (
    SELECT s.id, t.wait_s FROM sender s JOIN unnest(%(senders)s::text[], %(waits_s)s::float[]) AS t (id, wait_s) USING (id)
    ORDER BY s.id FOR NO KEY UPDATE OF s
)
UPDATE sender s SET wait_until = greatest(s.wait_until, clock_timestamp() + make_interval(secs => told.wait_s)), wait_reason = %(reason)s
FROM told WHERE s.id = told.id

-- name: note_pair_waits
INSERT INTO pair_wait AS p (batch_id, seq, waits) SELECT %(batch_id)s, seq, 1 FROM unnest(%(seqs)s::int[]) AS seq
ON CONFLICT (batch_id, seq) DO UPDATE SET waits = least(p.waits + 1, 1000)
RETURNING seq, waits

-- name: note_code
-- Not where more is known already: the order of the two must not matter.
UPDATE message SET code = %(code)s
WHERE batch_id = %(batch_id)s AND seq = ANY(%(seqs)s::int[]) AND claim_id = %(claim_id)s AND status = 'sent'

-- name: stop_sender
UPDATE sender SET status = 'STOPPED' WHERE id = ANY(%(senders)s::text[]) AND status = 'ACTIVE'

-- name: stop_submission
UPDATE submission s SET status = 'STOPPED' FROM template t, batch b
WHERE b.id = %(batch_id)s AND t.name = b.template_name AND t.language = b.template_language AND s.template_id = t.id
    AND s.business_manager_id = ANY(%(bms)s::text[]) AND s.status = 'APPROVED'
