-- Messages as rows: loaded by COPY, read by cursor.

-- name: copy_messages
COPY message (batch_id, seq, phone_key) FROM STDIN

-- name: copy_content
COPY message_content (batch_id, seq, address, placeholders, extra) FROM STDIN

-- name: page
SELECT m.seq, c.address, m.status, m.code, m.attempt, m.sender_id, m.business_manager_id, m.provider_id,
    m.sent_at, m.delivered_at, m.seen_at, m.failed_at
FROM message m JOIN message_content c ON c.batch_id = m.batch_id AND c.seq = m.seq
WHERE m.batch_id = %(batch_id)s AND m.seq > %(after_seq)s AND (%(status)s::text IS NULL OR m.status = %(status)s)
ORDER BY m.seq
LIMIT %(limit)s
