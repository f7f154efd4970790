-- What clients do to a batch that is there: moved along edges of the lifecycle, scheduled anew, halted in running workers.

-- name: lock_batch
-- FOR UPDATE: no claim is made and no outcome recorded meanwhile; whoever commits first is seen by the other.
SELECT clock_timestamp(), b.service_id, b.status, b.scheduled_at, b.expires_at,
    EXISTS (SELECT FROM batch_event e WHERE e.batch_id = b.id AND e.event = 'approved') AS approved
FROM batch b
WHERE b.id = %(batch_id)s AND b.account_id = %(account_id)s AND b.status <> 'draft'
FOR UPDATE OF b

-- name: move_batch
UPDATE batch b SET status = e.target, event = e.event, reason = %(reason)s, blocked_by = NULL, next_attempt_at = NULL,
    ended_at = CASE WHEN e.target = ANY(%(ended)s::text[]) THEN clock_timestamp() ELSE b.ended_at END
FROM lifecycle_edge e
WHERE b.id = %(batch_id)s AND e.machine = 'batch' AND e.event = %(event)s AND e.source = b.status
RETURNING b.status

-- name: reschedule
-- The state stays, so no trigger tells of it: the audit row is written here, in the same statement.
WITH old AS (
    SELECT id, scheduled_at FROM batch WHERE id = %(batch_id)s
), moved AS (
    UPDATE batch b SET scheduled_at = %(scheduled_at)s, blocked_by = NULL, next_attempt_at = NULL
    WHERE b.id = %(batch_id)s AND b.status = ANY(%(unstarted)s::text[])
    RETURNING b.id, b.status, b.scheduled_at
)
INSERT INTO batch_event (batch_id, event, from_status, to_status, actor, reason)
SELECT moved.id, 'rescheduled', moved.status, moved.status, current_actor(),
    format('from %%s to %%s', coalesce(old.scheduled_at::text, 'at once'), coalesce(moved.scheduled_at::text, 'at once'))
FROM moved JOIN old USING (id)

-- name: tell_workers
-- Delivered when the transaction commits, and only then.
SELECT pg_notify('carteiro_halt', %(batch_id)s::text)

-- name: listen
LISTEN carteiro_halt

-- name: still_there
SELECT 1

-- name: until_last_slot
SELECT extract(epoch FROM max(c.last_slot_at) - clock_timestamp())::float
FROM claim c
WHERE c.service_id = %(service_id)s AND c.batch_id = %(batch_id)s AND c.closed_at IS NULL

-- name: idle_holders
-- Batches that hold capacity and will not use it soon: ended, expired, or paused for longer than `keep_s`.
SELECT b.id FROM batch b
WHERE b.settled_at IS NULL AND (%(batch_id)s::uuid IS NULL OR b.id = %(batch_id)s)
    AND EXISTS (SELECT FROM capacity_hold h WHERE h.batch_id = b.id AND h.held > 0)
    AND (b.status = ANY(%(ended)s::text[]) OR b.expires_at <= clock_timestamp()
        OR (b.status = 'paused' AND (SELECT max(e.at) FROM batch_event e WHERE e.batch_id = b.id AND e.event = 'paused')
            <= clock_timestamp() - make_interval(secs => %(keep_s)s)))
ORDER BY b.id LIMIT 100
