-- Views that read a batch of a million once: history was joined with itself, by nested loops where few were expected to have been
-- claimed twice, and every return of such a batch cost a look at all of its changes.

CREATE OR REPLACE VIEW audit.violation_resend AS
WITH moves AS (
    SELECT * FROM (
        SELECT e.batch_id, s.seq, e.at, e.event, e.claim_id, lag(e.event) OVER w AS before, lag(e.claim_id) OVER w AS before_claim_id,
            lag(e.at) OVER w AS before_at, count(*) FILTER (WHERE e.event = 'claimed') OVER (PARTITION BY e.batch_id, s.seq) AS claims
        FROM audit.judged_events e CROSS JOIN LATERAL unnest(e.seqs) AS s (seq)
        WINDOW w AS (PARTITION BY e.batch_id, s.seq ORDER BY e.id)
    ) each WHERE claims > 1
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
