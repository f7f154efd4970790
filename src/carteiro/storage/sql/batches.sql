-- Batches: begun as invisible drafts, opened once everything that they need was taken, read with counts that sum to their total.

-- name: set_actor
SELECT set_config('carteiro.actor', %(actor)s, true)

-- name: add_draft
INSERT INTO batch (id, account_id, billing_account_id, service_id, priority, total, charge_rule, template_name,
    template_language, template_signature, template_content, header, request_signature, reference, callback_url, on_capacity,
    skipped, max_attempts, scheduled_at, expires_at, door, parent_batch_id, retry_base_s, follow_up)
VALUES (%(id)s, %(account_id)s, %(billing_account_id)s, %(service_id)s, %(priority)s, %(total)s, %(charge_rule)s,
    %(template_name)s, %(template_language)s, %(template_signature)s, %(template_content)s, %(header)s,
    %(request_signature)s, %(reference)s, %(callback_url)s, %(on_capacity)s, %(skipped)s, %(max_attempts)s,
    %(scheduled_at)s, %(expires_at)s, %(door)s, %(parent_batch_id)s, %(retry_base_s)s, %(follow_up)s)

-- name: hold_draft
SELECT id FROM batch WHERE id = %(batch_id)s AND status = 'draft' FOR KEY SHARE

-- name: complete_draft
UPDATE batch SET total = %(total)s, request_signature = %(request_signature)s, skipped = %(skipped)s
WHERE id = %(id)s AND status = 'draft'

-- name: open
UPDATE batch b SET status = e.target, event = e.event, debited = %(debited)s
FROM lifecycle_edge e
WHERE b.id = %(batch_id)s AND e.machine = 'batch' AND e.event = %(event)s AND e.source = b.status
RETURNING b.id

-- name: unlock_early
SELECT set_config('synchronous_commit', 'off', true)

-- name: reach_disk
-- A commit that has written something waits for the log up to there. This writes no row.
SELECT pg_logical_emit_message(true, 'carteiro', '')

-- name: lock_draft
SELECT id FROM batch WHERE id = %(batch_id)s AND status = 'draft' FOR UPDATE SKIP LOCKED

-- name: drop_draft
WITH rows AS (
    DELETE FROM message WHERE batch_id = %(batch_id)s
), content AS (
    DELETE FROM message_content WHERE batch_id = %(batch_id)s
), counts AS (
    DELETE FROM batch_tally WHERE batch_id = %(batch_id)s
)
DELETE FROM batch WHERE id = %(batch_id)s

-- name: abandoned_drafts
SELECT id FROM batch
WHERE settled_at IS NULL AND status = 'draft' AND created_at < clock_timestamp() - make_interval(secs => %(older_than_s)s)
ORDER BY id

-- name: owner
SELECT b.account_id FROM batch b WHERE b.id = %(batch_id)s AND b.status <> 'draft'

-- name: report
-- One statement, one snapshot: the counts are of the same instant as the state beside them. One batch or a page of them is a
-- stretch of one index, of any state or of one, whatever plan is kept for the statement.
WITH listed AS MATERIALIZED (
    (
        SELECT * FROM batch
        WHERE %(status)s::text IS NULL AND status <> 'draft'
            AND (account_id, id) BETWEEN (%(account_id)s, %(first_id)s) AND (%(account_id)s, %(last_id)s)
        ORDER BY account_id DESC, id DESC LIMIT %(limit)s
    ) UNION ALL (
        SELECT * FROM batch
        WHERE %(status)s::text IS NOT NULL AND status <> 'draft'
            AND (account_id, status, id) BETWEEN (%(account_id)s, %(status)s, %(first_id)s) AND (%(account_id)s, %(status)s, %(last_id)s)
        ORDER BY account_id DESC, status DESC, id DESC LIMIT %(limit)s
    )
)
SELECT b.id, b.service_id, b.status, b.reason, b.error_code,
    CASE WHEN w.reason IS NOT NULL THEN w.reason ELSE b.blocked_by END AS blocked_by,
    CASE WHEN w.reason IS NOT NULL THEN w.until ELSE b.next_attempt_at END AS next_attempt_at, b.total, b.debited, b.charged,
    b.refunded, b.template_name, b.template_language, b.reference, b.callback_url, b.on_capacity, b.skipped, b.max_attempts, b.follow_up,
    b.created_at, b.scheduled_at, b.expires_at, b.started_at, b.ended_at, b.settled_at,
    coalesce(t.pending, 0)::int AS pending, coalesce(t.pending_send, 0)::int AS pending_send,
    coalesce(t.unknown, 0)::int AS unknown, coalesce(t.sent, 0)::int AS sent, coalesce(t.delivered, 0)::int AS delivered,
    coalesce(t.seen, 0)::int AS seen, coalesce(t.failed, 0)::int AS failed, coalesce(t.unsent, 0)::int AS unsent, b.suppressed,
    coalesce(r.answered, 0)::int AS answered, b.parent_batch_id,
    (SELECT c.id FROM batch c WHERE c.parent_batch_id = b.id AND c.status <> 'draft') AS retried_as, now() AS read_at
FROM listed b
LEFT JOIN LATERAL (
    -- What stops the whole service stops this batch, whatever its own last claim said.
    SELECT CASE WHEN NOT s.active THEN 'service_stopped' ELSE h.wait_reason END AS reason,
        CASE WHEN s.active THEN h.wait_until END AS until
    FROM service s JOIN service_health h ON h.service_id = s.id
    WHERE s.id = b.service_id AND b.status IN ('pending', 'processing') AND (NOT s.active OR h.wait_until > now())
) w ON true
LEFT JOIN LATERAL (
    SELECT sum(pending) AS pending, sum(pending_send) AS pending_send, sum(unknown) AS unknown, sum(sent) AS sent,
        sum(delivered) AS delivered, sum(seen) AS seen, sum(failed) AS failed, sum(unsent) AS unsent
    FROM batch_tally WHERE batch_id = b.id
) t ON true
LEFT JOIN LATERAL (
    -- Calls that got their answer in the last minute. now(), not the clock: only then are old partitions left unread.
    SELECT sum(cardinality(e.seqs)) AS answered FROM message_event e
    WHERE b.status = 'processing' AND e.batch_id = b.id AND e.at > now() - interval '1 minute'
        AND e.from_status = 'pending_send' AND e.to_status NOT IN ('pending', 'unknown', 'unsent')
) r ON true
ORDER BY b.id DESC
