-- Batches: begun as invisible drafts, opened once everything that they need was taken, read with counts that sum to their total.

-- name: set_actor
SELECT set_config('carteiro.actor', %(actor)s, true)

-- name: lock_service
SELECT pg_advisory_xact_lock(hashtextextended('service:' || %(service_id)s, 0))

-- name: add_draft
INSERT INTO batch (id, account_id, billing_account_id, service_id, priority, total, charge_rule, template_name,
    template_language, template_signature, template_content, header, request_signature, reference, callback_url, on_capacity,
    skipped, max_attempts, scheduled_at, expires_at)
VALUES (%(id)s, %(account_id)s, %(billing_account_id)s, %(service_id)s, %(priority)s, %(total)s, %(charge_rule)s,
    %(template_name)s, %(template_language)s, %(template_signature)s, %(template_content)s, %(header)s,
    %(request_signature)s, %(reference)s, %(callback_url)s, %(on_capacity)s, %(skipped)s, %(max_attempts)s,
    %(scheduled_at)s, %(expires_at)s)

-- name: open
UPDATE batch b SET status = e.target, event = e.event, debited = %(debited)s
FROM lifecycle_edge e
WHERE b.id = %(batch_id)s AND e.machine = 'batch' AND e.event = %(event)s AND e.source = b.status
RETURNING b.id

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
-- One statement, one snapshot: the counts are of the same instant as the state beside them.
SELECT b.id, b.service_id, b.status, b.reason, b.error_code, b.blocked_by, b.next_attempt_at, b.total, b.debited, b.charged,
    b.refunded, b.template_name, b.template_language, b.reference, b.callback_url, b.on_capacity, b.skipped, b.max_attempts,
    b.created_at, b.scheduled_at, b.expires_at, b.started_at, b.ended_at, b.settled_at,
    coalesce(t.pending, 0)::int AS pending, coalesce(t.pending_send, 0)::int AS pending_send,
    coalesce(t.unknown, 0)::int AS unknown, coalesce(t.sent, 0)::int AS sent, coalesce(t.delivered, 0)::int AS delivered,
    coalesce(t.seen, 0)::int AS seen, coalesce(t.failed, 0)::int AS failed, coalesce(t.unsent, 0)::int AS unsent,
    coalesce(r.answered, 0)::int AS answered, now() AS read_at
FROM batch b
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
WHERE b.account_id = %(account_id)s AND b.status <> 'draft'
    AND (%(batch_id)s::uuid IS NULL OR b.id = %(batch_id)s)
    AND (%(status)s::text IS NULL OR b.status = %(status)s)
    AND (%(before_id)s::uuid IS NULL OR b.id < %(before_id)s)
ORDER BY b.id DESC
LIMIT %(limit)s
