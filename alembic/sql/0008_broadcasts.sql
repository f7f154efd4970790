-- Broadcasts: batches whose audience is a group of another application's directory.

CREATE TABLE broadcast (
    batch_id UUID NOT NULL,
    public_id TEXT NOT NULL,
    owner_id TEXT NOT NULL,
    group_id TEXT NOT NULL,
    variables JSONB NOT NULL,
    CONSTRAINT broadcast_pkey PRIMARY KEY (batch_id),
    CONSTRAINT broadcast_public_id_key UNIQUE (public_id),
    CONSTRAINT broadcast_batch_id_fkey FOREIGN KEY(batch_id) REFERENCES batch (id)
);
CREATE INDEX broadcast_owner_id_idx ON broadcast (owner_id);
COMMENT ON TABLE broadcast IS 'what a broadcast has beside its batch, whose id it shares';
COMMENT ON COLUMN broadcast.public_id IS 'short, cannot be guessed, may be shown';
COMMENT ON COLUMN broadcast.owner_id IS 'the person of the directory on whose behalf it was posted';
COMMENT ON COLUMN broadcast.group_id IS 'the group of the directory that was addressed';
COMMENT ON COLUMN broadcast.variables IS 'what the template''s placeholders say, the same to everybody';

-- Two owners, or a broadcast and a batch, never meet under one key.
ALTER TABLE idempotency_key ADD COLUMN scope TEXT DEFAULT '' NOT NULL;
ALTER TABLE idempotency_key DROP CONSTRAINT idempotency_key_pkey, ADD CONSTRAINT idempotency_key_pkey PRIMARY KEY (account_id, scope, key);
COMMENT ON COLUMN idempotency_key.scope IS 'whose keys they are within the account; empty: of its batches';

-- The words of this door. domain/broadcasts.py has the same ones (tests/storage/test_broadcasts.py).
CREATE FUNCTION audit.broadcast_status(batch_status text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN
    CASE batch_status
        WHEN 'pending_moderation' THEN 'queued' WHEN 'pending' THEN 'queued'
        WHEN 'processing' THEN 'sending' WHEN 'paused' THEN 'sending'
        WHEN 'completed' THEN 'completed' WHEN 'cancelled' THEN 'canceled' WHEN 'error' THEN 'failed'
    END;
COMMENT ON FUNCTION audit.broadcast_status IS 'a batch''s state in the words of broadcasts';

CREATE FUNCTION audit.recipient_status(message_status text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN
    CASE message_status
        WHEN 'pending' THEN 'pending' WHEN 'pending_send' THEN 'pending' WHEN 'unknown' THEN 'pending'
        WHEN 'sent' THEN 'sent' WHEN 'delivered' THEN 'delivered' WHEN 'seen' THEN 'read'
        WHEN 'failed' THEN 'failed' WHEN 'unsent' THEN 'failed'
    END;
COMMENT ON FUNCTION audit.recipient_status IS 'a message''s state in the words of broadcasts';

CREATE VIEW audit.broadcasts AS
SELECT b.id AS broadcast_id, r.public_id, b.account_id, r.owner_id, r.group_id, b.service_id, b.template_name, b.template_language,
    audit.broadcast_status(b.status) AS status, b.total,
    coalesce(t.pending, 0) AS pending, coalesce(t.sent, 0) AS sent, coalesce(t.delivered, 0) AS delivered, coalesce(t.read, 0) AS read,
    coalesce(t.failed, 0) AS failed, b.error_code, b.created_at, b.started_at, b.ended_at, b.settled_at
FROM broadcast r
JOIN batch b ON b.id = r.batch_id
LEFT JOIN LATERAL (
    SELECT sum(pending + pending_send + unknown) AS pending, sum(sent + delivered + seen) AS sent, sum(delivered + seen) AS delivered,
        sum(seen) AS read, sum(failed + unsent) AS failed
    FROM batch_tally WHERE batch_id = b.id
) t ON true;
COMMENT ON VIEW audit.broadcasts IS 'the broadcasts and how far they are; pending + sent + failed = total, in any snapshot';
COMMENT ON COLUMN audit.broadcasts.broadcast_id IS 'the broadcast, and its batch';
COMMENT ON COLUMN audit.broadcasts.public_id IS 'its short id';
COMMENT ON COLUMN audit.broadcasts.account_id IS 'whose it is';
COMMENT ON COLUMN audit.broadcasts.owner_id IS 'the person of the directory on whose behalf it was posted';
COMMENT ON COLUMN audit.broadcasts.group_id IS 'the group of the directory that was addressed';
COMMENT ON COLUMN audit.broadcasts.service_id IS 'what it is sent under';
COMMENT ON COLUMN audit.broadcasts.template_name IS 'the template';
COMMENT ON COLUMN audit.broadcasts.template_language IS 'its language';
COMMENT ON COLUMN audit.broadcasts.status IS 'queued, sending, completed, failed or canceled';
COMMENT ON COLUMN audit.broadcasts.total IS 'recipients';
COMMENT ON COLUMN audit.broadcasts.pending IS 'recipients whose message has not left, or whose outcome is being found out';
COMMENT ON COLUMN audit.broadcasts.sent IS 'taken by the provider; includes delivered and read';
COMMENT ON COLUMN audit.broadcasts.delivered IS 'delivered; includes read';
COMMENT ON COLUMN audit.broadcasts.read IS 'read by the recipient';
COMMENT ON COLUMN audit.broadcasts.failed IS 'refused, failed later, or never to be sent';
COMMENT ON COLUMN audit.broadcasts.error_code IS 'why it failed as a whole';
COMMENT ON COLUMN audit.broadcasts.created_at IS 'when it was posted';
COMMENT ON COLUMN audit.broadcasts.started_at IS 'when the first message was claimed';
COMMENT ON COLUMN audit.broadcasts.ended_at IS 'when it was completed, failed or canceled';
COMMENT ON COLUMN audit.broadcasts.settled_at IS 'when the last outcome was known';

-- Codes come from the providers' tables, which the views cannot read.
CREATE TABLE audit.code_meaning (
    code text CONSTRAINT code_meaning_pkey PRIMARY KEY,
    meaning text NOT NULL
);
COMMENT ON TABLE audit.code_meaning IS 'what the codes of failed messages mean; each worker writes what it knows when it starts';
COMMENT ON COLUMN audit.code_meaning.code IS 'the provider''s or our code, as messages have it';
COMMENT ON COLUMN audit.code_meaning.meaning IS 'in words';

CREATE VIEW audit.broadcast_recipients AS
SELECT r.batch_id AS broadcast_id, r.public_id, m.seq, audit.masked(c.address) AS phone, audit.recipient_status(m.status) AS status,
    m.attempt + CASE WHEN m.status IN ('pending', 'unsent') OR m.event IN ('guarded', 'exhausted') THEN 0 ELSE 1 END AS attempts,
    CASE WHEN m.status IN ('failed', 'unsent') THEN m.code END AS error_code,
    CASE WHEN m.status IN ('failed', 'unsent') THEN w.meaning END AS error_detail,
    m.sender_id, m.sent_at, m.delivered_at, m.seen_at AS read_at, m.failed_at
FROM broadcast r
JOIN message m ON m.batch_id = r.batch_id
LEFT JOIN message_content c ON c.batch_id = m.batch_id AND c.seq = m.seq
LEFT JOIN audit.code_meaning w ON w.code = m.code;
COMMENT ON VIEW audit.broadcast_recipients IS 'the recipients of broadcasts and how far each is; always name a broadcast';
COMMENT ON COLUMN audit.broadcast_recipients.broadcast_id IS 'its broadcast';
COMMENT ON COLUMN audit.broadcast_recipients.public_id IS 'the broadcast''s short id';
COMMENT ON COLUMN audit.broadcast_recipients.seq IS 'its place in the broadcast, from 1';
COMMENT ON COLUMN audit.broadcast_recipients.phone IS 'the recipient: last four digits; null when it was erased';
COMMENT ON COLUMN audit.broadcast_recipients.status IS 'pending, sent, delivered, read or failed';
COMMENT ON COLUMN audit.broadcast_recipients.attempts IS 'calls to the provider that were made for it, without those it put off';
COMMENT ON COLUMN audit.broadcast_recipients.error_code IS 'the provider''s or our code of the failure';
COMMENT ON COLUMN audit.broadcast_recipients.error_detail IS 'what that code means, where it is known';
COMMENT ON COLUMN audit.broadcast_recipients.sender_id IS 'sender of the last call';
COMMENT ON COLUMN audit.broadcast_recipients.sent_at IS 'when the provider took it';
COMMENT ON COLUMN audit.broadcast_recipients.delivered_at IS 'when it was delivered, by a receipt';
COMMENT ON COLUMN audit.broadcast_recipients.read_at IS 'when it was read';
COMMENT ON COLUMN audit.broadcast_recipients.failed_at IS 'when it was refused or failed';

-- As before, and whom each key speaks for.
CREATE OR REPLACE VIEW audit.key_usage AS
SELECT k.id AS key_id, k.account_id, k.name, k.scopes,
    CASE WHEN k.revoked_at IS NOT NULL THEN 'revoked' WHEN k.expires_at <= now() THEN 'expired' ELSE 'valid' END AS state,
    k.created_at, k.expires_at, k.revoked_at, k.last_used_at, coalesce(e.batches, 0) AS batches, coalesce(e.actions, 0) AS actions,
    e.last_action_at, k.owner_id
FROM api_key k
LEFT JOIN (
    SELECT actor, count(*) FILTER (WHERE event = 'created') AS batches, count(*) AS actions, max(at) AS last_action_at
    FROM batch_event WHERE actor LIKE 'key:%' GROUP BY actor
) e ON e.actor = 'key:' || k.id;
COMMENT ON COLUMN audit.key_usage.owner_id IS 'the person of the directory on whose behalf it speaks';
