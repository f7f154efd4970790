-- What is sent once to a contact who answers: a message of its own beside the one that it follows.

CREATE TABLE follow_up (
    batch_id UUID NOT NULL,
    seq INTEGER NOT NULL,
    account_id TEXT NOT NULL,
    service_id TEXT NOT NULL,
    sender_id TEXT NOT NULL,
    business_manager_id TEXT NOT NULL,
    status TEXT DEFAULT 'pending' NOT NULL,
    event TEXT DEFAULT 'answered' NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    answered_at TIMESTAMP WITH TIME ZONE NOT NULL,
    answered_by TEXT NOT NULL,
    window_until TIMESTAMP WITH TIME ZONE NOT NULL,
    available_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    attempt SMALLINT DEFAULT '0' NOT NULL,
    claim_id BIGINT,
    slot_at TIMESTAMP WITH TIME ZONE,
    provider_id TEXT,
    code TEXT,
    sent_at TIMESTAMP WITH TIME ZONE,
    delivered_at TIMESTAMP WITH TIME ZONE,
    seen_at TIMESTAMP WITH TIME ZONE,
    failed_at TIMESTAMP WITH TIME ZONE,
    gave_up_at TIMESTAMP WITH TIME ZONE,
    unknown_at TIMESTAMP WITH TIME ZONE,
    look_at TIMESTAMP WITH TIME ZONE,
    changed_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT follow_up_pkey PRIMARY KEY (batch_id, seq),
    CONSTRAINT follow_up_status_check CHECK (status IN ('pending', 'pending_send', 'unknown', 'sent', 'delivered', 'seen', 'failed', 'unsent')),
    CONSTRAINT follow_up_answered_by_check CHECK (answered_by IN ('context', 'phone'))
)
 WITH (fillfactor = 70);
CREATE INDEX follow_up_pending_idx ON follow_up (service_id, available_at) WHERE status = 'pending';
CREATE INDEX follow_up_unknown_idx ON follow_up (look_at) WHERE status = 'unknown';
COMMENT ON TABLE follow_up IS 'what is sent once to a contact who answered a message: one row a message, made by its first answer';
COMMENT ON COLUMN follow_up.sender_id IS 'who sent the message: the contact''s window is open with this number alone';
COMMENT ON COLUMN follow_up.event IS 'the lifecycle event that last moved it';
COMMENT ON COLUMN follow_up.answered_at IS 'when the contact wrote, by the provider''s clock';
COMMENT ON COLUMN follow_up.answered_by IS 'how the answer was found to be one: it named the message, or by who wrote it';
COMMENT ON COLUMN follow_up.window_until IS 'until when it may be sent';
COMMENT ON COLUMN follow_up.available_at IS 'not claimed before';
COMMENT ON COLUMN follow_up.attempt IS 'calls that certainly did not send';
COMMENT ON COLUMN follow_up.claim_id IS 'the last claim: the fence';
COMMENT ON COLUMN follow_up.provider_id IS 'the provider''s own id, where it is not ours';
COMMENT ON COLUMN follow_up.code IS 'the provider''s or our code: why it failed, waits or was not sent';
COMMENT ON COLUMN follow_up.look_at IS 'when its unknown outcome is looked up next';
COMMENT ON COLUMN follow_up.changed_at IS 'when it came into its state';

CREATE TABLE follow_up_event (
    id BIGINT GENERATED ALWAYS AS IDENTITY,
    at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    batch_id UUID NOT NULL,
    seq INTEGER NOT NULL,
    event TEXT NOT NULL,
    from_status TEXT,
    to_status TEXT NOT NULL,
    actor TEXT NOT NULL,
    claim_id BIGINT,
    attempt SMALLINT NOT NULL,
    code TEXT,
    CONSTRAINT follow_up_event_pkey PRIMARY KEY (id)
);
CREATE INDEX follow_up_event_batch_id_seq_idx ON follow_up_event (batch_id, seq);
CREATE INDEX follow_up_event_at_idx ON follow_up_event (at);
COMMENT ON TABLE follow_up_event IS 'append-only: every change of a follow-up; goes with the history of messages of its week';

ALTER TABLE claim ADD COLUMN follow_ups BOOLEAN DEFAULT 'false' NOT NULL;
COMMENT ON COLUMN claim.follow_ups IS 'its rows are follow-ups of these messages, not the messages';

CREATE INDEX batch_followed_up_idx ON batch (account_id, coalesce(settled_at, 'infinity'::timestamptz)) WHERE follow_up IS NOT NULL;

CREATE VIEW follow_up_claimable AS
SELECT f.batch_id, f.seq, f.service_id, f.available_at, f.window_until, s.id AS sender_id, coalesce(s.provider_ref, s.id) AS sender_name,
    s.business_manager_id, s.messages_per_second, bm.messages_per_minute
FROM follow_up f
JOIN batch b ON b.id = f.batch_id
JOIN sender s ON s.id = f.sender_id
JOIN sender_account sa ON sa.sender_id = s.id AND sa.account_id = f.account_id
JOIN business_manager bm ON bm.id = s.business_manager_id
WHERE f.status = 'pending' AND f.available_at <= clock_timestamp() AND f.window_until > clock_timestamp()
    AND b.status IN ('processing', 'completed')
    AND s.active AND s.status = 'ACTIVE' AND bm.active
    AND (s.stopped_until IS NULL OR s.stopped_until <= clock_timestamp()) AND (s.wait_until IS NULL OR s.wait_until <= clock_timestamp());
COMMENT ON VIEW follow_up_claimable IS 'what may be sent now: no other sender than the message''s own may do it';

-- Lifecycle: as in 0002 ------------------------------------------------------------------------------------------------------

INSERT INTO lifecycle_edge (machine, event, source, target) VALUES
    ('follow_up', 'claimed', 'pending', 'pending_send'),
    ('follow_up', 'delivered', 'failed', 'delivered'),
    ('follow_up', 'delivered', 'pending', 'delivered'),
    ('follow_up', 'delivered', 'pending_send', 'delivered'),
    ('follow_up', 'delivered', 'sent', 'delivered'),
    ('follow_up', 'delivered', 'unknown', 'delivered'),
    ('follow_up', 'dropped', 'pending_send', 'unsent'),
    ('follow_up', 'exhausted', 'pending_send', 'failed'),
    ('follow_up', 'failed', 'pending', 'failed'),
    ('follow_up', 'failed', 'pending_send', 'failed'),
    ('follow_up', 'failed', 'sent', 'failed'),
    ('follow_up', 'failed', 'unknown', 'failed'),
    ('follow_up', 'gave_up', 'unknown', 'failed'),
    ('follow_up', 'given_back', 'pending_send', 'pending'),
    ('follow_up', 'lost', 'pending_send', 'unknown'),
    ('follow_up', 'seen', 'delivered', 'seen'),
    ('follow_up', 'seen', 'failed', 'seen'),
    ('follow_up', 'seen', 'pending', 'seen'),
    ('follow_up', 'seen', 'pending_send', 'seen'),
    ('follow_up', 'seen', 'sent', 'seen'),
    ('follow_up', 'seen', 'unknown', 'seen'),
    ('follow_up', 'sent', 'failed', 'sent'),
    ('follow_up', 'sent', 'pending', 'sent'),
    ('follow_up', 'sent', 'pending_send', 'sent'),
    ('follow_up', 'sent', 'unknown', 'sent'),
    ('follow_up', 'withdrawn', 'pending', 'unsent');

CREATE TRIGGER follow_up_begins BEFORE INSERT ON follow_up FOR EACH ROW
    WHEN (NEW.status <> 'pending') EXECUTE FUNCTION refuse_illegal_edge('follow_up');
CREATE TRIGGER follow_up_edge BEFORE UPDATE ON follow_up FOR EACH ROW
    WHEN (OLD.status <> NEW.status AND NOT ((OLD.status, NEW.status) IN (
        ('delivered', 'seen'),
        ('failed', 'delivered'),
        ('failed', 'seen'),
        ('pending', 'delivered'),
        ('pending', 'failed'),
        ('pending', 'pending_send'),
        ('pending', 'seen'),
        ('pending', 'sent'),
        ('pending', 'unsent'),
        ('pending_send', 'delivered'),
        ('pending_send', 'failed'),
        ('pending_send', 'pending'),
        ('pending_send', 'seen'),
        ('pending_send', 'sent'),
        ('pending_send', 'unknown'),
        ('pending_send', 'unsent'),
        ('sent', 'delivered'),
        ('sent', 'failed'),
        ('sent', 'seen'),
        ('unknown', 'delivered'),
        ('unknown', 'failed'),
        ('unknown', 'seen'),
        ('unknown', 'sent')
    )
    OR (OLD.status = 'failed' AND NEW.status = 'sent' AND OLD.failed_at IS NULL AND OLD.gave_up_at IS NOT NULL)
    )) EXECUTE FUNCTION refuse_illegal_edge('follow_up');
CREATE TRIGGER follow_up_identity BEFORE UPDATE ON follow_up FOR EACH ROW
    WHEN ((OLD.batch_id, OLD.seq, OLD.account_id, OLD.sender_id) IS DISTINCT FROM (NEW.batch_id, NEW.seq, NEW.account_id, NEW.sender_id))
    EXECUTE FUNCTION refuse_new_identity('follow_up');

-- One row a change: there are as many follow-ups as contacts who answer, not as messages.
CREATE FUNCTION record_follow_up_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO follow_up_event (batch_id, seq, event, from_status, to_status, actor, claim_id, attempt, code)
    VALUES (NEW.batch_id, NEW.seq, NEW.event, CASE WHEN TG_OP = 'UPDATE' THEN OLD.status END, NEW.status, current_actor(), NEW.claim_id,
        NEW.attempt, NEW.code);
    RETURN NULL;
END
$$;
CREATE TRIGGER follow_up_created AFTER INSERT ON follow_up FOR EACH ROW EXECUTE FUNCTION record_follow_up_change();
CREATE TRIGGER follow_up_changed AFTER UPDATE ON follow_up FOR EACH ROW
    WHEN (OLD.status <> NEW.status) EXECUTE FUNCTION record_follow_up_change();

CREATE FUNCTION note_follow_up_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.changed_at := clock_timestamp();
    RETURN NEW;
END
$$;
CREATE TRIGGER follow_up_moves BEFORE UPDATE ON follow_up FOR EACH ROW
    WHEN (OLD.status <> NEW.status) EXECUTE FUNCTION note_follow_up_change();

CREATE FUNCTION refuse_forgetting_follow_ups() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (
        SELECT FROM partition_drop d
        WHERE d.parent = 'message_event' AND d.dropped_at IS NOT NULL AND OLD.at >= d.from_at AND OLD.at < d.until_at
    ) THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'follow_up_event is append-only' USING ERRCODE = 'insufficient_privilege';
END
$$;
COMMENT ON FUNCTION refuse_forgetting_follow_ups IS 'what has gone for its age may go here too; nothing else';
CREATE TRIGGER append_only BEFORE UPDATE OR TRUNCATE ON follow_up_event FOR EACH STATEMENT EXECUTE FUNCTION refuse_rewriting();
CREATE TRIGGER kept BEFORE DELETE ON follow_up_event FOR EACH ROW EXECUTE FUNCTION refuse_forgetting_follow_ups();

-- Audit ----------------------------------------------------------------------------------------------------------------------

CREATE VIEW audit.follow_ups AS
SELECT f.batch_id, f.seq, f.account_id, f.service_id, audit.masked(c.address) AS phone, f.status, f.code, f.changed_at, f.answered_at,
    f.answered_by, f.window_until, f.sender_id, f.business_manager_id, f.claim_id, f.attempt, f.slot_at, f.sent_at, f.delivered_at, f.seen_at,
    f.failed_at, f.gave_up_at, f.unknown_at
FROM follow_up f
LEFT JOIN message_content c ON c.batch_id = f.batch_id AND c.seq = f.seq;
COMMENT ON VIEW audit.follow_ups IS 'what was sent, or was to be, to contacts who answered';
COMMENT ON COLUMN audit.follow_ups.batch_id IS 'the batch of the message that was answered';
COMMENT ON COLUMN audit.follow_ups.seq IS 'that message''s place in the batch';
COMMENT ON COLUMN audit.follow_ups.account_id IS 'whose it is';
COMMENT ON COLUMN audit.follow_ups.service_id IS 'what it is sent under';
COMMENT ON COLUMN audit.follow_ups.phone IS 'the contact: last four digits; null when it was erased';
COMMENT ON COLUMN audit.follow_ups.status IS 'its state (docs/states.md)';
COMMENT ON COLUMN audit.follow_ups.code IS 'the provider''s or our code: why it failed, waits or was not sent';
COMMENT ON COLUMN audit.follow_ups.changed_at IS 'when it came into this state';
COMMENT ON COLUMN audit.follow_ups.answered_at IS 'when the contact wrote';
COMMENT ON COLUMN audit.follow_ups.answered_by IS 'context: the answer named the message; phone: by who wrote it';
COMMENT ON COLUMN audit.follow_ups.window_until IS 'until when it may be sent';
COMMENT ON COLUMN audit.follow_ups.sender_id IS 'who sent the message, and sends this';
COMMENT ON COLUMN audit.follow_ups.business_manager_id IS 'that sender''s business manager';
COMMENT ON COLUMN audit.follow_ups.claim_id IS 'claim of the last call';
COMMENT ON COLUMN audit.follow_ups.attempt IS 'calls that certainly did not send';
COMMENT ON COLUMN audit.follow_ups.slot_at IS 'the instant that was granted to the last call';
COMMENT ON COLUMN audit.follow_ups.sent_at IS 'when the provider took it';
COMMENT ON COLUMN audit.follow_ups.delivered_at IS 'when it was delivered';
COMMENT ON COLUMN audit.follow_ups.seen_at IS 'when it was read';
COMMENT ON COLUMN audit.follow_ups.failed_at IS 'when it was refused or failed';
COMMENT ON COLUMN audit.follow_ups.gave_up_at IS 'when its unknown outcome was given up';
COMMENT ON COLUMN audit.follow_ups.unknown_at IS 'when its outcome first became unknown';

CREATE VIEW audit.follow_up_history AS
SELECT e.batch_id, e.seq, e.at, e.event, e.from_status, e.to_status, e.actor, e.claim_id, k.worker_id, e.attempt, e.code
FROM follow_up_event e
LEFT JOIN claim k ON k.id = e.claim_id;
COMMENT ON VIEW audit.follow_up_history IS 'every change of every follow-up since the answer, a row each; order by at';
COMMENT ON COLUMN audit.follow_up_history.batch_id IS 'the batch of the message that was answered';
COMMENT ON COLUMN audit.follow_up_history.seq IS 'that message''s place in the batch';
COMMENT ON COLUMN audit.follow_up_history.at IS 'when it was written';
COMMENT ON COLUMN audit.follow_up_history.event IS 'answered, or a lifecycle event (docs/states.md)';
COMMENT ON COLUMN audit.follow_up_history.from_status IS 'state before; null: the contact answered';
COMMENT ON COLUMN audit.follow_up_history.to_status IS 'state after';
COMMENT ON COLUMN audit.follow_up_history.actor IS 'who wrote it';
COMMENT ON COLUMN audit.follow_up_history.claim_id IS 'its last claim at that time';
COMMENT ON COLUMN audit.follow_up_history.worker_id IS 'the worker that made that claim';
COMMENT ON COLUMN audit.follow_up_history.attempt IS 'calls so far that certainly did not send';
COMMENT ON COLUMN audit.follow_up_history.code IS 'the provider''s or our code at that time';
