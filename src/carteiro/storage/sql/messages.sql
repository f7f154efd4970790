-- Messages as rows: loaded by COPY, read by cursor.

-- name: copy_messages
COPY message (batch_id, seq, phone_key) FROM STDIN

-- name: copy_content
COPY message_content (batch_id, seq, address, placeholders, extra) FROM STDIN

-- name: page
-- Stretch by stretch, until there are enough: sorted as a whole, a large batch would be read to its end for each page.
SELECT m.seq, c.address, m.status, m.code, m.attempt, m.sender_id, m.business_manager_id, m.provider_id,
    m.sent_at, m.delivered_at, m.seen_at, m.failed_at, f.status,
    CASE f.status
        WHEN 'seen' THEN f.seen_at WHEN 'delivered' THEN f.delivered_at WHEN 'sent' THEN f.sent_at
        WHEN 'failed' THEN coalesce(f.failed_at, f.gave_up_at) ELSE f.changed_at
    END,
    f.code
FROM generate_series(%(after_seq)s::int, (SELECT max(seq) - 1 FROM message WHERE batch_id = %(batch_id)s), greatest(%(limit)s, 100)) AS w (after_seq)
CROSS JOIN LATERAL (
    SELECT * FROM message m
    WHERE m.batch_id = %(batch_id)s AND m.seq > w.after_seq AND m.seq <= w.after_seq + greatest(%(limit)s, 100)
        AND (%(status)s::text IS NULL OR m.status = %(status)s)
    ORDER BY m.seq
) m
CROSS JOIN LATERAL (SELECT address FROM message_content c WHERE c.batch_id = %(batch_id)s AND c.seq = m.seq LIMIT 1) c
LEFT JOIN LATERAL (SELECT * FROM follow_up f WHERE f.batch_id = %(batch_id)s AND f.seq = m.seq LIMIT 1) f ON true
LIMIT %(limit)s
