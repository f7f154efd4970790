-- Messages as rows: loaded by COPY, read by cursor.

-- name: copy_messages
COPY message (batch_id, seq, phone_key) FROM STDIN

-- name: copy_content
COPY message_content (batch_id, seq, address, placeholders, extra) FROM STDIN

-- name: page
SELECT m.seq, c.address, m.status, m.code, m.attempt, m.sender_id, m.business_manager_id, m.provider_id,
    m.sent_at, m.delivered_at, m.seen_at, m.failed_at, f.status,
    CASE f.status
        WHEN 'seen' THEN f.seen_at WHEN 'delivered' THEN f.delivered_at WHEN 'sent' THEN f.sent_at
        WHEN 'failed' THEN coalesce(f.failed_at, f.gave_up_at) ELSE f.changed_at
    END,
    f.code
FROM message m
JOIN message_content c ON c.batch_id = m.batch_id AND c.seq = m.seq
LEFT JOIN follow_up f ON f.batch_id = m.batch_id AND f.seq = m.seq
WHERE m.batch_id = %(batch_id)s AND m.seq > %(after_seq)s AND (%(status)s::text IS NULL OR m.status = %(status)s)
ORDER BY m.seq
LIMIT %(limit)s
