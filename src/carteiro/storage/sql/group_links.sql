-- Group links and reminders: what they have beside their batch of one, and how they are.

-- name: add
INSERT INTO group_link (batch_id, account_id, flow) VALUES (%(batch_id)s, %(account_id)s, %(flow)s)

-- name: page
SELECT b.id, b.door, g.flow, b.service_id, b.reference, b.template_name, b.template_language, b.status, b.reason, b.error_code, m.status, m.code,
    m.attempt, b.max_attempts, b.created_at,
    CASE WHEN m.status = 'pending' AND b.status IN ('pending_moderation', 'pending', 'processing', 'paused')
        THEN greatest(coalesce(r.available_at, b.scheduled_at, b.created_at), b.next_attempt_at) END,
    m.sent_at
FROM group_link g
JOIN batch b ON b.id = g.batch_id
JOIN message m ON m.batch_id = g.batch_id AND m.seq = 1
LEFT JOIN message_return r ON r.batch_id = g.batch_id AND r.seq = 1
WHERE g.account_id = %(account_id)s AND g.batch_id BETWEEN %(first_id)s AND %(last_id)s
ORDER BY g.batch_id DESC
LIMIT %(limit)s

-- name: was_link
-- Of those that went by age only the batch is left.
SELECT EXISTS (SELECT FROM batch WHERE id = %(batch_id)s AND account_id = %(account_id)s AND door IN ('group_link', 'reminder'))

-- name: end_reminder
-- Nobody claims it from now on; what is still pending of it is withdrawn like that of any batch that expired.
UPDATE batch SET expires_at = least(expires_at, clock_timestamp()) WHERE id = %(batch_id)s AND door = 'reminder'
