-- The plan of a claim's statement is made while there are few buckets, and kept. It would read the table, for each meter, with all that
-- somebody's old snapshot keeps of it: half of what a claim cost after ten minutes of one.

CREATE FUNCTION due_buckets(kinds text[], owners text[], until_at timestamptz) RETURNS SETOF tid
    LANGUAGE plpgsql STABLE ROWS 10 SET enable_seqscan = off AS $$
BEGIN
    -- OFFSET 0: meter by meter. A join would be taken for one of a third of all buckets.
    RETURN QUERY
        SELECT old.ctid FROM unnest(kinds, owners) AS t (kind, owner)
        CROSS JOIN LATERAL (
            SELECT b.ctid FROM capacity_bucket b WHERE b.kind = t.kind AND b.owner = t.owner AND b.bucket_at <= until_at OFFSET 0
        ) old;
END
$$;
COMMENT ON FUNCTION due_buckets IS 'the rows of capacity_bucket of these meters that began at this time or earlier, by the index';

-- Messages and the last change of each: brought together by grouping, because a join of what is taken for few rows is made by nested
-- loops, and beside a batch of a hundred thousand did not end.

CREATE OR REPLACE VIEW audit.violation_lifecycle AS
WITH batch_moves AS (
    SELECT e.batch_id, e.at, e.event, e.from_status, e.to_status, lag(e.to_status) OVER w AS was, lead(e.id) OVER w IS NULL AS is_last
    FROM batch_event e JOIN audit.judged_batches b ON b.batch_id = e.batch_id
    WINDOW w AS (PARTITION BY e.batch_id ORDER BY e.id)
), message_moves AS (
    SELECT e.batch_id, s.seq, e.at, e.event, e.from_status, e.to_status,
        lag(e.to_status, 1, 'pending') OVER w AS was, lead(e.event) OVER w IS NULL AS is_last
    FROM audit.judged_events e CROSS JOIN LATERAL unnest(e.seqs) AS s (seq)
    WINDOW w AS (PARTITION BY e.batch_id, s.seq ORDER BY e.id)
)
SELECT 'a batch went along an edge that does not exist' AS what, m.batch_id, NULL::integer AS seq, m.event AS subject, m.at,
    'an edge of docs/states.md' AS expected, coalesce(m.from_status, 'nothing') || ' -> ' || m.to_status AS found, NULL::numeric AS off_by
FROM batch_moves m
WHERE NOT EXISTS (SELECT FROM lifecycle_edge e WHERE e.machine = 'batch' AND (e.event, e.source, e.target) = (m.event, m.from_status, m.to_status))
    AND NOT (m.event = 'created' AND m.from_status IS NULL AND m.to_status = 'draft')
    -- No edge, but on record: it changes when a batch begins, not its state.
    AND NOT (m.event = 'rescheduled' AND m.from_status = m.to_status AND m.to_status IN ('pending_moderation', 'pending'))
UNION ALL
SELECT 'the history of a batch has a gap', m.batch_id, NULL, m.event, m.at, coalesce(m.was, 'nothing'), coalesce(m.from_status, 'nothing'), NULL
FROM batch_moves m WHERE m.from_status IS DISTINCT FROM m.was
UNION ALL
SELECT 'a batch is not where its history ends', b.batch_id, NULL, m.event, m.at, coalesce(m.to_status, 'no history'), b.status, NULL
FROM audit.judged_batches b LEFT JOIN batch_moves m ON m.batch_id = b.batch_id AND m.is_last
WHERE m.to_status IS DISTINCT FROM b.status
UNION ALL
SELECT 'messages went along an edge that does not exist', e.batch_id, e.seqs[1], e.event, e.at, 'an edge of docs/states.md',
    e.from_status || ' -> ' || e.to_status, cardinality(e.seqs)
FROM audit.judged_events e
WHERE NOT EXISTS (SELECT FROM lifecycle_edge x WHERE x.machine = 'message' AND (x.event, x.source, x.target) = (e.event, e.from_status, e.to_status))
UNION ALL
SELECT 'the history of a message has a gap', m.batch_id, m.seq, m.event, m.at, m.was, m.from_status, NULL
FROM message_moves m WHERE m.from_status <> m.was
UNION ALL
SELECT 'a message is not where its history ends', e.batch_id, e.seq, coalesce(e.event, 'created'), e.at, coalesce(e.to_status, 'pending'), e.status, NULL
FROM (
    SELECT u.batch_id, u.seq, max(u.status) AS status, max(u.event) AS event, max(u.at) AS at, max(u.to_status) AS to_status
    FROM (
        SELECT batch_id, seq, status, NULL AS event, NULL::timestamptz AS at, NULL AS to_status FROM audit.judged_messages
        UNION ALL
        SELECT batch_id, seq, NULL, event, at, to_status FROM message_moves WHERE is_last
    ) u GROUP BY u.batch_id, u.seq
) e
WHERE coalesce(e.to_status, 'pending') <> e.status;
