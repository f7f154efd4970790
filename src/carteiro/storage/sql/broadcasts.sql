-- What a broadcast has beside its batch, and its recipients.

-- name: add
INSERT INTO broadcast (batch_id, public_id, owner_id, group_id, variables)
VALUES (%(batch_id)s, %(public_id)s, %(owner_id)s, %(group_id)s, %(variables)s)

-- name: find
SELECT r.batch_id, r.public_id, r.group_id, b.total FROM broadcast r JOIN batch b ON b.id = r.batch_id
WHERE b.account_id = %(account_id)s AND r.owner_id = %(owner_id)s AND (r.batch_id = %(batch_id)s OR r.public_id = %(public_id)s)

-- name: recipients
-- Attempts as audit.broadcast_recipients counts them: a call is one that was made, whatever came of it.
SELECT m.seq, c.address, m.status,
    m.attempt + CASE WHEN m.status IN ('pending', 'unsent') OR m.event IN ('guarded', 'exhausted') THEN 0 ELSE 1 END,
    CASE WHEN m.status IN ('failed', 'unsent') THEN m.code END, m.sent_at, m.delivered_at, m.seen_at, m.failed_at
FROM message m JOIN message_content c ON c.batch_id = m.batch_id AND c.seq = m.seq
WHERE m.batch_id = %(batch_id)s AND m.seq > %(after_seq)s AND (%(states)s::text[] IS NULL OR m.status = ANY(%(states)s))
ORDER BY m.seq
LIMIT %(limit)s
