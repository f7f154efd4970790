-- Facts merged into the messages of one batch. The caller holds the batch row FOR KEY SHARE, so that it cannot be settled meanwhile.

-- name: merge
WITH told AS (
    SELECT * FROM unnest(
        %(seqs)s::int[], %(sent)s::timestamptz[], %(delivered)s::timestamptz[], %(seen)s::timestamptz[],
        %(failed)s::timestamptz[], %(assumed)s::timestamptz[], %(gave_up)s::timestamptz[], %(provider_ids)s::text[], %(codes)s::text[]
    ) AS t (seq, sent_at, delivered_at, seen_at, failed_at, assumed_at, gave_up_at, provider_id, code)
    ORDER BY seq
), found AS MATERIALIZED (
    -- Locked in order of seq: two mergers of one batch never wait for each other in a circle. Row by row along the index: a join
    -- of two lists that are both taken for one row compares all with all.
    SELECT m.seq, m.status, m.claim_id, m.sender_id, m.business_manager_id, m.bucket_at, m.unit_returned,
        (m.sent_at, m.delivered_at, m.seen_at, m.failed_at, m.assumed_at, m.gave_up_at, m.provider_id, m.code) AS known,
        least(m.sent_at, t.sent_at) AS sent_at,
        least(m.delivered_at, t.delivered_at) AS delivered_at,
        least(m.seen_at, t.seen_at) AS seen_at,
        least(m.failed_at, t.failed_at) AS failed_at,
        least(m.assumed_at, t.assumed_at) AS assumed_at,
        least(m.gave_up_at, t.gave_up_at) AS gave_up_at,
        -- It may have the phone inside: of a contact who was erased it is not kept again.
        CASE WHEN m.phone_key > 0 THEN least(m.provider_id COLLATE "C", t.provider_id COLLATE "C") COLLATE "default" END AS provider_id,
        CASE
            WHEN m.failed_at < t.failed_at THEN m.code
            WHEN t.failed_at IS NOT NULL AND (m.failed_at IS NULL OR t.failed_at < m.failed_at) THEN t.code
            WHEN t.failed_at = m.failed_at THEN least(m.code COLLATE "C", t.code COLLATE "C") COLLATE "default"
            WHEN m.failed_at IS NULL AND t.gave_up_at IS NOT NULL THEN t.code
            -- What was kept back is not any more.
            WHEN m.code LIKE 'HELD\_%%' AND coalesce(t.delivered_at, t.seen_at) IS NOT NULL THEN NULL
            ELSE m.code
        END AS code
    FROM told t
    CROSS JOIN LATERAL (
        SELECT * FROM message
        WHERE batch_id = %(batch_id)s AND seq = t.seq AND (claim_id = %(claim_id)s::bigint OR %(claim_id)s::bigint IS NULL)
        FOR UPDATE
    ) m
), judged AS (
    SELECT found.*, CASE
            WHEN seen_at IS NOT NULL THEN 'seen'
            WHEN delivered_at IS NOT NULL THEN 'delivered'
            WHEN failed_at IS NOT NULL THEN 'failed'
            WHEN assumed_at IS NOT NULL THEN 'assumed'
            WHEN sent_at IS NOT NULL THEN 'sent'
            ELSE 'gave_up'
        END AS event,
        (sent_at, delivered_at, seen_at, failed_at, assumed_at, gave_up_at, provider_id, code) IS DISTINCT FROM known AS news,
        -- Its unit was given back, and it had gone after all.
        unit_returned AND (status = 'pending' OR coalesce(sent_at, delivered_at, seen_at) IS NOT NULL) AS is_owed
    FROM found
), moved AS (
    UPDATE message m SET
        status = coalesce(e.target, m.status),
        event = CASE WHEN e.target <> m.status THEN j.event ELSE m.event END,
        sent_at = j.sent_at, delivered_at = j.delivered_at, seen_at = j.seen_at,
        failed_at = j.failed_at, assumed_at = j.assumed_at, gave_up_at = j.gave_up_at,
        provider_id = j.provider_id, code = j.code,
        unit_returned = m.unit_returned AND NOT j.is_owed,
        -- What was charged at settlement stays charged, whatever becomes known later.
        charged = CASE
            WHEN m.charged IS NULL AND b.settled_at IS NOT NULL AND e.target <> m.status
            THEN b.debited > 0 AND (b.charge_rule = 'full' OR m.status IN ('delivered', 'seen'))
            ELSE m.charged
        END
    FROM judged j
    JOIN batch b ON b.id = %(batch_id)s
    LEFT JOIN lifecycle_edge e ON e.machine = 'message' AND e.event = j.event AND e.source = j.status
    WHERE m.batch_id = %(batch_id)s AND m.seq = j.seq AND m.seq = ANY(%(seqs)s::int[]) AND j.news
        -- An unsent message keeps its state and its money; one that was never claimed cannot have gone.
        AND j.status <> 'unsent' AND j.claim_id IS NOT NULL
    RETURNING m.seq, j.status AS before, m.status, j.is_owed, j.sender_id, j.business_manager_id, j.bucket_at
), settled AS (
    DELETE FROM message_unknown WHERE batch_id = %(batch_id)s AND seq = ANY(ARRAY(
        SELECT seq FROM moved WHERE before = 'unknown' AND status <> 'unknown'))
), gone AS (
    DELETE FROM message_return WHERE batch_id = %(batch_id)s AND seq = ANY(ARRAY(
        SELECT seq FROM moved WHERE before = 'pending' AND status <> 'pending'))
)
SELECT seq, before, status, true, is_owed, sender_id, business_manager_id, bucket_at FROM moved
UNION ALL
SELECT seq, status, status, news AND status <> 'unsent', status = 'unsent' AND is_owed, sender_id, business_manager_id, bucket_at
FROM judged WHERE NOT seq = ANY(ARRAY(SELECT seq FROM moved))
ORDER BY seq

-- name: note_gone
UPDATE message SET unit_returned = false WHERE batch_id = %(batch_id)s AND seq = ANY(%(seqs)s::int[])

-- name: note_returned
UPDATE message SET unit_returned = true WHERE batch_id = %(batch_id)s AND seq = ANY(%(seqs)s::int[])
