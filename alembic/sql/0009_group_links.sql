-- Group links and reminders: batches of one.

CREATE TABLE group_link (
    batch_id UUID NOT NULL,
    account_id TEXT NOT NULL,
    flow TEXT NOT NULL,
    CONSTRAINT group_link_pkey PRIMARY KEY (batch_id),
    CONSTRAINT group_link_flow_check CHECK (flow IN ('personal', 'business')),
    CONSTRAINT group_link_batch_id_fkey FOREIGN KEY(batch_id) REFERENCES batch (id)
);
CREATE INDEX group_link_account_id_batch_id_idx ON group_link (account_id, batch_id);
COMMENT ON TABLE group_link IS 'what a group link or reminder has beside its batch of one; goes by age, its batch stays';

-- The words of these doors. domain/group_links.py has the same ones (tests/storage/test_group_links.py).
CREATE FUNCTION audit.group_link_status(batch_status text, message_status text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN
    CASE
        WHEN message_status = 'pending' AND batch_status IN ('completed', 'cancelled', 'error') THEN 'failed'
        WHEN message_status = 'pending' THEN 'pending'
        WHEN message_status IN ('pending_send', 'unknown') THEN 'processing'
        WHEN message_status IN ('sent', 'delivered', 'seen') THEN 'sent'
        ELSE 'failed'
    END;
COMMENT ON FUNCTION audit.group_link_status IS 'a message''s state in the words of group links';

CREATE VIEW audit.group_links AS
SELECT b.id AS group_link_id, b.account_id, b.service_id, b.door, g.flow, b.reference, b.template_name, b.template_language,
    audit.masked(c.address) AS phone, audit.group_link_status(b.status, m.status) AS status, m.status AS message_status, m.attempt AS attempts,
    b.max_attempts, coalesce(b.error_code, m.code) AS code, b.created_at,
    CASE WHEN m.status = 'pending' AND b.status IN ('pending_moderation', 'pending', 'processing', 'paused')
        THEN greatest(coalesce(r.available_at, b.scheduled_at, b.created_at), b.next_attempt_at) END AS available_at,
    m.sent_at, b.settled_at
FROM group_link g
JOIN batch b ON b.id = g.batch_id
JOIN message m ON m.batch_id = g.batch_id AND m.seq = 1
JOIN message_content c ON c.batch_id = g.batch_id AND c.seq = 1
LEFT JOIN message_return r ON r.batch_id = g.batch_id AND r.seq = 1;
COMMENT ON VIEW audit.group_links IS 'group links and reminders, and what became of them';
COMMENT ON COLUMN audit.group_links.group_link_id IS 'the link, and its batch';
COMMENT ON COLUMN audit.group_links.account_id IS 'whose it is';
COMMENT ON COLUMN audit.group_links.service_id IS 'what it is sent under';
COMMENT ON COLUMN audit.group_links.door IS 'group_link, or reminder: sent by the request that made it';
COMMENT ON COLUMN audit.group_links.flow IS 'personal or business';
COMMENT ON COLUMN audit.group_links.reference IS 'the client''s own name for it';
COMMENT ON COLUMN audit.group_links.template_name IS 'what it says';
COMMENT ON COLUMN audit.group_links.template_language IS 'in which language';
COMMENT ON COLUMN audit.group_links.phone IS 'the contact: last four digits; null: erased';
COMMENT ON COLUMN audit.group_links.status IS 'pending, processing, sent or failed';
COMMENT ON COLUMN audit.group_links.message_status IS 'the same in the words of messages (docs/states.md)';
COMMENT ON COLUMN audit.group_links.attempts IS 'calls that certainly did not send';
COMMENT ON COLUMN audit.group_links.max_attempts IS 'the last of so many fails it; null: a reminder is called once';
COMMENT ON COLUMN audit.group_links.code IS 'of the last refusal: ours or the provider''s';
COMMENT ON COLUMN audit.group_links.created_at IS 'when it was posted';
COMMENT ON COLUMN audit.group_links.available_at IS 'when it is next due; null: never again, or it is being sent';
COMMENT ON COLUMN audit.group_links.sent_at IS 'when the provider took it';
COMMENT ON COLUMN audit.group_links.settled_at IS 'when its outcome was final';
