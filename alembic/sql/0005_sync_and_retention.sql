-- What the provider says of senders, limits and templates; what was dropped for its age; who was erased.

-- Provider sync --------------------------------------------------------------------------------------------------------------

ALTER TABLE business_manager ADD COLUMN limit_note TEXT, ADD COLUMN synced_at TIMESTAMP WITH TIME ZONE;
COMMENT ON COLUMN business_manager.limit_note IS 'the provider''s word for the limit, where it is no number; an unknown one leaves the number as it was';
COMMENT ON COLUMN business_manager.synced_at IS 'when the provider was last asked';

ALTER TABLE sender ADD COLUMN provider_status TEXT, ADD COLUMN sync_stopped TEXT, ADD COLUMN synced_at TIMESTAMP WITH TIME ZONE;
COMMENT ON COLUMN sender.provider_status IS 'the provider''s own word';
COMMENT ON COLUMN sender.sync_stopped IS 'the status that the sync stopped it with: it lifts no other';
COMMENT ON COLUMN sender.synced_at IS 'when the provider was last asked';

ALTER TABLE submission ADD COLUMN provider_status TEXT, ADD COLUMN provider_template_id TEXT, ADD COLUMN provider_at TIMESTAMP WITH TIME ZONE;
COMMENT ON COLUMN submission.provider_status IS 'the provider''s own word';
COMMENT ON COLUMN submission.provider_template_id IS 'the provider''s id of it';
COMMENT ON COLUMN submission.provider_at IS 'of when that word is: an older one does not count';

CREATE VIEW audit.unlimited_managers AS
SELECT bm.id AS business_manager_id, coalesce(bm.daily_limit_override, bm.daily_limit_synced) AS daily_limit, bm.limit_note AS provider_said, bm.synced_at,
    CASE
        WHEN bm.limit_note IS NOT NULL AND bm.daily_limit_synced IS NOT NULL
            THEN 'the provider''s word is not understood: the limit known before counts'
        WHEN bm.limit_note IS NOT NULL THEN 'the provider names no number'
        WHEN bm.synced_at IS NULL THEN 'the provider was never asked'
        ELSE 'the provider does not say'
    END AS why,
    (SELECT count(*) FROM sender s WHERE s.business_manager_id = bm.id AND s.active AND s.status = 'ACTIVE') AS active_senders
FROM business_manager bm
WHERE bm.active AND bm.daily_limit_override IS NULL AND (bm.daily_limit_synced IS NULL OR bm.limit_note IS NOT NULL);
COMMENT ON VIEW audit.unlimited_managers IS 'business managers whose daily limit is not known: without one nothing but their senders'' own limits holds them back';
COMMENT ON COLUMN audit.unlimited_managers.business_manager_id IS 'the business manager';
COMMENT ON COLUMN audit.unlimited_managers.daily_limit IS 'messages a window, as known before; null: none';
COMMENT ON COLUMN audit.unlimited_managers.provider_said IS 'the provider''s word, where it is no number';
COMMENT ON COLUMN audit.unlimited_managers.synced_at IS 'when the provider was last asked';
COMMENT ON COLUMN audit.unlimited_managers.why IS 'why it is here; a limit in the catalog takes it out';
COMMENT ON COLUMN audit.unlimited_managers.active_senders IS 'senders that may send through it';

-- Retention ------------------------------------------------------------------------------------------------------------------

CREATE TABLE partition_drop (
    parent TEXT NOT NULL,
    from_at TIMESTAMP WITH TIME ZONE NOT NULL,
    until_at TIMESTAMP WITH TIME ZONE NOT NULL,
    decided_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    dropped_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT partition_drop_pkey PRIMARY KEY (parent, from_at)
);
COMMENT ON TABLE partition_drop IS 'partitions that were dropped for their age, or are about to be';
COMMENT ON COLUMN partition_drop.until_at IS 'not included';
COMMENT ON COLUMN partition_drop.decided_at IS 'from then on its rows count as gone';
COMMENT ON COLUMN partition_drop.dropped_at IS 'null: not yet';

CREATE INDEX batch_signature_expires_at_idx ON batch_signature (expires_at);
CREATE INDEX idempotency_key_created_at_idx ON idempotency_key (created_at);
CREATE INDEX callback_created_at_idx ON callback (created_at);

CREATE VIEW audit.dropped_partitions AS
SELECT d.parent AS table_name, d.from_at, d.until_at, d.decided_at, d.dropped_at FROM partition_drop d;
COMMENT ON VIEW audit.dropped_partitions IS 'what was dropped for its age: settled batches keep their counts and their money, and their messages, history or receipts are gone';
COMMENT ON COLUMN audit.dropped_partitions.table_name IS 'message and message_content: of batches posted in that time; the others: what was written in that time';
COMMENT ON COLUMN audit.dropped_partitions.from_at IS 'from when on';
COMMENT ON COLUMN audit.dropped_partitions.until_at IS 'until when, not included';
COMMENT ON COLUMN audit.dropped_partitions.decided_at IS 'when its rows began to count as gone';
COMMENT ON COLUMN audit.dropped_partitions.dropped_at IS 'when they were; null: it is tried again every hour';

-- A batch is judged while all that its judgement needs is there. One that is not settled keeps everything.
CREATE OR REPLACE VIEW audit.judged_batches AS
SELECT b.id AS batch_id, b.account_id, b.service_id, b.status, b.total, b.charge_rule, b.debited, b.charged, b.refunded, b.cursor_seq,
    b.created_at, b.settled_at
FROM batch b
WHERE b.status <> 'draft' AND (b.settled_at IS NULL OR b.settled_at >= (SELECT audit.judged_since()))
    AND NOT EXISTS (
        SELECT FROM partition_drop d
        WHERE d.parent IN ('message', 'message_content', 'message_event') AND b.settled_at <= d.decided_at
            AND (b.created_at < d.until_at OR b.id < uuid_floor(d.until_at)));

-- Erasure --------------------------------------------------------------------------------------------------------------------

CREATE TABLE erasure_salt (
    salt BYTEA NOT NULL
);
COMMENT ON TABLE erasure_salt IS 'one row: without it nobody can try out whose hash an erasure shows';
-- As random as gen_random_uuid() is: 244 bits of the 256.
INSERT INTO erasure_salt VALUES (uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()));
CREATE TRIGGER append_only BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON erasure_salt FOR EACH STATEMENT EXECUTE FUNCTION refuse_rewriting();

CREATE TABLE erasure (
    id BIGINT GENERATED ALWAYS AS IDENTITY,
    at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    phone_hash BYTEA NOT NULL,
    batch_id UUID,
    messages INTEGER DEFAULT '0' NOT NULL,
    payloads INTEGER DEFAULT '0' NOT NULL,
    actor TEXT NOT NULL,
    reason TEXT,
    CONSTRAINT erasure_pkey PRIMARY KEY (id)
);
CREATE INDEX erasure_phone_hash_idx ON erasure (phone_hash);
COMMENT ON TABLE erasure IS 'append-only: what was erased of whom, by a salted hash of the phone';
COMMENT ON COLUMN erasure.batch_id IS 'the batch whose messages were erased; null: what was erased elsewhere, and the end of the work';
COMMENT ON COLUMN erasure.payloads IS 'raw receipts and inbound messages';
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON erasure FOR EACH STATEMENT EXECUTE FUNCTION refuse_rewriting();

CREATE FUNCTION erasure_hash(phone bigint) RETURNS bytea LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT sha256(s.salt || int8send(phone)) FROM erasure_salt s
$$;
COMMENT ON FUNCTION erasure_hash IS 'what erasure.phone_hash shows of a phone identity';

-- Another for each batch: what is left of one person in several batches cannot be put together. Negative: no phone is.
CREATE FUNCTION erased_key(phone bigint, batch uuid) RETURNS bigint LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT -1 - (('x' || encode(substr(sha256(s.salt || uuid_send(batch) || int8send(phone)), 1, 8), 'hex'))::bit(64)::bigint & 9223372036854775807)
    FROM erasure_salt s
$$;
COMMENT ON FUNCTION erased_key IS 'what takes the place of a phone identity that is erased from a batch';

CREATE FUNCTION refuse_new_message_identity() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.batch_id = NEW.batch_id AND OLD.seq = NEW.seq AND OLD.phone_key > 0 AND NEW.phone_key = erased_key(OLD.phone_key, OLD.batch_id) THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'the identity of a message is fixed at its creation, and can only be erased' USING ERRCODE = 'check_violation';
END
$$;
DROP TRIGGER message_identity ON message;
CREATE TRIGGER message_identity BEFORE UPDATE ON message FOR EACH ROW
    WHEN (OLD.batch_id <> NEW.batch_id OR OLD.seq <> NEW.seq OR OLD.phone_key <> NEW.phone_key)
    EXECUTE FUNCTION refuse_new_message_identity();

CREATE OR REPLACE FUNCTION audit.masked(address text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN '***' || right(nullif(address, ''), least(4, greatest(0, length(address) - 4)));
COMMENT ON FUNCTION audit.masked IS 'a phone as it may be shown: its last four digits at most; null: it was erased';

CREATE VIEW audit.erasures AS
SELECT e.id AS erasure_id, e.at, encode(e.phone_hash, 'hex') AS phone_hash, e.batch_id, e.messages, e.payloads, e.actor, e.reason FROM erasure e;
COMMENT ON VIEW audit.erasures IS 'what was erased of whom: the phone is a salted hash, docs/retention.md says how to find one';
COMMENT ON COLUMN audit.erasures.erasure_id IS 'rising with time';
COMMENT ON COLUMN audit.erasures.at IS 'when';
COMMENT ON COLUMN audit.erasures.phone_hash IS 'equal for the same phone';
COMMENT ON COLUMN audit.erasures.batch_id IS 'the batch whose messages were erased; null: what was erased elsewhere, and the end of the work';
COMMENT ON COLUMN audit.erasures.messages IS 'messages whose phone, placeholders and media were erased';
COMMENT ON COLUMN audit.erasures.payloads IS 'raw receipts and inbound messages from which it was taken out';
COMMENT ON COLUMN audit.erasures.actor IS 'who did it';
COMMENT ON COLUMN audit.erasures.reason IS 'why, in words';
