-- The promises as views: each must be empty. One row is one breach: what, where, and by how much.
-- They read what was written, not what the code meant; none of them calls the code that keeps the promise.

-- What is judged -------------------------------------------------------------------------------------------------------------

CREATE VIEW audit.judged_batches AS
SELECT b.id AS batch_id, b.account_id, b.service_id, b.status, b.total, b.charge_rule, b.debited, b.charged, b.refunded, b.cursor_seq,
    b.created_at, b.settled_at
FROM batch b
WHERE b.status <> 'draft' AND (b.settled_at IS NULL OR b.settled_at >= (SELECT audit.judged_since()));
COMMENT ON VIEW audit.judged_batches IS 'the batches that the violation views look at: not settled, or settled within the time looked back';
COMMENT ON COLUMN audit.judged_batches.batch_id IS 'the batch';
COMMENT ON COLUMN audit.judged_batches.account_id IS 'whose it is';
COMMENT ON COLUMN audit.judged_batches.service_id IS 'what it is sent under';
COMMENT ON COLUMN audit.judged_batches.status IS 'state of the batch';
COMMENT ON COLUMN audit.judged_batches.total IS 'messages in it';
COMMENT ON COLUMN audit.judged_batches.charge_rule IS 'what costs a credit: sent_only or full';
COMMENT ON COLUMN audit.judged_batches.debited IS 'credits taken when it was created';
COMMENT ON COLUMN audit.judged_batches.charged IS 'credits spent for good';
COMMENT ON COLUMN audit.judged_batches.refunded IS 'credits given back';
COMMENT ON COLUMN audit.judged_batches.cursor_seq IS 'messages up to here have been claimed, or are kept as returned';
COMMENT ON COLUMN audit.judged_batches.created_at IS 'when it was posted';
COMMENT ON COLUMN audit.judged_batches.settled_at IS 'when it was settled';

-- The scalar subqueries are what lets Postgres leave out partitions older than the oldest judged batch.
CREATE VIEW audit.judged_messages AS
SELECT m.batch_id, m.seq, b.account_id, b.service_id, m.status, m.event, m.claim_id, m.sender_id, m.business_manager_id, m.slot_at, m.bucket_at,
    m.sent_at, m.delivered_at, m.seen_at, m.failed_at, m.assumed_at, m.gave_up_at, m.charged,
    CASE
        WHEN m.bucket_at IS NULL OR m.status IN ('pending', 'unsent') THEN 'none'
        -- Refused at once returns its unit, failed later keeps it; without `sent_at` the row does not tell which it was.
        WHEN m.failed_at IS NOT NULL AND m.sent_at IS NULL THEN 'perhaps'
        ELSE 'charged'
    END AS unit
FROM message m
JOIN audit.judged_batches b ON b.batch_id = m.batch_id
WHERE m.batch_id >= (SELECT j.batch_id FROM audit.judged_batches j ORDER BY j.batch_id LIMIT 1);
COMMENT ON VIEW audit.judged_messages IS 'the messages of the judged batches';
COMMENT ON COLUMN audit.judged_messages.batch_id IS 'its batch';
COMMENT ON COLUMN audit.judged_messages.seq IS 'its place in the batch';
COMMENT ON COLUMN audit.judged_messages.account_id IS 'whose it is';
COMMENT ON COLUMN audit.judged_messages.service_id IS 'what it is sent under';
COMMENT ON COLUMN audit.judged_messages.status IS 'state of the message';
COMMENT ON COLUMN audit.judged_messages.event IS 'the lifecycle event that last moved it';
COMMENT ON COLUMN audit.judged_messages.claim_id IS 'claim of the last call';
COMMENT ON COLUMN audit.judged_messages.sender_id IS 'sender of the last call';
COMMENT ON COLUMN audit.judged_messages.business_manager_id IS 'business manager of the last call';
COMMENT ON COLUMN audit.judged_messages.slot_at IS 'the instant that was granted to the last call';
COMMENT ON COLUMN audit.judged_messages.bucket_at IS 'the bucket that its unit of capacity was charged to';
COMMENT ON COLUMN audit.judged_messages.sent_at IS 'when the provider took it';
COMMENT ON COLUMN audit.judged_messages.delivered_at IS 'when it was delivered';
COMMENT ON COLUMN audit.judged_messages.seen_at IS 'when it was read';
COMMENT ON COLUMN audit.judged_messages.failed_at IS 'when it was refused or failed';
COMMENT ON COLUMN audit.judged_messages.assumed_at IS 'when it was taken for delivered';
COMMENT ON COLUMN audit.judged_messages.gave_up_at IS 'when its unknown outcome was given up';
COMMENT ON COLUMN audit.judged_messages.charged IS 'what its settlement froze, where its state changed afterwards';
COMMENT ON COLUMN audit.judged_messages.unit IS 'whether it takes a unit of the daily limits: charged, none, or perhaps';

CREATE VIEW audit.judged_events AS
SELECT e.batch_id, e.at, e.event, e.from_status, e.to_status, e.claim_id, e.seqs
FROM message_event e
JOIN audit.judged_batches b ON b.batch_id = e.batch_id
WHERE e.at >= (SELECT min(j.created_at) FROM audit.judged_batches j);
COMMENT ON VIEW audit.judged_events IS 'the changes of the messages of the judged batches';
COMMENT ON COLUMN audit.judged_events.batch_id IS 'the batch';
COMMENT ON COLUMN audit.judged_events.at IS 'when';
COMMENT ON COLUMN audit.judged_events.event IS 'lifecycle event';
COMMENT ON COLUMN audit.judged_events.from_status IS 'state before';
COMMENT ON COLUMN audit.judged_events.to_status IS 'state after';
COMMENT ON COLUMN audit.judged_events.claim_id IS 'their last claim';
COMMENT ON COLUMN audit.judged_events.seqs IS 'the messages that moved alike';

CREATE FUNCTION audit.most_allowed(
    of_kind text, of_owner text, from_at timestamptz, until_at timestamptz, OUT daily_limit integer, OUT pace integer
) LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT CASE WHEN NOT bool_or(h.daily_limit IS NULL) THEN max(h.daily_limit) END,
        CASE WHEN NOT bool_or(h.pace IS NULL) THEN max(h.pace) END
    FROM audit.limit_history h
    WHERE h.kind = of_kind AND h.owner = of_owner AND h.since_at <= until_at
        AND h.since_at >= coalesce((
            SELECT max(x.since_at) FROM audit.limit_history x
            WHERE x.kind = of_kind AND x.owner = of_owner AND x.since_at <= from_at), '-infinity');
END;
COMMENT ON FUNCTION audit.most_allowed IS 'the highest limits in force at any instant of an interval; null: none';

-- Promise 1: accepted means accounted for ------------------------------------------------------------------------------------

CREATE VIEW audit.violation_counts AS
WITH told AS (
    SELECT t.batch_id, sum(t.pending) AS pending, sum(t.pending_send) AS pending_send, sum(t.unknown) AS unknown, sum(t.sent) AS sent,
        sum(t.delivered) AS delivered, sum(t.seen) AS seen, sum(t.failed) AS failed, sum(t.unsent) AS unsent
    FROM batch_tally t GROUP BY t.batch_id
), real AS (
    SELECT m.batch_id, count(*) AS n, min(m.seq) AS first_seq, max(m.seq) AS last_seq,
        count(*) FILTER (WHERE m.status = 'pending') AS pending, count(*) FILTER (WHERE m.status = 'pending_send') AS pending_send,
        count(*) FILTER (WHERE m.status = 'unknown') AS unknown, count(*) FILTER (WHERE m.status = 'sent') AS sent,
        count(*) FILTER (WHERE m.status = 'delivered') AS delivered, count(*) FILTER (WHERE m.status = 'seen') AS seen,
        count(*) FILTER (WHERE m.status = 'failed') AS failed, count(*) FILTER (WHERE m.status = 'unsent') AS unsent,
        -- What changed after the settlement has `charged`: it had its outcome once.
        count(*) FILTER (WHERE m.status IN ('pending', 'pending_send', 'unknown', 'sent') AND m.charged IS NULL) AS open
    FROM audit.judged_messages m GROUP BY m.batch_id
), both_sides AS (
    SELECT b.batch_id, b.status, b.total, b.settled_at, coalesce(r.n, 0) AS n, r.first_seq, r.last_seq, coalesce(r.open, 0) AS open,
        counts.state, coalesce(counts.told, 0) AS told, coalesce(counts.real, 0) AS real
    FROM audit.judged_batches b
    LEFT JOIN told t ON t.batch_id = b.batch_id
    LEFT JOIN real r ON r.batch_id = b.batch_id
    CROSS JOIN LATERAL (VALUES
        ('pending', t.pending, r.pending), ('pending_send', t.pending_send, r.pending_send), ('unknown', t.unknown, r.unknown),
        ('sent', t.sent, r.sent), ('delivered', t.delivered, r.delivered), ('seen', t.seen, r.seen),
        ('failed', t.failed, r.failed), ('unsent', t.unsent, r.unsent)
    ) AS counts (state, told, real)
)
SELECT 'the counts do not sum to the total' AS what, batch_id, NULL::integer AS seq, NULL::text AS subject, NULL::timestamptz AS at,
    total::text AS expected, sum(told)::text AS found, sum(told) - total AS off_by
FROM both_sides GROUP BY batch_id, total HAVING sum(told) <> total
UNION ALL
SELECT 'a count is not the number of messages in that state', batch_id, NULL, state, NULL, real::text, told::text, told - real
FROM both_sides WHERE told <> real
UNION ALL
SELECT DISTINCT 'the batch has not as many messages as its total', batch_id, NULL::integer, NULL, NULL::timestamptz, total::text, n::text,
    (n - total)::numeric
FROM both_sides WHERE n <> total
UNION ALL
SELECT DISTINCT 'its messages are not numbered from 1 without a gap', batch_id, NULL::integer, NULL, NULL::timestamptz,
    format('1 to %s', n), format('%s to %s', first_seq, last_seq), (last_seq - first_seq + 1 - n)::numeric
FROM both_sides WHERE n > 0 AND (first_seq <> 1 OR last_seq <> n)
UNION ALL
SELECT DISTINCT 'a settled batch has messages without an outcome', batch_id, NULL::integer, NULL, settled_at, '0', open::text, open::numeric
FROM both_sides WHERE settled_at IS NOT NULL AND open > 0
UNION ALL
SELECT DISTINCT 'a batch is settled that has not ended', batch_id, NULL::integer, NULL, settled_at, 'completed, cancelled or error', status, NULL::numeric
FROM both_sides WHERE settled_at IS NOT NULL AND status NOT IN ('completed', 'cancelled', 'error');

-- Promise 2: no blind resend -------------------------------------------------------------------------------------------------

CREATE VIEW audit.violation_resend AS
WITH twice AS (
    SELECT e.batch_id, s.seq
    FROM audit.judged_events e CROSS JOIN LATERAL unnest(e.seqs) AS s (seq)
    WHERE e.event = 'claimed'
    GROUP BY e.batch_id, s.seq HAVING count(*) > 1
), moves AS (
    SELECT e.batch_id, e.seq, e.at, e.event, e.claim_id,
        lag(e.event) OVER w AS before, lag(e.claim_id) OVER w AS before_claim_id, lag(e.at) OVER w AS before_at
    FROM (
        SELECT e.batch_id, s.seq, e.at, e.event, e.claim_id
        FROM audit.judged_events e CROSS JOIN LATERAL unnest(e.seqs) AS s (seq)
        WHERE e.batch_id IN (SELECT t.batch_id FROM twice t)
    ) e
    JOIN twice t ON t.batch_id = e.batch_id AND t.seq = e.seq
    WINDOW w AS (PARTITION BY e.batch_id, e.seq ORDER BY e.at)
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

-- Promise 3: no call without a committed row ---------------------------------------------------------------------------------

CREATE VIEW audit.violation_calls AS
WITH first AS (
    SELECT e.batch_id, s.seq, min(e.at) FILTER (WHERE e.event = 'claimed') AS claimed_at,
        min(e.at) FILTER (WHERE e.event <> 'claimed') AS evidence_at
    FROM audit.judged_events e CROSS JOIN LATERAL unnest(e.seqs) AS s (seq)
    WHERE e.event IN ('claimed', 'lost', 'sent', 'delivered', 'seen', 'failed')
    GROUP BY e.batch_id, s.seq
)
SELECT 'evidence of a call before the first claim' AS what, batch_id, seq, NULL::text AS subject, evidence_at AS at,
    'claimed before' AS expected, coalesce('claimed ' || claimed_at, 'never claimed') AS found,
    extract(epoch FROM claimed_at - evidence_at) AS off_by
FROM first WHERE evidence_at IS NOT NULL AND (claimed_at IS NULL OR claimed_at > evidence_at)
UNION ALL
SELECT 'a message has gone, or may have, without a claim', m.batch_id, m.seq, NULL, coalesce(m.sent_at, m.delivered_at, m.seen_at, m.failed_at),
    'a claim', m.status, NULL
FROM audit.judged_messages m
WHERE m.claim_id IS NULL AND (m.status IN ('pending_send', 'unknown', 'sent', 'delivered', 'seen') OR (m.status = 'failed' AND m.event <> 'guarded'))
UNION ALL
SELECT 'the claim of a message does not list it', m.batch_id, m.seq, 'claim ' || m.claim_id, m.slot_at, 'listed by its claim',
    CASE WHEN c.id IS NULL THEN 'no such claim' ELSE format('a claim of batch %s', c.batch_id) END, NULL
FROM audit.judged_messages m
LEFT JOIN claim c ON c.id = m.claim_id
WHERE m.claim_id IS NOT NULL AND (c.id IS NULL OR c.batch_id <> m.batch_id OR m.seq <> ALL (c.seqs));

-- Promise 4: limits ----------------------------------------------------------------------------------------------------------
-- By the limit at the claim. A change counts from ten seconds before to ten seconds after it was made: it may have been read by a claim
-- that was under way. Late evidence is left out: what it tells had been given away in good faith (design: returns and late evidence are
-- unguarded).

CREATE VIEW audit.violation_limits AS
WITH late AS (
    SELECT e.batch_id, s.seq
    FROM audit.judged_events e CROSS JOIN LATERAL unnest(e.seqs) AS s (seq)
    WHERE e.from_status = 'pending' AND e.event IN ('sent', 'delivered', 'seen', 'failed')
), accepted AS (
    SELECT m.batch_id, m.seq, m.business_manager_id, m.sender_id, m.slot_at, coalesce(c.claimed_at, m.slot_at) AS claimed_at
    FROM audit.judged_messages m
    LEFT JOIN claim c ON c.id = m.claim_id
    WHERE m.unit = 'charged' AND NOT EXISTS (SELECT FROM late l WHERE l.batch_id = m.batch_id AND l.seq = m.seq)
), windows AS (
    SELECT 'bm' AS kind, a.business_manager_id AS owner, a.batch_id, a.seq, a.slot_at, a.claimed_at, count(*) OVER (
        PARTITION BY a.business_manager_id ORDER BY a.slot_at
        RANGE BETWEEN (SELECT audit.span('window_s') - interval '1 microsecond') PRECEDING AND CURRENT ROW) AS n
    FROM accepted a
    UNION ALL
    SELECT 'sender', a.sender_id, a.batch_id, a.seq, a.slot_at, a.claimed_at, count(*) OVER (
        PARTITION BY a.sender_id ORDER BY a.slot_at
        RANGE BETWEEN (SELECT audit.span('window_s') - interval '1 microsecond') PRECEDING AND CURRENT ROW)
    FROM accepted a
), lowest AS (
    SELECT h.kind, h.owner, min(h.daily_limit) AS daily_limit FROM audit.limit_history h GROUP BY h.kind, h.owner
), charged AS (
    SELECT u.kind, u.owner, m.bucket_at, count(*) FILTER (WHERE m.unit = 'charged') AS certain, count(*) AS at_most
    FROM audit.judged_messages m
    CROSS JOIN LATERAL (VALUES ('bm', m.business_manager_id), ('sender', m.sender_id)) AS u (kind, owner)
    WHERE m.unit <> 'none' AND m.bucket_at > (SELECT now() - audit.span('window_s') - audit.span('bucket_s'))
    GROUP BY u.kind, u.owner, m.bucket_at
)
SELECT 'more accepted in one window than the limit' AS what, w.batch_id, w.seq, w.kind || ' ' || w.owner AS subject, w.slot_at AS at,
    allowed.daily_limit::text AS expected, w.n::text AS found, (w.n - allowed.daily_limit)::numeric AS off_by
FROM windows w
JOIN lowest l ON l.kind = w.kind AND l.owner = w.owner AND w.n > l.daily_limit
CROSS JOIN LATERAL audit.most_allowed(w.kind, w.owner, w.claimed_at - interval '10 seconds', greatest(w.claimed_at, w.slot_at) + interval '10 seconds') allowed
WHERE w.n > allowed.daily_limit
UNION ALL
SELECT 'a meter does not equal its buckets', NULL, NULL, m.kind || ' ' || m.owner, NULL, coalesce(b.used, 0)::text, m.used::text, m.used - coalesce(b.used, 0)
FROM capacity_meter m
LEFT JOIN (SELECT kind, owner, sum(used) AS used FROM capacity_bucket GROUP BY kind, owner) b ON b.kind = m.kind AND b.owner = m.owner
WHERE m.used <> coalesce(b.used, 0)
UNION ALL
SELECT 'a bucket has no meter', NULL, NULL, b.kind || ' ' || b.owner, b.bucket_at, 'a meter', b.used::text, b.used
FROM capacity_bucket b
WHERE NOT EXISTS (SELECT FROM capacity_meter m WHERE m.kind = b.kind AND m.owner = b.owner)
UNION ALL
SELECT 'a meter does not equal its holds', NULL, NULL, coalesce(m.kind || ' ' || m.owner, 'bm ' || h.business_manager_id), NULL,
    coalesce(h.held, 0)::text, coalesce(m.held, 0)::text, coalesce(m.held, 0) - coalesce(h.held, 0)
FROM capacity_meter m
FULL JOIN (SELECT business_manager_id, sum(held) AS held FROM capacity_hold GROUP BY business_manager_id) h
    ON m.kind = 'bm' AND m.owner = h.business_manager_id
WHERE coalesce(m.held, 0) <> coalesce(h.held, 0)
UNION ALL
SELECT 'a bucket does not equal its messages', NULL, NULL, coalesce(b.kind, c.kind) || ' ' || coalesce(b.owner, c.owner), coalesce(b.bucket_at, c.bucket_at),
    CASE WHEN c.certain = c.at_most THEN c.certain::text ELSE format('%s to %s', coalesce(c.certain, 0), coalesce(c.at_most, 0)) END,
    coalesce(b.used, 0)::text,
    CASE WHEN coalesce(b.used, 0) < coalesce(c.certain, 0) THEN coalesce(b.used, 0) - c.certain ELSE b.used - coalesce(c.at_most, 0) END
FROM (SELECT * FROM capacity_bucket WHERE bucket_at > (SELECT now() - audit.span('window_s') - audit.span('bucket_s'))) b
FULL JOIN charged c ON c.kind = b.kind AND c.owner = b.owner AND c.bucket_at = b.bucket_at
WHERE coalesce(b.used, 0) NOT BETWEEN coalesce(c.certain, 0) AND coalesce(c.at_most, 0)
UNION ALL
SELECT 'a settled batch still holds capacity', h.batch_id, NULL, 'bm ' || h.business_manager_id, b.settled_at, '0', h.held::text, h.held
FROM capacity_hold h LEFT JOIN batch b ON b.id = h.batch_id
WHERE h.held > 0 AND (b.id IS NULL OR b.settled_at IS NOT NULL);

-- Promise 5: pacing ----------------------------------------------------------------------------------------------------------
-- By slots: a call starts at its slot or within the tolerated lateness. Meters under 100 a window whose even distance is wider than that
-- lateness, so that it can be seen, also keep nine tenths of it.

CREATE VIEW audit.violation_pacing AS
WITH calls AS (
    SELECT m.batch_id, m.seq, m.service_id, m.business_manager_id, m.sender_id, m.slot_at
    FROM audit.judged_messages m
    WHERE m.slot_at IS NOT NULL AND m.status NOT IN ('pending', 'unsent')
), windows AS (
    SELECT 'service' AS kind, c.service_id AS owner, c.batch_id, c.seq, c.slot_at, interval '1 second' AS per,
        count(*) OVER (PARTITION BY c.service_id ORDER BY c.slot_at RANGE BETWEEN interval '0.999999 seconds' PRECEDING AND CURRENT ROW) AS n,
        c.slot_at - lag(c.slot_at) OVER (PARTITION BY c.service_id ORDER BY c.slot_at) AS gap
    FROM calls c
    UNION ALL
    SELECT 'sender', c.sender_id, c.batch_id, c.seq, c.slot_at, interval '1 second',
        count(*) OVER (PARTITION BY c.sender_id ORDER BY c.slot_at RANGE BETWEEN interval '0.999999 seconds' PRECEDING AND CURRENT ROW),
        c.slot_at - lag(c.slot_at) OVER (PARTITION BY c.sender_id ORDER BY c.slot_at)
    FROM calls c
    UNION ALL
    SELECT 'bm', c.business_manager_id, c.batch_id, c.seq, c.slot_at, interval '1 minute',
        count(*) OVER (PARTITION BY c.business_manager_id ORDER BY c.slot_at RANGE BETWEEN interval '59.999999 seconds' PRECEDING AND CURRENT ROW),
        c.slot_at - lag(c.slot_at) OVER (PARTITION BY c.business_manager_id ORDER BY c.slot_at)
    FROM calls c
), lowest AS (
    SELECT h.kind, h.owner, min(h.pace) AS pace FROM audit.limit_history h GROUP BY h.kind, h.owner
), suspects AS (
    SELECT w.*, allowed.pace, allowed.pace < 100 AND w.per / allowed.pace > audit.span('lateness_s') AS apart
    FROM windows w
    JOIN lowest l ON l.kind = w.kind AND l.owner = w.owner AND (w.n > l.pace OR (l.pace < 100 AND w.gap < w.per * 0.9 / l.pace))
    CROSS JOIN LATERAL audit.most_allowed(w.kind, w.owner, w.slot_at - w.per - interval '10 seconds', w.slot_at + interval '10 seconds') allowed
)
SELECT 'more calls in one interval than the pace' AS what, batch_id, seq, kind || ' ' || owner AS subject, slot_at AS at,
    format('%s in %s s', pace, extract(epoch FROM per)::integer) AS expected, n::text AS found, (n - pace)::numeric AS off_by
FROM suspects WHERE n > pace
UNION ALL
SELECT 'two calls closer than nine tenths of an even pace', batch_id, seq, kind || ' ' || owner, slot_at,
    round(extract(epoch FROM per) * 0.9 / pace, 6) || ' s', extract(epoch FROM gap) || ' s', round(extract(epoch FROM per) * 0.9 / pace - extract(epoch FROM gap), 6)
FROM suspects WHERE apart AND gap < per * 0.9 / pace;

-- Promise 6: money -----------------------------------------------------------------------------------------------------------

CREATE VIEW audit.violation_money AS
WITH entries AS (
    SELECT l.batch_id, -sum(l.amount) FILTER (WHERE l.kind = 'debit') AS debited, sum(l.amount) FILTER (WHERE l.kind = 'refund') AS refunded,
        count(*) FILTER (WHERE b.billing_account_id IS DISTINCT FROM l.account_id) AS elsewhere
    FROM ledger_entry l LEFT JOIN batch b ON b.id = l.batch_id
    WHERE l.batch_id IS NOT NULL GROUP BY l.batch_id
), costs AS (
    SELECT m.batch_id, count(*) FILTER (
        WHERE coalesce(m.charged, m.status IN ('delivered', 'seen') OR (b.charge_rule = 'full' AND m.status = 'failed'))) AS charged
    FROM audit.judged_messages m JOIN audit.judged_batches b ON b.batch_id = m.batch_id
    WHERE b.settled_at IS NOT NULL AND b.debited > 0
    GROUP BY m.batch_id
)
SELECT 'a balance is not the sum of its entries' AS what, NULL::uuid AS batch_id, NULL::integer AS seq, 'account ' || a.id AS subject,
    NULL::timestamptz AS at, coalesce(l.total, 0)::text AS expected, a.balance::text AS found, a.balance - coalesce(l.total, 0) AS off_by
FROM account a LEFT JOIN (SELECT account_id, sum(amount) AS total FROM ledger_entry GROUP BY account_id) l ON l.account_id = a.id
WHERE a.balance <> coalesce(l.total, 0)
UNION ALL
SELECT 'a balance is below zero', NULL, NULL, 'account ' || a.id, NULL, '0 or more', a.balance::text, a.balance
FROM account a WHERE a.balance < 0
UNION ALL
SELECT 'an entry does not follow from the one before it', l.batch_id, l.seq, 'account ' || l.account_id, l.at, (l.before + l.amount)::text, l.balance_after::text,
    l.balance_after - l.before - l.amount
FROM (
    SELECT e.*, lag(e.balance_after, 1, 0::bigint) OVER (PARTITION BY e.account_id ORDER BY e.id) AS before FROM ledger_entry e
) l
WHERE l.balance_after <> l.before + l.amount
UNION ALL
SELECT 'an entry has the wrong sign', l.batch_id, l.seq, 'account ' || l.account_id, l.at, CASE l.kind WHEN 'debit' THEN 'below 0' ELSE 'above 0' END,
    l.amount::text, l.amount
FROM ledger_entry l WHERE (l.kind = 'debit' AND l.amount >= 0) OR (l.kind = 'refund' AND l.amount <= 0)
UNION ALL
SELECT 'a batch says that it was debited otherwise than the ledger', coalesce(b.id, e.batch_id), NULL, coalesce(b.billing_account_id, 'no such batch'), NULL,
    coalesce(e.debited, 0)::text, coalesce(b.debited, 0)::text, coalesce(b.debited, 0) - coalesce(e.debited, 0)
FROM batch b FULL JOIN entries e ON e.batch_id = b.id
WHERE coalesce(b.debited, 0) <> coalesce(e.debited, 0)
UNION ALL
SELECT 'a batch says that it was refunded otherwise than the ledger', coalesce(b.id, e.batch_id), NULL, coalesce(b.billing_account_id, 'no such batch'), NULL,
    coalesce(e.refunded, 0)::text, coalesce(b.refunded, 0)::text, coalesce(b.refunded, 0) - coalesce(e.refunded, 0)
FROM batch b FULL JOIN entries e ON e.batch_id = b.id
WHERE coalesce(b.refunded, 0) <> coalesce(e.refunded, 0)
UNION ALL
SELECT 'entries of a batch stand in another account than the one that pays', e.batch_id, NULL, NULL, NULL, '0', e.elsewhere::text, e.elsewhere
FROM entries e WHERE e.elsewhere > 0
UNION ALL
SELECT 'a settled batch does not add up', b.id, NULL, b.billing_account_id, b.settled_at, b.debited::text,
    format('%s charged + %s refunded', b.charged, b.refunded), b.charged + b.refunded - b.debited
FROM batch b WHERE b.settled_at IS NOT NULL AND b.charged + b.refunded <> b.debited
UNION ALL
SELECT 'more was charged and refunded than debited', b.id, NULL, b.billing_account_id, NULL, b.debited::text,
    format('%s charged + %s refunded', b.charged, b.refunded), b.charged + b.refunded - b.debited
FROM batch b WHERE b.settled_at IS NULL AND b.charged + b.refunded > b.debited
UNION ALL
SELECT 'a batch is charged before its settlement', b.id, NULL, b.billing_account_id, NULL, '0', b.charged::text, b.charged
FROM batch b WHERE b.settled_at IS NULL AND b.charged <> 0
UNION ALL
SELECT 'a settled batch is charged otherwise than its messages', b.batch_id, NULL, b.charge_rule, b.settled_at, coalesce(c.charged, 0)::text, b.charged::text,
    b.charged - coalesce(c.charged, 0)
FROM audit.judged_batches b LEFT JOIN costs c ON c.batch_id = b.batch_id
WHERE b.settled_at IS NOT NULL AND b.charged <> coalesce(c.charged, 0)
UNION ALL
SELECT 'a message is charged before the settlement of its batch', m.batch_id, m.seq, NULL, NULL, 'open', m.charged::text, NULL
FROM audit.judged_messages m JOIN audit.judged_batches b ON b.batch_id = m.batch_id
WHERE m.charged IS NOT NULL AND b.settled_at IS NULL;

-- Promise 7: receipts commute ------------------------------------------------------------------------------------------------

CREATE VIEW audit.violation_receipts AS
WITH meant AS (
    SELECT m.batch_id, m.seq, m.status, m.sent_at, m.delivered_at, m.seen_at, m.failed_at, m.assumed_at, m.gave_up_at, CASE
        WHEN m.seen_at IS NOT NULL THEN 'seen'
        WHEN m.delivered_at IS NOT NULL THEN 'delivered'
        WHEN m.failed_at IS NOT NULL THEN 'failed'
        WHEN m.assumed_at IS NOT NULL THEN 'delivered'
        WHEN m.sent_at IS NOT NULL THEN 'sent'
        WHEN m.gave_up_at IS NOT NULL THEN 'failed'
    END AS state
    FROM audit.judged_messages m
)
SELECT 'a message is not in the state that its facts mean' AS what, batch_id, seq, NULL::text AS subject,
    coalesce(seen_at, delivered_at, failed_at, assumed_at, sent_at, gave_up_at) AS at, coalesce(state, 'no outcome') AS expected, status AS found,
    NULL::numeric AS off_by
FROM meant
WHERE status <> 'unsent' AND (status <> state OR (state IS NULL AND status NOT IN ('pending', 'pending_send', 'unknown')))
UNION ALL
SELECT 'a receipt that was applied is not in its message', r.batch_id, r.seq, r.kind, r.received_at, r.at::text, coalesce(m.known_at::text, 'nothing'),
    extract(epoch FROM m.known_at - r.at)
FROM receipt r
JOIN audit.judged_batches b ON b.batch_id = r.batch_id
LEFT JOIN LATERAL (
    SELECT CASE r.kind WHEN 'seen' THEN m.seen_at WHEN 'delivered' THEN m.delivered_at WHEN 'failed' THEN m.failed_at WHEN 'sent' THEN m.sent_at END AS known_at
    FROM message m WHERE m.batch_id = r.batch_id AND m.seq = r.seq
) m ON true
WHERE r.result = 'applied' AND r.kind IN ('seen', 'delivered', 'failed', 'sent') AND (m.known_at IS NULL OR m.known_at > r.at)
    AND r.received_at >= (SELECT min(j.created_at) FROM audit.judged_batches j);

-- Promise 8: pause and cancel tell the truth ---------------------------------------------------------------------------------
-- Claims. When the answer was given is not stored; a call starts within a slice of its claim, or not at all.

CREATE VIEW audit.violation_control AS
WITH phases AS (
    SELECT e.batch_id, e.event, e.to_status, e.at AS from_at, lead(e.at, 1, 'infinity') OVER (PARTITION BY e.batch_id ORDER BY e.id) AS until_at
    FROM batch_event e JOIN audit.judged_batches b ON b.batch_id = e.batch_id
)
SELECT format('claimed while the batch was %s', p.to_status) AS what, p.batch_id, e.seqs[1] AS seq, 'claim ' || e.claim_id AS subject, e.at,
    format('no claim after it was %s at %s', p.event, p.from_at) AS expected, format('%s messages', cardinality(e.seqs)) AS found,
    extract(epoch FROM e.at - p.from_at) AS off_by
FROM phases p
JOIN message_event e ON e.batch_id = p.batch_id AND e.event = 'claimed' AND e.at > p.from_at AND e.at < p.until_at
WHERE p.to_status NOT IN ('pending', 'processing') AND e.at >= (SELECT min(j.created_at) FROM audit.judged_batches j);

-- Promise 9: a stalled batch says why ----------------------------------------------------------------------------------------

CREATE VIEW audit.violation_stalled AS
WITH waiting AS (
    SELECT b.id AS batch_id, b.service_id, b.blocked_by, b.turn_at, t.pending,
        greatest(b.turn_at, b.next_attempt_at, b.scheduled_at, h.wait_until, changed.at) AS due_at,
        greatest(b.scheduled_at, h.wait_until, changed.at, claimed.at) AS last_at
    FROM batch b
    JOIN service s ON s.id = b.service_id AND s.active
    LEFT JOIN service_health h ON h.service_id = b.service_id
    CROSS JOIN LATERAL (SELECT sum(t.pending) AS pending FROM batch_tally t WHERE t.batch_id = b.id) t
    CROSS JOIN LATERAL (SELECT max(e.at) AS at FROM batch_event e WHERE e.batch_id = b.id) changed
    LEFT JOIN LATERAL (
        SELECT e.at FROM message_event e WHERE e.batch_id = b.id AND e.event = 'claimed' ORDER BY e.at DESC LIMIT 1
    ) claimed ON true
    WHERE b.status IN ('pending', 'processing') AND t.pending > 0 AND (b.expires_at IS NULL OR b.expires_at > now())
)
SELECT 'a batch that may be sent was not tried' AS what, batch_id, NULL::integer AS seq, 'service ' || service_id AS subject, due_at AS at,
    'a claim or a reason' AS expected, format('%s messages wait, blocked by %s', pending, coalesce(blocked_by, 'nothing')) AS found,
    extract(epoch FROM now() - due_at) AS off_by
FROM waiting WHERE due_at < now() - (SELECT audit.span('patience_s'))
UNION ALL
SELECT 'nothing was claimed and no reason is given', batch_id, NULL, 'service ' || service_id, last_at, 'blocked_by',
    format('%s messages wait', pending), extract(epoch FROM now() - last_at)
FROM waiting
WHERE blocked_by IS NULL AND last_at < now() - (SELECT audit.span('patience_s')) AND turn_at < now() - interval '10 seconds'
    AND due_at >= now() - (SELECT audit.span('patience_s'));

-- Promise 10: workers and jobs are disposable --------------------------------------------------------------------------------
-- Everything that is due is found in our own tables and is done within patience_s, whatever became of the job that was to do it.

CREATE VIEW audit.violation_stuck AS
WITH tallied AS (
    SELECT b.id AS batch_id, b.status, b.total, b.expires_at, b.ended_at, b.created_at, t.pending, t.delivered + t.seen + t.failed + t.unsent AS terminal
    FROM batch b
    CROSS JOIN LATERAL (
        SELECT sum(pending) AS pending, sum(delivered) AS delivered, sum(seen) AS seen, sum(failed) AS failed, sum(unsent) AS unsent
        FROM batch_tally WHERE batch_id = b.id
    ) t
    WHERE b.settled_at IS NULL
), limits AS (
    SELECT now() - audit.span('patience_s') AS overdue
)
SELECT 'a receipt payload was not merged' AS what, NULL::uuid AS batch_id, NULL::integer AS seq, 'payload ' || i.payload_id AS subject, i.received_at AS at,
    'merged' AS expected, 'waiting' AS found, extract(epoch FROM now() - i.received_at) AS off_by
FROM receipt_inbox i, limits WHERE i.received_at < limits.overdue
UNION ALL
SELECT 'a callback was not tried', c.batch_id, NULL, 'callback ' || c.id, c.next_attempt_at, 'tried', format('after %s attempts', c.attempts),
    extract(epoch FROM now() - c.next_attempt_at)
FROM callback c, limits WHERE c.delivered_at IS NULL AND c.gave_up_at IS NULL AND c.next_attempt_at < limits.overdue
UNION ALL
SELECT 'a lapsed claim was not closed', c.batch_id, NULL, format('claim %s of %s', c.id, c.worker_id), c.lease_until, 'closed', format('%s rows open', c.open),
    extract(epoch FROM now() - c.lease_until)
FROM claim c, limits WHERE c.closed_at IS NULL AND c.lease_until < limits.overdue
UNION ALL
SELECT 'a message is being sent under a claim that is over', m.batch_id, m.seq, 'claim ' || m.claim_id, m.slot_at, 'an open claim', 'closed, or gone', NULL
FROM audit.judged_messages m
WHERE m.status = 'pending_send' AND NOT EXISTS (SELECT FROM claim c WHERE c.id = m.claim_id AND c.closed_at IS NULL)
UNION ALL
SELECT 'more messages are being sent under a claim than it has open', c.batch_id, NULL, 'claim ' || c.id, c.claimed_at, c.open::text, m.n::text, m.n - c.open
FROM claim c JOIN (
    SELECT j.claim_id, count(*) AS n FROM audit.judged_messages j WHERE j.status = 'pending_send' GROUP BY j.claim_id
) m ON m.claim_id = c.id
WHERE c.closed_at IS NULL AND m.n > c.open
UNION ALL
SELECT 'an unknown outcome is not looked up', m.batch_id, m.seq, NULL, NULL, 'noted for look-up', 'not noted', NULL
FROM audit.judged_messages m
WHERE m.status = 'unknown' AND NOT EXISTS (SELECT FROM message_unknown u WHERE u.batch_id = m.batch_id AND u.seq = m.seq)
UNION ALL
SELECT 'the look-up of an unknown outcome is overdue', u.batch_id, u.seq, NULL, u.look_at, 'looked up', format('after %s times absent', u.absent),
    extract(epoch FROM now() - u.look_at)
FROM message_unknown u, limits WHERE u.look_at < limits.overdue
UNION ALL
SELECT 'a message behind the cursor waits for nobody', m.batch_id, m.seq, NULL, NULL, 'kept as returned', 'not kept', NULL
FROM audit.judged_messages m JOIN audit.judged_batches b ON b.batch_id = m.batch_id
WHERE m.status = 'pending' AND m.seq <= b.cursor_seq AND b.status IN ('pending_moderation', 'pending', 'processing', 'paused')
    AND NOT EXISTS (SELECT FROM message_return r WHERE r.batch_id = m.batch_id AND r.seq = m.seq)
UNION ALL
SELECT 'a batch that no longer sends keeps pending messages', t.batch_id, NULL, t.status, coalesce(t.ended_at, t.expires_at), '0', t.pending::text, t.pending
FROM tallied t, limits
WHERE t.pending > 0 AND (t.expires_at < limits.overdue OR (t.status IN ('completed', 'cancelled', 'error') AND t.ended_at < limits.overdue))
UNION ALL
SELECT 'a batch with all its outcomes is not settled', t.batch_id, NULL, t.status, last.at, 'settled', format('%s outcomes', t.terminal),
    extract(epoch FROM now() - last.at)
FROM tallied t
CROSS JOIN limits
CROSS JOIN LATERAL (
    SELECT greatest((SELECT max(e.at) FROM batch_event e WHERE e.batch_id = t.batch_id),
        (SELECT e.at FROM message_event e WHERE e.batch_id = t.batch_id ORDER BY e.at DESC LIMIT 1)) AS at
) last
WHERE t.terminal = t.total AND t.status NOT IN ('draft', 'pending_moderation') AND last.at < limits.overdue
UNION ALL
SELECT 'an abandoned draft was not collected', t.batch_id, NULL, t.status, t.created_at, 'gone after an hour or two', 'draft', extract(epoch FROM now() - t.created_at)
FROM tallied t WHERE t.status = 'draft' AND t.created_at < now() - interval '3 hours';

-- Promise 11: tenants --------------------------------------------------------------------------------------------------------

CREATE VIEW audit.violation_tenants AS
SELECT 'a batch runs under a service of another account' AS what, b.batch_id, NULL::integer AS seq, 'service ' || b.service_id AS subject, b.created_at AS at,
    b.account_id AS expected, s.account_id AS found, NULL::numeric AS off_by
FROM audit.judged_batches b JOIN service s ON s.id = b.service_id
WHERE s.account_id <> b.account_id
UNION ALL
SELECT 'messages went from a sender that their account may not use', m.batch_id, min(m.seq), 'sender ' || m.sender_id, min(m.slot_at), m.account_id,
    coalesce((SELECT string_agg(a.account_id, ', ') FROM sender_account a WHERE a.sender_id = m.sender_id), 'nobody''s'), count(*)
FROM audit.judged_messages m
WHERE m.sender_id IS NOT NULL AND NOT EXISTS (
    SELECT FROM audit.assignment_history h
    WHERE h.account_id = m.account_id AND h.sender_id = m.sender_id AND h.since_at <= m.slot_at
        AND (h.until_at IS NULL OR h.until_at >= m.slot_at - interval '10 seconds'))
GROUP BY m.batch_id, m.account_id, m.sender_id
UNION ALL
SELECT format('a batch was %s with a key of another account', e.event), e.batch_id, NULL, e.actor, e.at, b.account_id, coalesce(k.account_id, 'no such key'), NULL
FROM batch_event e
JOIN audit.judged_batches b ON b.batch_id = e.batch_id
LEFT JOIN api_key k ON k.id = substr(e.actor, 5)
WHERE e.actor LIKE 'key:%' AND k.account_id IS DISTINCT FROM b.account_id
UNION ALL
SELECT 'an idempotency key leads to a batch of another account', b.batch_id, NULL, 'key of ' || i.account_id, i.created_at, i.account_id, b.account_id, NULL
FROM idempotency_key i JOIN audit.judged_batches b ON b.batch_id = i.batch_id
WHERE i.account_id <> b.account_id
UNION ALL
SELECT 'a signature leads to a batch of another account', b.batch_id, NULL, 'signature of ' || s.account_id, NULL, s.account_id, b.account_id, NULL
FROM batch_signature s JOIN audit.judged_batches b ON b.batch_id = s.batch_id
WHERE s.account_id <> b.account_id;

-- The lifecycle --------------------------------------------------------------------------------------------------------------

CREATE VIEW audit.violation_lifecycle AS
WITH batch_moves AS (
    SELECT e.batch_id, e.at, e.event, e.from_status, e.to_status, lag(e.to_status) OVER w AS was, lead(e.id) OVER w IS NULL AS is_last
    FROM batch_event e JOIN audit.judged_batches b ON b.batch_id = e.batch_id
    WINDOW w AS (PARTITION BY e.batch_id ORDER BY e.id)
), message_moves AS (
    SELECT e.batch_id, s.seq, e.at, e.event, e.from_status, e.to_status,
        lag(e.to_status, 1, 'pending') OVER w AS was, lead(e.event) OVER w IS NULL AS is_last
    FROM audit.judged_events e CROSS JOIN LATERAL unnest(e.seqs) AS s (seq)
    WINDOW w AS (PARTITION BY e.batch_id, s.seq ORDER BY e.at)
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

-- What they are --------------------------------------------------------------------------------------------------------------

COMMENT ON VIEW audit.violation_counts IS 'Promise 1: accepted means accounted for; the counts sum to the total. Cost: one pass over the judged messages';
COMMENT ON VIEW audit.violation_resend IS 'Promise 2: nothing is claimed twice without evidence in between. Cost: a hash of the judged claims, then the history of what was claimed twice';
COMMENT ON VIEW audit.violation_calls IS 'Promise 3: no call without a committed row. Cost: a hash of the judged history, one pass over the judged messages';
COMMENT ON VIEW audit.violation_limits IS 'Promise 4: daily limits, and the meters that keep them. Cost: the judged messages sorted twice';
COMMENT ON VIEW audit.violation_pacing IS 'Promise 5: pace, by the instants granted. Cost: the judged messages sorted three times';
COMMENT ON VIEW audit.violation_money IS 'Promise 6: debited = charged + refunded + held. Cost: the whole ledger and all batches, one pass over the judged messages';
COMMENT ON VIEW audit.violation_receipts IS 'Promise 7: a state is what its facts mean, and no receipt is lost. Cost: one pass over the judged messages, a look-up per applied receipt';
COMMENT ON VIEW audit.violation_control IS 'Promise 8: nothing is claimed while a batch is paused or after it ended. Cost: an index scan per judged batch';
COMMENT ON VIEW audit.violation_stalled IS 'Promise 9: a stalled batch says why and goes on. Cost: an index scan per open batch';
COMMENT ON VIEW audit.violation_stuck IS 'Promise 10: nothing that is due is forgotten. Cost: small tables, one pass over the judged messages';
COMMENT ON VIEW audit.violation_tenants IS 'Promise 11: no account touches another''s. Cost: one pass over the judged messages';
COMMENT ON VIEW audit.violation_lifecycle IS 'States change only along the edges of docs/states.md, and the history is whole. Cost: the judged history sorted by message, the dearest of all';

DO $$
DECLARE
    view text;
BEGIN
    FOR view IN SELECT viewname FROM pg_views WHERE schemaname = 'audit' AND viewname LIKE 'violation\_%' LOOP
        EXECUTE format('COMMENT ON COLUMN audit.%I.what IS %L', view, 'the rule that is broken');
        EXECUTE format('COMMENT ON COLUMN audit.%I.batch_id IS %L', view, 'the batch, if it is about one');
        EXECUTE format('COMMENT ON COLUMN audit.%I.seq IS %L', view, 'the message in it, if it is about one, or the first of several');
        EXECUTE format('COMMENT ON COLUMN audit.%I.subject IS %L', view, 'what else it is about: account, meter, claim, state');
        EXECUTE format('COMMENT ON COLUMN audit.%I.at IS %L', view, 'when it happened, if that is known');
        EXECUTE format('COMMENT ON COLUMN audit.%I.expected IS %L', view, 'what should be there');
        EXECUTE format('COMMENT ON COLUMN audit.%I.found IS %L', view, 'what is there');
        EXECUTE format('COMMENT ON COLUMN audit.%I.off_by IS %L', view, 'by how much: messages, credits or seconds');
    END LOOP;
END
$$;

-- Who may read ---------------------------------------------------------------------------------------------------------------

DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'carteiro_auditor') THEN
        BEGIN
            CREATE ROLE carteiro_auditor NOLOGIN;
        EXCEPTION
            -- Another database of this server makes it at the same moment.
            WHEN duplicate_object OR unique_violation THEN NULL;
            WHEN insufficient_privilege THEN
                RAISE NOTICE 'the role carteiro_auditor is missing and may not be created here: docs/audit.md says how to add it later';
        END;
    END IF;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'carteiro_auditor') THEN
        GRANT USAGE ON SCHEMA audit TO carteiro_auditor;
        GRANT SELECT ON ALL TABLES IN SCHEMA audit TO carteiro_auditor;
        ALTER DEFAULT PRIVILEGES IN SCHEMA audit GRANT SELECT ON TABLES TO carteiro_auditor;
    END IF;
END
$$;
