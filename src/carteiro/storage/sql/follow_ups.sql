-- What is sent once to a contact who answers. Locked by (batch, seq), after messages.

-- name: by_context
-- The message that an answer names. A call of it must have been made, and its account be the one that was told.
SELECT t.n, m.batch_id, m.seq, b.service_id, m.sender_id, m.business_manager_id, m.slot_at,
    b.follow_up IS NOT NULL AND m.phone_key > 0 AND m.slot_at > t.at - make_interval(secs => %(window_s)s)
FROM unnest(%(ns)s::int[], %(accounts)s::text[], %(batch_ids)s::uuid[], %(seqs)s::int[], %(ats)s::timestamptz[])
    AS t (n, account_id, batch_id, seq, at)
JOIN batch b ON b.id = t.batch_id AND b.account_id = t.account_id
JOIN message m ON m.batch_id = t.batch_id AND m.seq = t.seq
WHERE m.claim_id IS NOT NULL

-- name: by_phone
-- The account's latest message with a follow-up to whoever wrote. A batch that was settled before the window has none in it.
SELECT t.n, found.batch_id, found.seq, found.service_id, found.sender_id, found.business_manager_id, found.slot_at, true
FROM unnest(%(ns)s::int[], %(accounts)s::text[], %(phones)s::bigint[], %(senders)s::text[], %(ats)s::timestamptz[])
    AS t (n, account_id, phone_key, sender, at)
CROSS JOIN LATERAL (
    SELECT m.batch_id, m.seq, b.service_id, m.sender_id, m.business_manager_id, m.slot_at
    FROM batch b
    JOIN message m ON m.batch_id = b.id AND m.phone_key = t.phone_key
    JOIN sender s ON s.id = m.sender_id
    WHERE b.account_id = t.account_id AND b.follow_up IS NOT NULL
        AND coalesce(b.settled_at, 'infinity'::timestamptz) > t.at - make_interval(secs => %(window_s)s)
        AND m.status IN ('pending_send', 'unknown', 'sent', 'delivered', 'seen')
        AND m.slot_at > t.at - make_interval(secs => %(window_s)s) AND m.slot_at <= t.at + make_interval(secs => %(slack_s)s)
        AND (t.sender IS NULL OR t.sender IN (s.id, s.provider_ref))
    ORDER BY m.slot_at DESC LIMIT 1
) found

-- name: note
-- The first answer makes the row, whoever tells of it and how often: that is what makes ten answers one follow-up.
INSERT INTO follow_up (batch_id, seq, account_id, service_id, sender_id, business_manager_id, answered_at, answered_by, window_until)
SELECT batch_id, seq, account_id, service_id, sender_id, business_manager_id, at, answered_by, at + make_interval(secs => %(window_s)s)
FROM unnest(%(batch_ids)s::uuid[], %(seqs)s::int[], %(accounts)s::text[], %(services)s::text[], %(senders)s::text[], %(bms)s::text[],
    %(ats)s::timestamptz[], %(bys)s::text[]) AS t (batch_id, seq, account_id, service_id, sender_id, business_manager_id, at, answered_by)
ORDER BY batch_id, seq
ON CONFLICT DO NOTHING
RETURNING batch_id, seq

-- name: any_claimable
SELECT EXISTS (
    SELECT FROM follow_up_claimable
    WHERE service_id = %(service_id)s AND window_until > clock_timestamp() + make_interval(secs => %(margin_s)s))

-- name: next_turn
-- The batch of whoever waits longest.
SELECT c.batch_id, b.account_id, b.follow_up, b.template_content
FROM follow_up_claimable c JOIN batch b ON b.id = c.batch_id
WHERE c.service_id = %(service_id)s AND c.window_until > clock_timestamp() + make_interval(secs => %(margin_s)s)
ORDER BY c.available_at, c.batch_id
LIMIT 1

-- name: lanes
-- The senders of the rows that wait longest. Not locked: read to lock their calendars first.
SELECT DISTINCT c.sender_id, c.sender_name, c.business_manager_id, c.messages_per_second, c.messages_per_minute
FROM (
    SELECT * FROM follow_up_claimable
    WHERE batch_id = %(batch_id)s AND window_until > clock_timestamp() + make_interval(secs => %(margin_s)s)
    ORDER BY available_at, seq LIMIT %(n)s
) c
ORDER BY c.sender_id

-- name: take
SELECT f.seq, f.attempt, f.sender_id, m.phone_key, c.address
FROM follow_up f
JOIN message m ON m.batch_id = %(batch_id)s AND m.seq = f.seq
JOIN message_content c ON c.batch_id = %(batch_id)s AND c.seq = f.seq
WHERE f.batch_id = %(batch_id)s AND f.status = 'pending' AND f.available_at <= clock_timestamp()
    AND f.window_until > clock_timestamp() + make_interval(secs => %(margin_s)s)
    AND f.sender_id = ANY(%(senders)s::text[])
ORDER BY f.available_at, f.seq LIMIT %(n)s
FOR UPDATE OF f SKIP LOCKED

-- name: open_claim
WITH opened AS (
    INSERT INTO claim (batch_id, service_id, worker_id, seqs, size, open, last_slot_at, lease_until, follow_ups)
    VALUES (%(batch_id)s, %(service_id)s, %(worker_id)s, %(seqs)s::int[], %(size)s, %(size)s, %(last_slot_at)s,
        clock_timestamp() + make_interval(secs => %(lease_s)s), true)
    RETURNING id, lease_until
), claimed AS (
    UPDATE follow_up f SET status = e.target, event = e.event, code = NULL, claim_id = opened.id, business_manager_id = t.bm, slot_at = t.slot_at
    FROM opened, unnest(%(seqs)s::int[], %(bms)s::text[], %(slots)s::timestamptz[]) AS t (seq, bm, slot_at), lifecycle_edge e
    WHERE f.batch_id = %(batch_id)s AND f.seq = t.seq AND e.machine = 'follow_up' AND e.event = 'claimed' AND e.source = f.status
    RETURNING f.seq
)
SELECT opened.id, opened.lease_until, (SELECT count(*)::int FROM claimed) FROM opened

-- name: postpone
UPDATE follow_up f SET available_at = t.at
FROM unnest(%(seqs)s::int[], %(ats)s::timestamptz[]) AS t (seq, at)
WHERE f.batch_id = %(batch_id)s AND f.seq = t.seq AND f.status = 'pending'

-- name: withdraw
UPDATE follow_up f SET status = e.target, event = e.event, code = t.code
FROM unnest(%(seqs)s::int[], %(codes)s::text[]) AS t (seq, code), lifecycle_edge e
WHERE f.batch_id = %(batch_id)s AND f.seq = t.seq AND e.machine = 'follow_up' AND e.event = 'withdrawn' AND e.source = f.status
RETURNING f.seq

-- name: withdraw_ended
WITH picked AS MATERIALIZED (
    SELECT f.batch_id, f.seq,
        CASE b.status WHEN 'cancelled' THEN 'BATCH_CANCELLED' WHEN 'error' THEN 'BATCH_ERROR' ELSE %(closed)s END AS code
    FROM follow_up f JOIN batch b ON b.id = f.batch_id
    WHERE f.status = 'pending' AND (b.status IN ('cancelled', 'error') OR f.window_until <= clock_timestamp())
    ORDER BY f.batch_id, f.seq LIMIT %(n)s
    FOR UPDATE OF f SKIP LOCKED
)
UPDATE follow_up f SET status = e.target, event = e.event, code = p.code
FROM picked p, lifecycle_edge e
WHERE f.batch_id = p.batch_id AND f.seq = p.seq AND e.machine = 'follow_up' AND e.event = 'withdrawn' AND e.source = f.status

-- name: move_claimed
-- Rows that are certainly not sent, or whose outcome is unknown: only while they are `pending_send` under this claim. What may not be
-- tried again ends here.
WITH told AS (
    SELECT * FROM unnest(%(seqs)s::int[], %(events)s::text[], %(attempts)s::int[], %(codes)s::text[], %(delays)s::float[])
        AS t (seq, event, attempts, code, delay_s)
), held AS MATERIALIZED (
    SELECT f.seq, e.event, e.target, t.attempts, t.delay_s,
        CASE
            WHEN e.event <> 'dropped' THEN t.code
            WHEN b.status = 'cancelled' THEN 'BATCH_CANCELLED'
            WHEN b.status = 'error' THEN 'BATCH_ERROR'
            ELSE %(closed)s
        END AS code
    FROM told t
    JOIN batch b ON b.id = %(batch_id)s
    JOIN follow_up f ON f.batch_id = b.id AND f.seq = t.seq
    JOIN lifecycle_edge e ON e.machine = 'follow_up' AND e.source = f.status AND e.event = CASE
        WHEN t.event = 'given_back'
            AND (b.status IN ('cancelled', 'error') OR f.window_until <= clock_timestamp() + make_interval(secs => t.delay_s))
        THEN 'dropped' ELSE t.event
    END
    WHERE f.claim_id = %(claim_id)s
    ORDER BY f.seq
    FOR UPDATE OF f
)
UPDATE follow_up f SET status = h.target, event = h.event, attempt = f.attempt + h.attempts, code = coalesce(h.code, f.code),
    available_at = CASE WHEN h.event = 'given_back' THEN clock_timestamp() + make_interval(secs => h.delay_s) ELSE f.available_at END,
    failed_at = CASE WHEN h.event = 'exhausted' THEN clock_timestamp() ELSE f.failed_at END,
    unknown_at = CASE WHEN h.event = 'lost' THEN coalesce(f.unknown_at, least(clock_timestamp(), f.slot_at)) ELSE f.unknown_at END,
    look_at = CASE WHEN h.event = 'lost' THEN clock_timestamp() + make_interval(secs => %(look_after_s)s) ELSE f.look_at END
FROM held h WHERE f.batch_id = %(batch_id)s AND f.seq = h.seq
RETURNING f.seq

-- name: lock
SELECT f.seq, f.status, f.claim_id, s.provider_ref, f.seen_at, f.delivered_at, f.failed_at, f.sent_at, f.gave_up_at, f.code, f.provider_id
FROM follow_up f LEFT JOIN sender s ON s.id = f.sender_id
WHERE f.batch_id = %(batch_id)s AND f.seq = ANY(%(seqs)s::int[])
ORDER BY f.seq
FOR UPDATE OF f

-- name: put_known
-- Of rows that the caller has locked in these states. The provider's own id may have the phone inside: not of a contact who was erased.
UPDATE follow_up f SET
    status = coalesce(e.target, f.status), event = CASE WHEN e.target <> f.status THEN t.event ELSE f.event END,
    sent_at = t.sent_at, delivered_at = t.delivered_at, seen_at = t.seen_at, failed_at = t.failed_at, gave_up_at = t.gave_up_at,
    provider_id = (SELECT t.provider_id FROM message m WHERE m.batch_id = f.batch_id AND m.seq = f.seq AND m.phone_key > 0), code = t.code
FROM unnest(
        %(seqs)s::int[], %(statuses)s::text[], %(events)s::text[], %(sent)s::timestamptz[], %(delivered)s::timestamptz[],
        %(seen)s::timestamptz[], %(failed)s::timestamptz[], %(gave_up)s::timestamptz[], %(provider_ids)s::text[], %(codes)s::text[]
    ) AS t (seq, status, event, sent_at, delivered_at, seen_at, failed_at, gave_up_at, provider_id, code)
LEFT JOIN lifecycle_edge e ON e.machine = 'follow_up' AND e.event = t.event AND e.source = t.status
WHERE f.batch_id = %(batch_id)s AND f.seq = t.seq

-- name: take_unknown
-- The look-up is leased by pushing `look_at` ahead.
WITH due AS MATERIALIZED (
    SELECT f.batch_id, f.seq FROM follow_up f
    WHERE f.status = 'unknown' AND f.look_at <= clock_timestamp() ORDER BY f.look_at LIMIT %(n)s
    FOR UPDATE SKIP LOCKED
)
UPDATE follow_up f SET look_at = clock_timestamp() + make_interval(secs => %(again_s)s)
FROM due WHERE f.batch_id = due.batch_id AND f.seq = due.seq
RETURNING f.service_id, f.batch_id, f.seq, f.unknown_at <= clock_timestamp() - make_interval(secs => %(give_up_s)s)

-- name: forget
-- The provider's own id may have the phone inside.
UPDATE follow_up SET provider_id = NULL WHERE batch_id = %(batch_id)s AND seq = %(seq)s
