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

INSERT INTO audit.setting (name, value) VALUES ('service_window_s', 86400);

CREATE VIEW audit.judged_follow_ups AS
SELECT f.batch_id, f.seq, f.account_id, f.service_id, f.sender_id, f.business_manager_id, f.status, f.created_at, f.answered_at, f.window_until,
    f.claim_id, f.slot_at
FROM follow_up f
WHERE f.created_at >= (SELECT audit.judged_since())
    AND NOT EXISTS (SELECT FROM partition_drop d WHERE d.parent = 'message_event' AND f.created_at < d.until_at);
COMMENT ON VIEW audit.judged_follow_ups IS 'the follow-ups that violation_follow_ups looks at';
COMMENT ON COLUMN audit.judged_follow_ups.batch_id IS 'the batch of the message that was answered';
COMMENT ON COLUMN audit.judged_follow_ups.seq IS 'that message''s place in the batch';
COMMENT ON COLUMN audit.judged_follow_ups.account_id IS 'whose it is';
COMMENT ON COLUMN audit.judged_follow_ups.service_id IS 'what it is sent under';
COMMENT ON COLUMN audit.judged_follow_ups.sender_id IS 'who sends it';
COMMENT ON COLUMN audit.judged_follow_ups.business_manager_id IS 'that sender''s business manager';
COMMENT ON COLUMN audit.judged_follow_ups.status IS 'its state';
COMMENT ON COLUMN audit.judged_follow_ups.created_at IS 'when the answer was merged';
COMMENT ON COLUMN audit.judged_follow_ups.answered_at IS 'when the contact wrote';
COMMENT ON COLUMN audit.judged_follow_ups.window_until IS 'until when it may be sent';
COMMENT ON COLUMN audit.judged_follow_ups.claim_id IS 'claim of the last call';
COMMENT ON COLUMN audit.judged_follow_ups.slot_at IS 'the instant that was granted to the last call';

CREATE VIEW audit.violation_follow_ups AS
WITH moves AS (
    SELECT e.batch_id, e.seq, e.at, e.event, e.from_status, e.to_status, e.claim_id, lag(e.event) OVER w AS before, lag(e.to_status) OVER w AS was,
        lead(e.id) OVER w IS NULL AS is_last
    FROM follow_up_event e JOIN audit.judged_follow_ups f ON f.batch_id = e.batch_id AND f.seq = e.seq
    WINDOW w AS (PARTITION BY e.batch_id, e.seq ORDER BY e.id)
), phases AS (
    SELECT e.batch_id, e.event, e.to_status, e.at AS from_at, lead(e.at, 1, 'infinity') OVER (PARTITION BY e.batch_id ORDER BY e.id) AS until_at
    FROM batch_event e WHERE e.batch_id IN (SELECT f.batch_id FROM audit.judged_follow_ups f)
)
SELECT 'claimed again without evidence that it had not gone' AS what, m.batch_id, m.seq, 'claim ' || m.claim_id AS subject, m.at,
    'answered, or given back' AS expected, coalesce(m.before, 'nothing') AS found, NULL::numeric AS off_by
FROM moves m WHERE m.event = 'claimed' AND coalesce(m.before, '') NOT IN ('answered', 'given_back')
UNION ALL
SELECT 'sent without an answer', f.batch_id, f.seq, 'claim ' || f.claim_id, f.slot_at, 'a receipt of what the contact wrote', 'none', NULL
FROM audit.judged_follow_ups f
WHERE f.claim_id IS NOT NULL
    AND NOT EXISTS (SELECT FROM receipt r WHERE r.batch_id = f.batch_id AND r.seq = f.seq AND r.kind = 'inbound' AND r.result = 'applied')
    AND NOT EXISTS (SELECT FROM partition_drop d WHERE d.parent = 'receipt' AND f.created_at < d.until_at)
UNION ALL
SELECT 'sent outside the service window', f.batch_id, f.seq, 'claim ' || f.claim_id, f.slot_at,
    format('from %s until %s', f.answered_at, f.window_until), f.slot_at::text,
    extract(epoch FROM greatest(f.slot_at - f.window_until, f.answered_at - f.slot_at))
FROM audit.judged_follow_ups f WHERE f.slot_at < f.answered_at OR f.slot_at > f.window_until
UNION ALL
SELECT 'the window is longer than it may be', f.batch_id, f.seq, NULL, f.answered_at, audit.span('service_window_s')::text,
    (f.window_until - f.answered_at)::text, extract(epoch FROM f.window_until - f.answered_at - audit.span('service_window_s'))
FROM audit.judged_follow_ups f WHERE f.window_until - f.answered_at > audit.span('service_window_s')
UNION ALL
SELECT 'the answer came too long after its message', f.batch_id, f.seq, NULL, f.answered_at, audit.span('service_window_s')::text,
    (f.answered_at - m.slot_at)::text, extract(epoch FROM f.answered_at - m.slot_at - audit.span('service_window_s'))
FROM audit.judged_follow_ups f JOIN message m ON m.batch_id = f.batch_id AND m.seq = f.seq
WHERE f.answered_at - m.slot_at > audit.span('service_window_s')
UNION ALL
SELECT format('claimed while the batch was %s', p.to_status), p.batch_id, m.seq, 'claim ' || m.claim_id, m.at,
    format('no claim after it was %s at %s', p.event, p.from_at), 'a claim', extract(epoch FROM m.at - p.from_at)
FROM phases p JOIN moves m ON m.batch_id = p.batch_id AND m.event = 'claimed' AND m.at > p.from_at AND m.at < p.until_at
WHERE p.to_status IN ('paused', 'cancelled', 'error')
UNION ALL
SELECT 'of another account, or of a batch that nothing follows', f.batch_id, f.seq, 'account ' || f.account_id, f.created_at,
    coalesce('account ' || b.account_id, 'a batch'), CASE WHEN b.follow_up IS NULL THEN 'nothing to follow' ELSE 'account ' || f.account_id END, NULL
FROM audit.judged_follow_ups f LEFT JOIN batch b ON b.id = f.batch_id
WHERE b.account_id IS DISTINCT FROM f.account_id OR b.follow_up IS NULL
UNION ALL
SELECT 'still waiting although its window has closed', f.batch_id, f.seq, NULL, f.window_until, 'sent or unsent', f.status,
    extract(epoch FROM now() - f.window_until)
FROM audit.judged_follow_ups f WHERE f.status = 'pending' AND f.window_until < (SELECT now() - audit.span('patience_s'))
UNION ALL
SELECT 'went along an edge that does not exist', m.batch_id, m.seq, m.event, m.at, 'an edge of docs/states.md',
    coalesce(m.from_status, 'nothing') || ' -> ' || m.to_status, NULL
FROM moves m
WHERE NOT (m.event = 'answered' AND m.from_status IS NULL AND m.to_status = 'pending')
    AND NOT EXISTS (SELECT FROM lifecycle_edge e WHERE e.machine = 'follow_up' AND (e.event, e.source, e.target) = (m.event, m.from_status, m.to_status))
UNION ALL
SELECT 'the history has a gap', m.batch_id, m.seq, m.event, m.at, coalesce(m.was, 'nothing'), coalesce(m.from_status, 'nothing'), NULL
FROM moves m WHERE m.from_status IS DISTINCT FROM m.was
UNION ALL
SELECT 'not where its history ends', f.batch_id, f.seq, m.event, m.at, coalesce(m.to_status, 'no history'), f.status, NULL
FROM audit.judged_follow_ups f LEFT JOIN moves m ON m.batch_id = f.batch_id AND m.seq = f.seq AND m.is_last
WHERE m.to_status IS DISTINCT FROM f.status;
COMMENT ON VIEW audit.violation_follow_ups IS 'Who answers is followed up once at most, in time, and not against the batch''s state. Cost: the judged follow-ups and their history';
COMMENT ON COLUMN audit.violation_follow_ups.what IS 'the rule that is broken';
COMMENT ON COLUMN audit.violation_follow_ups.batch_id IS 'the batch of the message that was answered';
COMMENT ON COLUMN audit.violation_follow_ups.seq IS 'that message''s place in the batch';
COMMENT ON COLUMN audit.violation_follow_ups.subject IS 'what else it is about: claim, event, account';
COMMENT ON COLUMN audit.violation_follow_ups.at IS 'when it happened, if that is known';
COMMENT ON COLUMN audit.violation_follow_ups.expected IS 'what should be there';
COMMENT ON COLUMN audit.violation_follow_ups.found IS 'what is there';
COMMENT ON COLUMN audit.violation_follow_ups.off_by IS 'by how much, in seconds';

-- Follow-ups take slots in the same calendars.
CREATE OR REPLACE VIEW audit.violation_pacing AS
WITH calls AS (
    SELECT m.batch_id, m.seq, m.service_id, m.business_manager_id, m.sender_id, m.slot_at
    FROM audit.judged_messages m
    WHERE m.slot_at IS NOT NULL AND m.status NOT IN ('pending', 'unsent')
    UNION ALL
    SELECT f.batch_id, f.seq, f.service_id, f.business_manager_id, f.sender_id, f.slot_at
    FROM audit.judged_follow_ups f
    WHERE f.slot_at IS NOT NULL AND f.status NOT IN ('pending', 'unsent')
), windows AS (
    SELECT 'service' AS kind, c.service_id AS owner, c.batch_id, c.seq, c.slot_at, interval '1 second' AS per,
        count(*) OVER (PARTITION BY c.service_id ORDER BY c.slot_at RANGE BETWEEN interval '0.999999 seconds' PRECEDING AND CURRENT ROW) AS n,
        c.slot_at - lag(c.slot_at) OVER (PARTITION BY c.service_id ORDER BY c.slot_at) AS gap
    FROM calls c
    UNION ALL
    SELECT 'sender', c.sender_id, c.batch_id, c.seq, c.slot_at, interval '1 second',
        count(*) OVER (PARTITION BY c.sender_id ORDER BY c.slot_at RANGE BETWEEN interval '0.999999 seconds' PRECEDING AND CURRENT ROW),
        c.slot_at - lag(c.slot_at) OVER (PARTITION BY c.sender_id ORDER BY c.slot_at)
    FROM calls c
    UNION ALL
    SELECT 'bm', c.business_manager_id, c.batch_id, c.seq, c.slot_at, interval '1 minute',
        count(*) OVER (PARTITION BY c.business_manager_id ORDER BY c.slot_at RANGE BETWEEN interval '59.999999 seconds' PRECEDING AND CURRENT ROW),
        c.slot_at - lag(c.slot_at) OVER (PARTITION BY c.business_manager_id ORDER BY c.slot_at)
    FROM calls c
), lowest AS (
    SELECT h.kind, h.owner, min(h.pace) AS pace FROM audit.limit_history h GROUP BY h.kind, h.owner
), suspects AS (
    SELECT w.*, allowed.pace, allowed.pace < 100 AND w.per / allowed.pace > audit.span('lateness_s') AS apart
    FROM windows w
    JOIN lowest l ON l.kind = w.kind AND l.owner = w.owner AND (w.n > l.pace OR (l.pace < 100 AND w.gap < w.per * 0.9 / l.pace))
    CROSS JOIN LATERAL audit.most_allowed(w.kind, w.owner, w.slot_at - w.per - interval '10 seconds', w.slot_at + interval '10 seconds') allowed
)
SELECT 'more calls in one interval than the pace' AS what, batch_id, seq, kind || ' ' || owner AS subject, slot_at AS at,
    format('%s in %s s', pace, extract(epoch FROM per)::integer) AS expected, n::text AS found, (n - pace)::numeric AS off_by
FROM suspects WHERE n > pace
UNION ALL
SELECT 'two calls closer than nine tenths of an even pace', batch_id, seq, kind || ' ' || owner, slot_at,
    round(extract(epoch FROM per) * 0.9 / pace, 6) || ' s', extract(epoch FROM gap) || ' s', round(extract(epoch FROM per) * 0.9 / pace - extract(epoch FROM gap), 6)
FROM suspects WHERE apart AND gap < per * 0.9 / pace;
