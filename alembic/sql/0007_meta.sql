-- What Meta's answers and webhooks are traced by: it makes ids of its own, and posts to one address for everybody.

CREATE TABLE message_alias (
    provider_id TEXT NOT NULL,
    batch_id UUID NOT NULL,
    seq INTEGER NOT NULL,
    followup BOOLEAN DEFAULT false NOT NULL,
    at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT message_alias_pkey PRIMARY KEY (provider_id)
);
CREATE INDEX message_alias_batch_id_seq_idx ON message_alias (batch_id, seq);
COMMENT ON TABLE message_alias IS 'messages by the provider''s own id, where that is not ours';
COMMENT ON COLUMN message_alias.followup IS 'it is the id of the message''s follow-up';

CREATE TABLE receipt_waiting (
    id BIGINT GENERATED ALWAYS AS IDENTITY NOT NULL,
    provider_id TEXT NOT NULL,
    received_at TIMESTAMP WITH TIME ZONE NOT NULL,
    payload_id BIGINT NOT NULL,
    kind TEXT NOT NULL,
    at TIMESTAMP WITH TIME ZONE NOT NULL,
    code TEXT,
    failure TEXT,
    via TEXT,
    CONSTRAINT receipt_waiting_pkey PRIMARY KEY (id)
);
CREATE INDEX receipt_waiting_provider_id_idx ON receipt_waiting (provider_id);
CREATE INDEX receipt_waiting_received_at_idx ON receipt_waiting (received_at);
COMMENT ON TABLE receipt_waiting IS 'receipts that name their message by an id of the provider that we do not know yet: merged when we do, orphans after an hour';
COMMENT ON COLUMN receipt_waiting.via IS 'which of our numbers it was told under';

CREATE TABLE pair_wait (
    batch_id UUID NOT NULL,
    seq INTEGER NOT NULL,
    waits SMALLINT NOT NULL,
    CONSTRAINT pair_wait_pkey PRIMARY KEY (batch_id, seq)
);
COMMENT ON TABLE pair_wait IS 'how often the provider said that a message''s contact gets too many from its sender: each time its wait is longer';

ALTER TABLE receipt_payload
    ALTER COLUMN service_id DROP NOT NULL,
    ADD COLUMN provider TEXT,
    ADD CONSTRAINT receipt_payload_origin_check CHECK (service_id IS NOT NULL OR provider IS NOT NULL);
COMMENT ON COLUMN receipt_payload.service_id IS 'whose address it came to; null: the provider has one address for everybody';
COMMENT ON COLUMN receipt_payload.provider IS 'who posted it; null: the service''s provider';

ALTER TABLE submission ADD COLUMN parameter_names TEXT[] DEFAULT '{}' NOT NULL;
COMMENT ON COLUMN submission.parameter_names IS 'what the body calls its placeholders, in their order; empty: they are numbered';

CREATE INDEX sender_waba_id_idx ON sender (waba_id);

CREATE VIEW audit.waiting_senders AS
SELECT s.id AS sender, s.provider_ref, s.business_manager_id, s.wait_until, s.wait_reason AS reason
FROM sender s
WHERE s.wait_until > clock_timestamp();
COMMENT ON VIEW audit.waiting_senders IS 'senders that the provider asked to slow down, or restricted for a time: nothing is sent with them before';
COMMENT ON COLUMN audit.waiting_senders.sender IS 'the sender';
COMMENT ON COLUMN audit.waiting_senders.provider_ref IS 'what the provider calls it, where that is another name';
COMMENT ON COLUMN audit.waiting_senders.business_manager_id IS 'its business manager';
COMMENT ON COLUMN audit.waiting_senders.wait_until IS 'when it may send again';
COMMENT ON COLUMN audit.waiting_senders.reason IS 'throttled, or what the provider said of its account';

CREATE VIEW audit.waiting_receipts AS
SELECT w.received_at, w.payload_id, w.kind, w.at, w.code, w.via AS number
FROM receipt_waiting w;
COMMENT ON VIEW audit.waiting_receipts IS 'receipts that name their message by an id of the provider that is not known yet: merged when it is, orphans after an hour';
COMMENT ON COLUMN audit.waiting_receipts.received_at IS 'when its payload came';
COMMENT ON COLUMN audit.waiting_receipts.payload_id IS 'the payload, kept as it came in receipt_payload';
COMMENT ON COLUMN audit.waiting_receipts.kind IS 'what it says: sent, delivered, seen, failed';
COMMENT ON COLUMN audit.waiting_receipts.at IS 'when that was, by the provider';
COMMENT ON COLUMN audit.waiting_receipts.code IS 'the provider''s code of a failure';
COMMENT ON COLUMN audit.waiting_receipts.number IS 'which of our numbers it was told under, as the provider names it';
COMMENT ON COLUMN audit.orphan_receipts.service_id IS 'whose webhook it came to; null: the provider has one address for everybody';
