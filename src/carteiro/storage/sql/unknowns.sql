-- Rows whose outcome is to be looked up in the provider's log.

-- name: take
-- The look-up is leased by pushing `look_at` ahead: a worker that dies in between only delays it.
WITH due AS MATERIALIZED (
    SELECT u.batch_id, u.seq FROM message_unknown u
    WHERE u.look_at <= (SELECT clock_timestamp()) ORDER BY u.look_at LIMIT %(n)s
    FOR UPDATE SKIP LOCKED
)
UPDATE message_unknown u SET look_at = clock_timestamp() + make_interval(secs => %(again_s)s)
FROM due JOIN batch b ON b.id = due.batch_id
WHERE u.batch_id = due.batch_id AND u.seq = due.seq
RETURNING b.service_id, u.batch_id, u.seq, u.look_at, u.since_at <= clock_timestamp() - make_interval(secs => %(give_up_s)s)

-- name: hold
-- `look_at` is the lease of a look-up: a row that was settled or taken anew meanwhile is not what the log was asked about.
SELECT u.seq
FROM (SELECT * FROM unnest(%(seqs)s::int[], %(look_ats)s::timestamptz[]) AS t (seq, look_at) ORDER BY seq) t
CROSS JOIN LATERAL (
    SELECT u.seq FROM message_unknown u WHERE u.batch_id = %(batch_id)s AND u.seq = t.seq AND u.look_at = t.look_at FOR UPDATE
) u

-- name: note_absent
UPDATE message_unknown SET absent = absent + 1
WHERE batch_id = %(batch_id)s AND seq = ANY(%(seqs)s::int[])
RETURNING seq, absent >= %(proof)s AND NOT duplicate

-- name: units
SELECT seq, business_manager_id, sender_id, bucket_at FROM message
WHERE batch_id = %(batch_id)s AND seq = ANY(%(seqs)s::int[]) AND status = 'unknown'

-- name: return_absent
WITH held AS MATERIALIZED (
    SELECT m.seq FROM message m
    WHERE m.batch_id = %(batch_id)s AND m.seq = ANY(%(seqs)s::int[]) AND m.status = 'unknown'
    ORDER BY m.seq FOR UPDATE
), moved AS (
    UPDATE message m SET status = e.target, event = e.event, code = 'PROVEN_ABSENT', unit_returned = true
    FROM lifecycle_edge e
    WHERE m.batch_id = %(batch_id)s AND m.seq = ANY(ARRAY(SELECT seq FROM held))
        AND e.machine = 'message' AND e.event = %(event)s AND e.source = m.status
    RETURNING m.seq
), settled AS (
    DELETE FROM message_unknown WHERE batch_id = %(batch_id)s AND seq = ANY(ARRAY(SELECT seq FROM moved))
), returned AS (
    INSERT INTO message_return (batch_id, seq)
    SELECT %(batch_id)s, seq FROM moved WHERE %(event)s = 'absent'
    ON CONFLICT DO NOTHING
)
SELECT seq FROM moved
