-- The failed messages of a settled batch, sent again as a batch of their own.

-- name: parent
SELECT b.id, b.account_id, b.service_id, b.door, b.priority, b.template_name, b.template_language, b.template_signature,
    b.template_content, b.header, b.reference, b.callback_url, b.on_capacity, b.max_attempts, b.retry_base_s, b.follow_up,
    b.status, b.settled_at,
    (SELECT c.id FROM batch c WHERE c.parent_batch_id = b.id AND c.status <> 'draft') AS retried_as
FROM batch b
WHERE b.id = %(batch_id)s AND b.account_id = %(account_id)s AND b.status <> 'draft'

-- name: copy_failed
-- Numbered anew, in one statement: what is told of the parent meanwhile (a late receipt, an erasure) is seen by all of it or by
-- none. How many erasures it saw tells, at the end, whether there was another.
WITH failed AS MATERIALIZED (
    SELECT m.seq AS old_seq, (row_number() OVER (ORDER BY m.seq))::int AS seq, m.phone_key, m.event = 'guarded' AS guarded
    FROM message m
    WHERE m.batch_id = %(parent_id)s AND m.status = 'failed' AND m.code IS DISTINCT FROM %(outcome_unknown)s AND m.phone_key > 0
), rows AS (
    INSERT INTO message (batch_id, seq, phone_key) SELECT %(batch_id)s, seq, phone_key FROM failed ORDER BY seq
), content AS (
    INSERT INTO message_content (batch_id, seq, address, placeholders, extra)
    SELECT %(batch_id)s, f.seq, c.address, c.placeholders, c.extra
    FROM failed f JOIN message_content c ON c.batch_id = %(parent_id)s AND c.seq = f.old_seq
)
SELECT count(*)::int, coalesce(array_agg(seq ORDER BY seq) FILTER (WHERE guarded), '{}'),
    (SELECT count(*)::int FROM erasure e WHERE e.batch_id = %(parent_id)s)
FROM failed

-- name: lock_parent
-- FOR UPDATE: an erasure of one of its messages is over, or begins after this.
SELECT id FROM batch WHERE id = %(parent_id)s FOR UPDATE

-- name: erasures
SELECT count(*)::int FROM erasure e WHERE e.batch_id = %(parent_id)s

-- name: child
SELECT id FROM batch WHERE parent_batch_id = %(parent_id)s AND status <> 'draft'
