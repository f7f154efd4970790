-- The order of changes by a number of their own: the clock may be set back. What a retry is, and whose. What went after all.

-- The order of changes -------------------------------------------------------------------------------------------------------
-- The number is drawn while the message is locked: of two changes of one message the later has the higher one.

CREATE SEQUENCE message_event_id_seq AS bigint;
ALTER TABLE message_event ADD COLUMN id BIGINT DEFAULT nextval('message_event_id_seq') NOT NULL;
COMMENT ON COLUMN message_event.id IS 'the order of the changes of one message, whatever the clock said';

CREATE OR REPLACE VIEW audit.message_history AS
SELECT h.batch_id, h.seq, audit.masked(c.address) AS phone, h.at, h.event, h.from_status, h.to_status, h.actor, h.claim_id,
    k.worker_id, h.attempt, h.code, h.id AS event_id
FROM (
    SELECT m.batch_id, m.seq, b.created_at AS at, 'created' AS event, NULL AS from_status, 'pending' AS to_status,
        (SELECT e.actor FROM batch_event e WHERE e.batch_id = b.id AND e.event = 'created' LIMIT 1) AS actor,
        NULL::bigint AS claim_id, 0::smallint AS attempt, NULL AS code, NULL::bigint AS id
    FROM message m JOIN batch b ON b.id = m.batch_id
    UNION ALL
    SELECT e.batch_id, s.seq, e.at, e.event, e.from_status, e.to_status, e.actor, e.claim_id, e.attempt, e.code, e.id
    FROM message_event e CROSS JOIN LATERAL unnest(e.seqs) AS s (seq)
) h
LEFT JOIN claim k ON k.id = h.claim_id
LEFT JOIN message_content c ON c.batch_id = h.batch_id AND c.seq = h.seq;
COMMENT ON COLUMN audit.message_history.event_id IS 'the order of its changes, also where the clock was set back; null: it began to exist';

CREATE OR REPLACE VIEW audit.judged_events AS
SELECT e.batch_id, e.at, e.event, e.from_status, e.to_status, e.claim_id, e.seqs, e.id
FROM message_event e
JOIN audit.judged_batches b ON b.batch_id = e.batch_id
WHERE e.at >= (SELECT min(j.created_at) FROM audit.judged_batches j);
COMMENT ON COLUMN audit.judged_events.id IS 'the order of the changes of one message';

CREATE OR REPLACE VIEW audit.violation_resend AS
WITH twice AS (
    SELECT e.batch_id, s.seq
    FROM audit.judged_events e CROSS JOIN LATERAL unnest(e.seqs) AS s (seq)
    WHERE e.event = 'claimed'
    GROUP BY e.batch_id, s.seq HAVING count(*) > 1
), moves AS (
    SELECT e.batch_id, e.seq, e.at, e.event, e.claim_id,
        lag(e.event) OVER w AS before, lag(e.claim_id) OVER w AS before_claim_id, lag(e.at) OVER w AS before_at
    FROM (
        SELECT e.batch_id, s.seq, e.id, e.at, e.event, e.claim_id
        FROM audit.judged_events e CROSS JOIN LATERAL unnest(e.seqs) AS s (seq)
        WHERE e.batch_id IN (SELECT t.batch_id FROM twice t)
    ) e
    JOIN twice t ON t.batch_id = e.batch_id AND t.seq = e.seq
    WINDOW w AS (PARTITION BY e.batch_id, e.seq ORDER BY e.id)
)
SELECT 'claimed again without evidence that it had not gone' AS what, batch_id, seq, 'claim ' || claim_id AS subject, at,
    'given_back or absent before it' AS expected, before AS found, extract(epoch FROM at - before_at) AS off_by
FROM moves WHERE event = 'claimed' AND before IS NOT NULL AND before NOT IN ('given_back', 'absent')
UNION ALL
SELECT 'given back by somebody whose claim it was not', batch_id, seq, 'claim ' || claim_id, at,
    'claim ' || claim_id, coalesce('claim ' || before_claim_id || ', ', '') || coalesce(before, 'nothing'), NULL
FROM moves WHERE event = 'given_back' AND (before IS DISTINCT FROM 'claimed' OR before_claim_id IS DISTINCT FROM claim_id)
UNION ALL
SELECT 'declared absent although its outcome was not unknown', batch_id, seq, 'claim ' || claim_id, at, 'lost', coalesce(before, 'nothing'), NULL
FROM moves WHERE event = 'absent' AND before IS DISTINCT FROM 'lost';

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
SELECT 'a message is not where its history ends', m.batch_id, m.seq, coalesce(h.event, 'created'), h.at, coalesce(h.to_status, 'pending'), m.status, NULL
FROM audit.judged_messages m LEFT JOIN message_moves h ON h.batch_id = m.batch_id AND h.seq = m.seq AND h.is_last
WHERE coalesce(h.to_status, 'pending') <> m.status;

-- Retries --------------------------------------------------------------------------------------------------------------------

CREATE INDEX batch_parent_batch_id_idx ON batch (parent_batch_id) WHERE parent_batch_id IS NOT NULL;
CREATE INDEX erasure_batch_id_idx ON erasure (batch_id);

CREATE OR REPLACE VIEW audit.batch_timeline AS
SELECT e.batch_id, e.at, 'state' AS kind, e.event, e.from_status, e.to_status, NULL::bigint AS credits, e.actor, e.reason AS detail
FROM batch_event e
UNION ALL
SELECT l.batch_id, l.at, 'money', l.kind, NULL, NULL, l.amount, l.actor, l.cause
FROM ledger_entry l WHERE l.batch_id IS NOT NULL
UNION ALL
SELECT b.id, b.settled_at, 'settlement', 'settled', NULL, NULL, NULL, NULL, format('%s charged, %s refunded', b.charged, b.refunded)
FROM batch b WHERE b.settled_at IS NOT NULL
UNION ALL
SELECT c.batch_id, a.at, 'callback', c.event, NULL, NULL, NULL, NULL, coalesce('HTTP ' || a.status, a.error)
FROM callback c JOIN callback_attempt a ON a.callback_id = c.id
UNION ALL
SELECT c.id, e.at, 'retry', 'retries', NULL, NULL, NULL, e.actor, format('the failed messages of batch %s', c.parent_batch_id)
FROM batch c JOIN batch_event e ON e.batch_id = c.id AND e.event IN ('opened', 'moderated')
WHERE c.parent_batch_id IS NOT NULL
UNION ALL
SELECT c.parent_batch_id, e.at, 'retry', 'retried', NULL, NULL, NULL, e.actor, format('as batch %s', c.id)
FROM batch c JOIN batch_event e ON e.batch_id = c.id AND e.event IN ('opened', 'moderated')
WHERE c.parent_batch_id IS NOT NULL;
COMMENT ON VIEW audit.batch_timeline IS 'what happened to a batch as a whole: its states, its money, its settlement, its callbacks, its retry; order by at';
COMMENT ON COLUMN audit.batch_timeline.kind IS 'state, money, settlement, callback or retry';

-- What went after all --------------------------------------------------------------------------------------------------------

CREATE OR REPLACE VIEW audit.judged_messages AS
SELECT m.batch_id, m.seq, b.account_id, b.service_id, m.status, m.event, m.claim_id, m.sender_id, m.business_manager_id, m.slot_at, m.bucket_at,
    m.sent_at, m.delivered_at, m.seen_at, m.failed_at, m.assumed_at, m.gave_up_at, m.charged,
    CASE
        WHEN m.bucket_at IS NULL OR m.status = 'pending' OR (m.status = 'unsent' AND m.unit_returned) THEN 'none'
        -- A receipt told that an unsent message had gone: its unit was charged again, without asking for room.
        WHEN m.status = 'unsent' THEN 'perhaps'
        -- Refused at once returns its unit, failed later keeps it; without `sent_at` the row does not tell which it was.
        WHEN m.failed_at IS NOT NULL AND m.sent_at IS NULL THEN 'perhaps'
        ELSE 'charged'
    END AS unit
FROM message m
JOIN audit.judged_batches b ON b.batch_id = m.batch_id
WHERE m.batch_id >= (SELECT j.batch_id FROM audit.judged_batches j ORDER BY j.batch_id LIMIT 1);
