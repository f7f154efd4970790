-- Schema `audit`: the state of everything, readable without knowing the code. docs/audit.md is its manual.
-- What every promise comes to in SQL stands in 0003_violations.sql.

CREATE SCHEMA audit;
COMMENT ON SCHEMA audit IS 'what operators and auditors read; no phone is shown beyond its last four digits';

-- What the views judge by ---------------------------------------------------------------------------------------------------

CREATE TABLE audit.setting (
    name text CONSTRAINT setting_pkey PRIMARY KEY,
    value double precision NOT NULL,
    changed_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE audit.setting IS 'settings that the views judge by; each worker writes its own when it starts, except patience_s and lookback_s';
COMMENT ON COLUMN audit.setting.name IS 'as in docs/settings.md, in small letters';
COMMENT ON COLUMN audit.setting.value IS 'durations in seconds';
COMMENT ON COLUMN audit.setting.changed_at IS 'when it was last changed';

INSERT INTO audit.setting (name, value) VALUES
    ('window_s', 86400),
    ('bucket_s', 60),
    ('lateness_s', 0.05),
    ('patience_s', 300),
    ('lookback_s', 172800);

CREATE FUNCTION audit.span(setting text) RETURNS interval LANGUAGE sql STABLE PARALLEL SAFE
    RETURN (SELECT make_interval(secs => s.value) FROM audit.setting s WHERE s.name = setting);
COMMENT ON FUNCTION audit.span IS 'a setting as an interval';

-- Never less than two windows: a window is judged only where all of it is seen.
CREATE FUNCTION audit.judged_since() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE
    RETURN now() - greatest(
        coalesce(nullif(current_setting('carteiro.audit_lookback', true), '')::interval, audit.span('lookback_s')),
        2 * audit.span('window_s'));
COMMENT ON FUNCTION audit.judged_since IS 'the violation views judge batches that were settled after this, or not yet; SET carteiro.audit_lookback to look back further';

CREATE FUNCTION audit.masked(address text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN '***' || right(address, least(4, greatest(0, length(address) - 4)));
COMMENT ON FUNCTION audit.masked IS 'a phone as it may be shown: its last four digits at most';

-- Limits are judged as they were at the claim, and the catalog forgets what it said before.
CREATE TABLE audit.limit_history (
    kind text NOT NULL,
    owner text NOT NULL,
    since_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    daily_limit integer,
    pace integer
);
CREATE INDEX limit_history_owner_idx ON audit.limit_history (kind, owner, since_at);
COMMENT ON TABLE audit.limit_history IS 'every limit that a service, business manager or sender had; written by triggers';
COMMENT ON COLUMN audit.limit_history.kind IS 'service, bm or sender';
COMMENT ON COLUMN audit.limit_history.owner IS 'id of the service, business manager or sender';
COMMENT ON COLUMN audit.limit_history.since_at IS 'from when on; until the next row of the same owner';
COMMENT ON COLUMN audit.limit_history.daily_limit IS 'messages a window; null: none';
COMMENT ON COLUMN audit.limit_history.pace IS 'messages a second (service, sender) or a minute (bm); null: not paced';

CREATE TABLE audit.assignment_history (
    account_id text NOT NULL,
    sender_id text NOT NULL,
    since_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    until_at timestamptz
);
CREATE INDEX assignment_history_sender_id_idx ON audit.assignment_history (sender_id, account_id);
COMMENT ON TABLE audit.assignment_history IS 'which account could use which sender, and when; written by triggers';
COMMENT ON COLUMN audit.assignment_history.account_id IS 'account';
COMMENT ON COLUMN audit.assignment_history.sender_id IS 'sender';
COMMENT ON COLUMN audit.assignment_history.since_at IS 'from when on';
COMMENT ON COLUMN audit.assignment_history.until_at IS 'until when; null: still';

INSERT INTO audit.limit_history (kind, owner, since_at, daily_limit, pace)
SELECT 'service', id, '-infinity'::timestamptz, NULL::integer, messages_per_second FROM service
UNION ALL SELECT 'bm', id, '-infinity', coalesce(daily_limit_override, daily_limit_synced), messages_per_minute FROM business_manager
UNION ALL SELECT 'sender', id, '-infinity', CASE WHEN NOT use_waba_limit THEN daily_limit END, messages_per_second FROM sender;

INSERT INTO audit.assignment_history (account_id, sender_id, since_at)
SELECT account_id, sender_id, '-infinity' FROM sender_account;

CREATE FUNCTION audit.note_limit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    CASE TG_TABLE_NAME
        WHEN 'service' THEN
            INSERT INTO audit.limit_history (kind, owner, pace) VALUES ('service', NEW.id, NEW.messages_per_second);
        WHEN 'business_manager' THEN
            INSERT INTO audit.limit_history (kind, owner, daily_limit, pace)
            VALUES ('bm', NEW.id, coalesce(NEW.daily_limit_override, NEW.daily_limit_synced), NEW.messages_per_minute);
        WHEN 'sender' THEN
            INSERT INTO audit.limit_history (kind, owner, daily_limit, pace)
            VALUES ('sender', NEW.id, CASE WHEN NOT NEW.use_waba_limit THEN NEW.daily_limit END, NEW.messages_per_second);
    END CASE;
    RETURN NULL;
END
$$;
CREATE TRIGGER limit_begun AFTER INSERT ON service FOR EACH ROW EXECUTE FUNCTION audit.note_limit();
CREATE TRIGGER limit_changed AFTER UPDATE ON service FOR EACH ROW
    WHEN (OLD.messages_per_second <> NEW.messages_per_second)
    EXECUTE FUNCTION audit.note_limit();
CREATE TRIGGER limit_begun AFTER INSERT ON business_manager FOR EACH ROW EXECUTE FUNCTION audit.note_limit();
CREATE TRIGGER limit_changed AFTER UPDATE ON business_manager FOR EACH ROW
    WHEN ((OLD.daily_limit_override, OLD.daily_limit_synced, OLD.messages_per_minute)
        IS DISTINCT FROM (NEW.daily_limit_override, NEW.daily_limit_synced, NEW.messages_per_minute))
    EXECUTE FUNCTION audit.note_limit();
CREATE TRIGGER limit_begun AFTER INSERT ON sender FOR EACH ROW EXECUTE FUNCTION audit.note_limit();
CREATE TRIGGER limit_changed AFTER UPDATE ON sender FOR EACH ROW
    WHEN ((OLD.daily_limit, OLD.use_waba_limit, OLD.messages_per_second)
        IS DISTINCT FROM (NEW.daily_limit, NEW.use_waba_limit, NEW.messages_per_second))
    EXECUTE FUNCTION audit.note_limit();

CREATE FUNCTION audit.note_assignment() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO audit.assignment_history (account_id, sender_id) VALUES (NEW.account_id, NEW.sender_id);
    ELSE
        UPDATE audit.assignment_history SET until_at = clock_timestamp()
        WHERE account_id = OLD.account_id AND sender_id = OLD.sender_id AND until_at IS NULL;
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER assignment_changed AFTER INSERT OR DELETE ON sender_account
    FOR EACH ROW EXECUTE FUNCTION audit.note_assignment();

-- Batches --------------------------------------------------------------------------------------------------------------------

CREATE VIEW audit.batch_counts AS
SELECT b.id AS batch_id, b.account_id, b.service_id, b.reference, b.status, b.created_at, b.total,
    coalesce(t.pending, 0) AS pending, coalesce(t.pending_send, 0) AS pending_send, coalesce(t.unknown, 0) AS unknown,
    coalesce(t.sent, 0) AS sent, coalesce(t.delivered, 0) AS delivered, coalesce(t.seen, 0) AS seen,
    coalesce(t.failed, 0) AS failed, coalesce(t.unsent, 0) AS unsent, b.settled_at
FROM batch b
LEFT JOIN LATERAL (
    SELECT sum(pending) AS pending, sum(pending_send) AS pending_send, sum(unknown) AS unknown, sum(sent) AS sent,
        sum(delivered) AS delivered, sum(seen) AS seen, sum(failed) AS failed, sum(unsent) AS unsent
    FROM batch_tally WHERE batch_id = b.id
) t ON true;
COMMENT ON VIEW audit.batch_counts IS 'how many messages of each batch are in each state; their sum is the total, in any snapshot';
COMMENT ON COLUMN audit.batch_counts.batch_id IS 'the batch';
COMMENT ON COLUMN audit.batch_counts.account_id IS 'whose it is';
COMMENT ON COLUMN audit.batch_counts.service_id IS 'what it is sent under';
COMMENT ON COLUMN audit.batch_counts.reference IS 'the client''s own name for it';
COMMENT ON COLUMN audit.batch_counts.status IS 'state of the batch (docs/states.md)';
COMMENT ON COLUMN audit.batch_counts.created_at IS 'when it was posted';
COMMENT ON COLUMN audit.batch_counts.total IS 'messages in it';
COMMENT ON COLUMN audit.batch_counts.pending IS 'not yet claimed, or given back';
COMMENT ON COLUMN audit.batch_counts.pending_send IS 'claimed: being sent now';
COMMENT ON COLUMN audit.batch_counts.unknown IS 'may have been sent: the provider''s log is asked';
COMMENT ON COLUMN audit.batch_counts.sent IS 'taken by the provider, no receipt yet';
COMMENT ON COLUMN audit.batch_counts.delivered IS 'delivered, or assumed to be after 24 h without a receipt';
COMMENT ON COLUMN audit.batch_counts.seen IS 'read by the contact';
COMMENT ON COLUMN audit.batch_counts.failed IS 'refused, failed later, or outcome unknown for good';
COMMENT ON COLUMN audit.batch_counts.unsent IS 'will never be sent: batch ended, expired, or contact suppressed';
COMMENT ON COLUMN audit.batch_counts.settled_at IS 'when the last outcome was known and the money settled';

CREATE VIEW audit.batch_money AS
SELECT b.id AS batch_id, b.account_id, b.billing_account_id, b.reference, b.status, b.charge_rule, b.debited, b.charged, b.refunded,
    b.debited - b.charged - b.refunded AS held, b.settled_at
FROM batch b
WHERE b.status <> 'draft';
COMMENT ON VIEW audit.batch_money IS 'where the credits of each batch are: debited = charged + refunded + held';
COMMENT ON COLUMN audit.batch_money.batch_id IS 'the batch';
COMMENT ON COLUMN audit.batch_money.account_id IS 'whose it is';
COMMENT ON COLUMN audit.batch_money.billing_account_id IS 'who pays for it';
COMMENT ON COLUMN audit.batch_money.reference IS 'the client''s own name for it';
COMMENT ON COLUMN audit.batch_money.status IS 'state of the batch';
COMMENT ON COLUMN audit.batch_money.charge_rule IS 'sent_only: what failed is refunded; full: only what was never sent is';
COMMENT ON COLUMN audit.batch_money.debited IS 'credits taken when it was created';
COMMENT ON COLUMN audit.batch_money.charged IS 'credits spent for good; set at settlement';
COMMENT ON COLUMN audit.batch_money.refunded IS 'credits given back';
COMMENT ON COLUMN audit.batch_money.held IS 'credits whose fate is still open';
COMMENT ON COLUMN audit.batch_money.settled_at IS 'when the money was settled';

CREATE VIEW audit.batch_timeline AS
SELECT e.batch_id, e.at, 'state' AS kind, e.event, e.from_status, e.to_status, NULL::bigint AS credits, e.actor, e.reason AS detail
FROM batch_event e
UNION ALL
SELECT l.batch_id, l.at, 'money', l.kind, NULL, NULL, l.amount, l.actor, l.cause
FROM ledger_entry l WHERE l.batch_id IS NOT NULL
UNION ALL
SELECT b.id, b.settled_at, 'settlement', 'settled', NULL, NULL, NULL, NULL, format('%s charged, %s refunded', b.charged, b.refunded)
FROM batch b WHERE b.settled_at IS NOT NULL
UNION ALL
SELECT c.batch_id, a.at, 'callback', c.event, NULL, NULL, NULL, NULL, coalesce('HTTP ' || a.status, a.error)
FROM callback c JOIN callback_attempt a ON a.callback_id = c.id;
COMMENT ON VIEW audit.batch_timeline IS 'what happened to a batch as a whole: its states, its money, its settlement, its callbacks; order by at';
COMMENT ON COLUMN audit.batch_timeline.batch_id IS 'the batch';
COMMENT ON COLUMN audit.batch_timeline.at IS 'when';
COMMENT ON COLUMN audit.batch_timeline.kind IS 'state, money, settlement or callback';
COMMENT ON COLUMN audit.batch_timeline.event IS 'what happened: a lifecycle event (docs/states.md), a ledger entry, or the callback''s event';
COMMENT ON COLUMN audit.batch_timeline.from_status IS 'state before';
COMMENT ON COLUMN audit.batch_timeline.to_status IS 'state after';
COMMENT ON COLUMN audit.batch_timeline.credits IS 'credits moved; negative: taken from the account';
COMMENT ON COLUMN audit.batch_timeline.actor IS 'who: key:<API key>, or the process';
COMMENT ON COLUMN audit.batch_timeline.detail IS 'why, or what the client''s server answered';

CREATE VIEW audit.stalled_batches AS
WITH open AS (
    SELECT b.*, s.active, s.max_inflight, h.wait_until, h.wait_reason,
        coalesce(t.pending, 0) AS n_pending, coalesce(t.pending_send, 0) AS n_pending_send,
        coalesce(t.unknown, 0) AS n_unknown, coalesce(t.sent, 0) AS n_sent,
        greatest(moved.at, begun.at) AS since
    FROM batch b
    JOIN service s ON s.id = b.service_id
    LEFT JOIN service_health h ON h.service_id = b.service_id
    LEFT JOIN LATERAL (
        SELECT sum(pending) AS pending, sum(pending_send) AS pending_send, sum(unknown) AS unknown, sum(sent) AS sent
        FROM batch_tally WHERE batch_id = b.id
    ) t ON true
    LEFT JOIN LATERAL (SELECT e.at FROM message_event e WHERE e.batch_id = b.id ORDER BY e.at DESC LIMIT 1) moved ON true
    LEFT JOIN LATERAL (SELECT max(e.at) AS at FROM batch_event e WHERE e.batch_id = b.id) begun ON true
    WHERE b.settled_at IS NULL AND b.status <> 'draft'
)
SELECT o.id AS batch_id, o.account_id, o.service_id, o.reference, o.status, o.n_pending AS pending, o.n_pending_send AS pending_send,
    o.n_unknown AS unknown, o.n_sent AS awaiting_receipt,
    CASE
        WHEN o.status = 'pending_moderation' THEN 'waits for moderation'
        WHEN o.status = 'paused' THEN 'paused' || coalesce(': ' || o.reason, '')
        WHEN o.n_pending = 0 AND o.n_pending_send > 0 THEN 'its last calls are in flight'
        WHEN o.n_pending = 0 AND o.n_unknown > 0 THEN 'the provider''s log is asked for unknown outcomes'
        WHEN o.n_pending = 0 AND o.n_sent > 0 THEN 'waits for receipts'
        WHEN o.n_pending = 0 THEN 'is about to be settled'
        WHEN o.status IN ('completed', 'cancelled', 'error') THEN 'ended: its rows are being withdrawn'
        WHEN o.expires_at <= now() THEN 'expired: its rows are being withdrawn'
        WHEN o.scheduled_at > now() THEN 'scheduled'
        WHEN NOT o.active THEN 'the service is stopped'
        WHEN o.wait_until > now() THEN 'the service waits: ' || coalesce(o.wait_reason, 'no reason given')
        WHEN NOT EXISTS (SELECT FROM worker w WHERE w.seen_at > now() - interval '1 minute') THEN 'no worker is running'
        WHEN o.blocked_by IS NOT NULL THEN o.blocked_by
        ELSE 'waits for its turn'
    END AS why,
    o.blocked_by,
    CASE WHEN o.status IN ('pending', 'processing') AND o.n_pending > 0
        THEN greatest(o.next_attempt_at, o.scheduled_at, o.wait_until) END AS next_attempt_at,
    o.since, now() - o.since AS for_how_long
FROM open o
WHERE o.since <= now() - interval '10 seconds';
COMMENT ON VIEW audit.stalled_batches IS 'batches that are not settled and of which nothing moved in the last ten seconds: why, and when they go on';
COMMENT ON COLUMN audit.stalled_batches.batch_id IS 'the batch';
COMMENT ON COLUMN audit.stalled_batches.account_id IS 'whose it is';
COMMENT ON COLUMN audit.stalled_batches.service_id IS 'what it is sent under';
COMMENT ON COLUMN audit.stalled_batches.reference IS 'the client''s own name for it';
COMMENT ON COLUMN audit.stalled_batches.status IS 'state of the batch';
COMMENT ON COLUMN audit.stalled_batches.pending IS 'messages still to be sent';
COMMENT ON COLUMN audit.stalled_batches.pending_send IS 'messages being sent now';
COMMENT ON COLUMN audit.stalled_batches.unknown IS 'messages whose outcome is looked up';
COMMENT ON COLUMN audit.stalled_batches.awaiting_receipt IS 'messages sent, without a receipt so far';
COMMENT ON COLUMN audit.stalled_batches.why IS 'what stands in the way, in words';
COMMENT ON COLUMN audit.stalled_batches.blocked_by IS 'what the last claim wrote on the batch, as the API shows it';
COMMENT ON COLUMN audit.stalled_batches.next_attempt_at IS 'when it is tried again; null: as soon as what stands in the way is gone';
COMMENT ON COLUMN audit.stalled_batches.since IS 'when it last changed';
COMMENT ON COLUMN audit.stalled_batches.for_how_long IS 'time since then';

-- Messages -------------------------------------------------------------------------------------------------------------------

CREATE VIEW audit.message_now AS
SELECT m.batch_id, m.seq, audit.masked(c.address) AS phone, m.status, m.code, m.sender_id, m.business_manager_id, m.claim_id, m.attempt,
    m.slot_at, m.sent_at, m.delivered_at, m.seen_at, m.failed_at, m.assumed_at, m.gave_up_at, m.unknown_at,
    CASE
        WHEN b.settled_at IS NULL THEN NULL
        WHEN m.charged IS NOT NULL THEN m.charged
        ELSE b.debited > 0 AND (m.status IN ('delivered', 'seen') OR (b.charge_rule = 'full' AND m.status = 'failed'))
    END AS charged
FROM message m
JOIN batch b ON b.id = m.batch_id
LEFT JOIN message_content c ON c.batch_id = m.batch_id AND c.seq = m.seq;
COMMENT ON VIEW audit.message_now IS 'each message as it is now; always name a batch';
COMMENT ON COLUMN audit.message_now.batch_id IS 'its batch';
COMMENT ON COLUMN audit.message_now.seq IS 'its place in the batch, from 1';
COMMENT ON COLUMN audit.message_now.phone IS 'the contact: last four digits; null when it was erased';
COMMENT ON COLUMN audit.message_now.status IS 'state of the message (docs/states.md)';
COMMENT ON COLUMN audit.message_now.code IS 'the provider''s or our code of the last refusal';
COMMENT ON COLUMN audit.message_now.sender_id IS 'sender of the last call';
COMMENT ON COLUMN audit.message_now.business_manager_id IS 'business manager of the last call';
COMMENT ON COLUMN audit.message_now.claim_id IS 'claim of the last call';
COMMENT ON COLUMN audit.message_now.attempt IS 'calls before it that certainly did not send';
COMMENT ON COLUMN audit.message_now.slot_at IS 'the instant that was granted to the last call';
COMMENT ON COLUMN audit.message_now.sent_at IS 'when the provider took it';
COMMENT ON COLUMN audit.message_now.delivered_at IS 'when it was delivered, by a receipt';
COMMENT ON COLUMN audit.message_now.seen_at IS 'when it was read';
COMMENT ON COLUMN audit.message_now.failed_at IS 'when it was refused or failed';
COMMENT ON COLUMN audit.message_now.assumed_at IS 'when it was taken for delivered for want of a receipt';
COMMENT ON COLUMN audit.message_now.gave_up_at IS 'when its unknown outcome was given up';
COMMENT ON COLUMN audit.message_now.unknown_at IS 'when its outcome first became unknown';
COMMENT ON COLUMN audit.message_now.charged IS 'whether it cost a credit; null: not settled';

CREATE VIEW audit.message_history AS
SELECT h.batch_id, h.seq, audit.masked(c.address) AS phone, h.at, h.event, h.from_status, h.to_status, h.actor, h.claim_id,
    k.worker_id, h.attempt, h.code
FROM (
    SELECT m.batch_id, m.seq, b.created_at AS at, 'created' AS event, NULL AS from_status, 'pending' AS to_status,
        (SELECT e.actor FROM batch_event e WHERE e.batch_id = b.id AND e.event = 'created' LIMIT 1) AS actor,
        NULL::bigint AS claim_id, 0::smallint AS attempt, NULL AS code
    FROM message m JOIN batch b ON b.id = m.batch_id
    UNION ALL
    SELECT e.batch_id, s.seq, e.at, e.event, e.from_status, e.to_status, e.actor, e.claim_id, e.attempt, e.code
    FROM message_event e CROSS JOIN LATERAL unnest(e.seqs) AS s (seq)
) h
LEFT JOIN claim k ON k.id = h.claim_id
LEFT JOIN message_content c ON c.batch_id = h.batch_id AND c.seq = h.seq;
COMMENT ON VIEW audit.message_history IS 'every change of every message since its creation, a row each; always name a batch';
COMMENT ON COLUMN audit.message_history.batch_id IS 'its batch';
COMMENT ON COLUMN audit.message_history.seq IS 'its place in the batch, from 1';
COMMENT ON COLUMN audit.message_history.phone IS 'the contact: last four digits; null when it was erased';
COMMENT ON COLUMN audit.message_history.at IS 'when it was written';
COMMENT ON COLUMN audit.message_history.event IS 'lifecycle event (docs/states.md)';
COMMENT ON COLUMN audit.message_history.from_status IS 'state before; null: it began to exist';
COMMENT ON COLUMN audit.message_history.to_status IS 'state after';
COMMENT ON COLUMN audit.message_history.actor IS 'who wrote it: key:<API key>, or the process';
COMMENT ON COLUMN audit.message_history.claim_id IS 'its last claim at that time';
COMMENT ON COLUMN audit.message_history.worker_id IS 'the worker that made that claim';
COMMENT ON COLUMN audit.message_history.attempt IS 'calls so far that certainly did not send';
COMMENT ON COLUMN audit.message_history.code IS 'the provider''s or our code, where this change brought one';

CREATE VIEW audit.unknown_messages AS
SELECT m.batch_id, m.seq, b.account_id, b.service_id, audit.masked(c.address) AS phone, m.code, m.sender_id, m.claim_id, k.worker_id,
    m.unknown_at, now() - m.unknown_at AS age, u.look_at, u.absent AS times_absent, u.duplicate
FROM message_unknown u
JOIN message m ON m.batch_id = u.batch_id AND m.seq = u.seq
JOIN batch b ON b.id = u.batch_id
LEFT JOIN message_content c ON c.batch_id = u.batch_id AND c.seq = u.seq
LEFT JOIN claim k ON k.id = m.claim_id
WHERE m.status = 'unknown';
COMMENT ON VIEW audit.unknown_messages IS 'messages that may or may not have been sent, and the state of looking them up';
COMMENT ON COLUMN audit.unknown_messages.batch_id IS 'its batch';
COMMENT ON COLUMN audit.unknown_messages.seq IS 'its place in the batch';
COMMENT ON COLUMN audit.unknown_messages.account_id IS 'whose it is';
COMMENT ON COLUMN audit.unknown_messages.service_id IS 'what it was sent under';
COMMENT ON COLUMN audit.unknown_messages.phone IS 'the contact: last four digits';
COMMENT ON COLUMN audit.unknown_messages.code IS 'what made it unknown';
COMMENT ON COLUMN audit.unknown_messages.sender_id IS 'sender of the call';
COMMENT ON COLUMN audit.unknown_messages.claim_id IS 'claim of the call';
COMMENT ON COLUMN audit.unknown_messages.worker_id IS 'worker that made the call';
COMMENT ON COLUMN audit.unknown_messages.unknown_at IS 'since when';
COMMENT ON COLUMN audit.unknown_messages.age IS 'for how long';
COMMENT ON COLUMN audit.unknown_messages.look_at IS 'when the provider''s log is asked next';
COMMENT ON COLUMN audit.unknown_messages.times_absent IS 'how often the log did not have it so far';
COMMENT ON COLUMN audit.unknown_messages.duplicate IS 'the provider knew its id already: it is never taken for absent';

-- Capacity and pace ----------------------------------------------------------------------------------------------------------

CREATE VIEW audit.capacity_now AS
SELECT o.kind, o.owner, o.business_manager_id, o.daily_limit, o.limit_source, coalesce(u.used, 0) AS used, coalesce(m.held, 0) AS held,
    CASE WHEN o.daily_limit IS NOT NULL THEN greatest(0, o.daily_limit - coalesce(u.used, 0) - coalesce(m.held, 0)) END AS free,
    next.bucket_at + audit.span('window_s') + audit.span('bucket_s') AS next_free_at, next.used AS next_free_units
FROM (
    SELECT 'bm' AS kind, id AS owner, id AS business_manager_id, coalesce(daily_limit_override, daily_limit_synced) AS daily_limit,
        CASE
            WHEN daily_limit_override IS NOT NULL THEN 'operator'
            WHEN daily_limit_synced IS NOT NULL THEN 'provider'
            ELSE 'none'
        END AS limit_source
    FROM business_manager
    UNION ALL
    SELECT 'sender', id, business_manager_id, CASE WHEN NOT use_waba_limit THEN daily_limit END,
        CASE WHEN use_waba_limit THEN 'business manager' WHEN daily_limit IS NOT NULL THEN 'operator' ELSE 'none' END
    FROM sender
) o
LEFT JOIN capacity_meter m ON m.kind = o.kind AND m.owner = o.owner
LEFT JOIN LATERAL (
    SELECT sum(c.used)::integer AS used FROM capacity_bucket c
    WHERE c.kind = o.kind AND c.owner = o.owner AND c.bucket_at > now() - audit.span('window_s') - audit.span('bucket_s')
) u ON true
LEFT JOIN LATERAL (
    SELECT c.bucket_at, c.used FROM capacity_bucket c
    WHERE c.kind = o.kind AND c.owner = o.owner AND c.used > 0
        AND c.bucket_at > now() - audit.span('window_s') - audit.span('bucket_s')
    ORDER BY c.bucket_at LIMIT 1
) next ON true;
COMMENT ON VIEW audit.capacity_now IS 'the daily limits: what is used, held and free on each business manager and sender';
COMMENT ON COLUMN audit.capacity_now.kind IS 'bm or sender';
COMMENT ON COLUMN audit.capacity_now.owner IS 'id of the business manager or sender';
COMMENT ON COLUMN audit.capacity_now.business_manager_id IS 'the business manager that it belongs to';
COMMENT ON COLUMN audit.capacity_now.daily_limit IS 'messages a window; null: none of its own';
COMMENT ON COLUMN audit.capacity_now.limit_source IS 'who set it: operator, provider, none; business manager: only that one''s limit counts';
COMMENT ON COLUMN audit.capacity_now.used IS 'messages inside the window, counted until their whole bucket has left it';
COMMENT ON COLUMN audit.capacity_now.held IS 'reserved by batches and not yet used; senders hold nothing';
COMMENT ON COLUMN audit.capacity_now.free IS 'what is left to anybody; null: no limit';
COMMENT ON COLUMN audit.capacity_now.next_free_at IS 'when the next units leave the window';
COMMENT ON COLUMN audit.capacity_now.next_free_units IS 'how many leave it then';

CREATE VIEW audit.over_limit AS
SELECT kind, owner, daily_limit, used, held, used + held - daily_limit AS over
FROM audit.capacity_now WHERE used + held > daily_limit;
COMMENT ON VIEW audit.over_limit IS 'meters beyond their limit: legal after a limit was lowered; nothing more is sent there until they fit';
COMMENT ON COLUMN audit.over_limit.kind IS 'bm or sender';
COMMENT ON COLUMN audit.over_limit.owner IS 'id of the business manager or sender';
COMMENT ON COLUMN audit.over_limit.daily_limit IS 'messages a window';
COMMENT ON COLUMN audit.over_limit.used IS 'messages inside the window';
COMMENT ON COLUMN audit.over_limit.held IS 'reserved by batches';
COMMENT ON COLUMN audit.over_limit.over IS 'units beyond the limit';

CREATE VIEW audit.pacing_now AS
SELECT o.kind, o.owner, o.rate, o.per, coalesce(c.started, 0) AS started, coalesce(c.planned, 0) AS planned,
    round(100.0 * coalesce(c.started, 0) / o.rate) AS used_percent, c.last_slot_at, h.wait_until, h.wait_reason
FROM (
    SELECT 'service' AS kind, id AS owner, messages_per_second AS rate, interval '1 second' AS per FROM service
    UNION ALL SELECT 'bm', id, messages_per_minute, interval '1 minute' FROM business_manager
    UNION ALL SELECT 'sender', id, messages_per_second, interval '1 second' FROM sender
) o
LEFT JOIN pace_meter p ON p.kind = o.kind AND p.owner = o.owner
LEFT JOIN LATERAL (
    SELECT sum(g.n) FILTER (WHERE g.at <= now() AND g.at > now() - o.per) AS started,
        sum(g.n) FILTER (WHERE g.at > now()) AS planned, max(g.at) AS last_slot_at
    FROM (
        SELECT 'epoch'::timestamptz + slot.us * interval '1 microsecond' AS at, slot.n
        FROM unnest(p.slots_us, p.counts) AS slot (us, n)
    ) g
) c ON true
LEFT JOIN service_health h ON o.kind = 'service' AND h.service_id = o.owner AND h.wait_until > now();
COMMENT ON VIEW audit.pacing_now IS 'the pace of each service, business manager and sender at this moment; from 100 calls a window on to a hundredth of it';
COMMENT ON COLUMN audit.pacing_now.kind IS 'service, bm or sender';
COMMENT ON COLUMN audit.pacing_now.owner IS 'its id';
COMMENT ON COLUMN audit.pacing_now.rate IS 'calls allowed; null: not paced';
COMMENT ON COLUMN audit.pacing_now.per IS 'in any interval of this length';
COMMENT ON COLUMN audit.pacing_now.started IS 'slots granted in the last such interval';
COMMENT ON COLUMN audit.pacing_now.planned IS 'slots granted ahead of now';
COMMENT ON COLUMN audit.pacing_now.used_percent IS 'started, of the rate';
COMMENT ON COLUMN audit.pacing_now.last_slot_at IS 'the last slot granted';
COMMENT ON COLUMN audit.pacing_now.wait_until IS 'the service sends nothing until then';
COMMENT ON COLUMN audit.pacing_now.wait_reason IS 'because of this: throttled, blackout, account_refused';

-- Money ----------------------------------------------------------------------------------------------------------------------

CREATE VIEW audit.ledger_entries AS
SELECT l.account_id, l.id AS entry_id, l.at, l.kind, l.amount, l.balance_after, l.cause, l.actor, l.batch_id, l.seq,
    b.account_id AS batch_account_id, b.reference, b.status AS batch_status
FROM ledger_entry l LEFT JOIN batch b ON b.id = l.batch_id;
COMMENT ON VIEW audit.ledger_entries IS 'every credit that ever moved';
COMMENT ON COLUMN audit.ledger_entries.account_id IS 'the paying account';
COMMENT ON COLUMN audit.ledger_entries.entry_id IS 'rising with time within an account';
COMMENT ON COLUMN audit.ledger_entries.at IS 'when';
COMMENT ON COLUMN audit.ledger_entries.kind IS 'grant, debit or refund';
COMMENT ON COLUMN audit.ledger_entries.amount IS 'credits; negative: taken from the account';
COMMENT ON COLUMN audit.ledger_entries.balance_after IS 'the account''s balance after it';
COMMENT ON COLUMN audit.ledger_entries.cause IS 'what for';
COMMENT ON COLUMN audit.ledger_entries.actor IS 'who: key:<API key>, or the process';
COMMENT ON COLUMN audit.ledger_entries.batch_id IS 'the batch that it pays for';
COMMENT ON COLUMN audit.ledger_entries.seq IS 'set for the late settlement of one message';
COMMENT ON COLUMN audit.ledger_entries.batch_account_id IS 'whose batch it is: several accounts may share a payer';
COMMENT ON COLUMN audit.ledger_entries.reference IS 'the client''s own name for the batch';
COMMENT ON COLUMN audit.ledger_entries.batch_status IS 'state of the batch now';

CREATE VIEW audit.ledger_balance AS
SELECT a.id AS account_id, coalesce(a.bills_to, a.id) AS billing_account_id, a.balance, coalesce(l.granted, 0) AS granted,
    coalesce(l.debited, 0) AS debited, coalesce(l.refunded, 0) AS refunded, coalesce(b.charged, 0) AS charged, coalesce(b.held, 0) AS held,
    a.balance - coalesce(l.total, 0) AS difference, l.last_entry_at
FROM account a
LEFT JOIN LATERAL (
    SELECT sum(amount) FILTER (WHERE kind = 'grant') AS granted, -sum(amount) FILTER (WHERE kind = 'debit') AS debited,
        sum(amount) FILTER (WHERE kind = 'refund') AS refunded, sum(amount) AS total, max(at) AS last_entry_at
    FROM ledger_entry WHERE account_id = a.id
) l ON true
LEFT JOIN (
    SELECT billing_account_id, sum(charged) AS charged, sum(debited - charged - refunded) AS held FROM batch GROUP BY billing_account_id
) b ON b.billing_account_id = a.id;
COMMENT ON VIEW audit.ledger_balance IS 'the balance of each account and what it is made of: granted - debited + refunded; debited = charged + refunded + held';
COMMENT ON COLUMN audit.ledger_balance.account_id IS 'the account';
COMMENT ON COLUMN audit.ledger_balance.billing_account_id IS 'who pays for its batches; another account: look at that one''s row';
COMMENT ON COLUMN audit.ledger_balance.balance IS 'credits that it may spend';
COMMENT ON COLUMN audit.ledger_balance.granted IS 'credits ever granted';
COMMENT ON COLUMN audit.ledger_balance.debited IS 'credits taken for batches';
COMMENT ON COLUMN audit.ledger_balance.refunded IS 'credits given back';
COMMENT ON COLUMN audit.ledger_balance.charged IS 'credits spent for good';
COMMENT ON COLUMN audit.ledger_balance.held IS 'credits of batches that are not settled';
COMMENT ON COLUMN audit.ledger_balance.difference IS 'balance less the sum of the entries: always 0';
COMMENT ON COLUMN audit.ledger_balance.last_entry_at IS 'when it last changed';

-- Receipts, callbacks, keys --------------------------------------------------------------------------------------------------

CREATE VIEW audit.orphan_receipts AS
SELECT r.received_at, r.payload_id, p.service_id, r.result, r.kind, r.at, r.code, r.batch_id, r.seq, r.detail
FROM receipt r
LEFT JOIN receipt_payload p ON p.received_at = r.received_at AND p.id = r.payload_id
WHERE r.result IN ('orphan', 'malformed', 'late');
COMMENT ON VIEW audit.orphan_receipts IS 'receipts that moved nothing although they said something: of messages that we do not know, unreadable, or too late';
COMMENT ON COLUMN audit.orphan_receipts.received_at IS 'when its payload came';
COMMENT ON COLUMN audit.orphan_receipts.payload_id IS 'the payload, kept as it came in receipt_payload';
COMMENT ON COLUMN audit.orphan_receipts.service_id IS 'whose webhook it came to';
COMMENT ON COLUMN audit.orphan_receipts.result IS 'orphan: no such message, or one never claimed; malformed: not readable; late: the message was settled as unsent';
COMMENT ON COLUMN audit.orphan_receipts.kind IS 'what it said: sent, delivered, seen, failed';
COMMENT ON COLUMN audit.orphan_receipts.at IS 'when that was, by the provider';
COMMENT ON COLUMN audit.orphan_receipts.code IS 'the provider''s code of a failure';
COMMENT ON COLUMN audit.orphan_receipts.batch_id IS 'the batch in its id, if the id is of our making';
COMMENT ON COLUMN audit.orphan_receipts.seq IS 'the message in its id';
COMMENT ON COLUMN audit.orphan_receipts.detail IS 'the foreign id, or what is wrong with it';

CREATE VIEW audit.callback_log AS
SELECT c.batch_id, b.account_id, c.id AS callback_id, c.event,
    regexp_replace(split_part(split_part(c.url, '?', 1), '#', 1), '//[^/@]*@', '//***@') AS url,
    CASE WHEN c.delivered_at IS NOT NULL THEN 'delivered' WHEN c.gave_up_at IS NOT NULL THEN 'given up' ELSE 'waiting' END AS state,
    c.created_at, a.at AS attempt_at, a.status AS http_status, a.error,
    CASE WHEN c.delivered_at IS NULL AND c.gave_up_at IS NULL THEN c.next_attempt_at END AS next_attempt_at
FROM callback c
JOIN batch b ON b.id = c.batch_id
LEFT JOIN callback_attempt a ON a.callback_id = c.id;
COMMENT ON VIEW audit.callback_log IS 'our word to the clients: each attempt of each callback';
COMMENT ON COLUMN audit.callback_log.batch_id IS 'the batch that it is about';
COMMENT ON COLUMN audit.callback_log.account_id IS 'whose it is';
COMMENT ON COLUMN audit.callback_log.callback_id IS 'the callback; its webhook-id at the client';
COMMENT ON COLUMN audit.callback_log.event IS 'what it tells';
COMMENT ON COLUMN audit.callback_log.url IS 'where to, without credentials and query';
COMMENT ON COLUMN audit.callback_log.state IS 'delivered, given up, or waiting';
COMMENT ON COLUMN audit.callback_log.created_at IS 'when it was queued';
COMMENT ON COLUMN audit.callback_log.attempt_at IS 'when this attempt ended; null: none yet';
COMMENT ON COLUMN audit.callback_log.http_status IS 'what the client''s server answered; null: nothing';
COMMENT ON COLUMN audit.callback_log.error IS 'why there was no answer';
COMMENT ON COLUMN audit.callback_log.next_attempt_at IS 'when it is tried again';

CREATE VIEW audit.key_usage AS
SELECT k.id AS key_id, k.account_id, k.name, k.scopes,
    CASE WHEN k.revoked_at IS NOT NULL THEN 'revoked' WHEN k.expires_at <= now() THEN 'expired' ELSE 'valid' END AS state,
    k.created_at, k.expires_at, k.revoked_at, k.last_used_at, coalesce(e.batches, 0) AS batches, coalesce(e.actions, 0) AS actions,
    e.last_action_at
FROM api_key k
LEFT JOIN (
    SELECT actor, count(*) FILTER (WHERE event = 'created') AS batches, count(*) AS actions, max(at) AS last_action_at
    FROM batch_event WHERE actor LIKE 'key:%' GROUP BY actor
) e ON e.actor = 'key:' || k.id;
COMMENT ON VIEW audit.key_usage IS 'the API keys and what was done with them';
COMMENT ON COLUMN audit.key_usage.key_id IS 'public part of the key';
COMMENT ON COLUMN audit.key_usage.account_id IS 'whose it is';
COMMENT ON COLUMN audit.key_usage.name IS 'what it was called when it was made';
COMMENT ON COLUMN audit.key_usage.scopes IS 'what it allows';
COMMENT ON COLUMN audit.key_usage.state IS 'valid, expired or revoked';
COMMENT ON COLUMN audit.key_usage.created_at IS 'when it was made';
COMMENT ON COLUMN audit.key_usage.expires_at IS 'when it ends; null: never';
COMMENT ON COLUMN audit.key_usage.revoked_at IS 'when it was revoked';
COMMENT ON COLUMN audit.key_usage.last_used_at IS 'its last request, to the minute or so';
COMMENT ON COLUMN audit.key_usage.batches IS 'batches created with it';
COMMENT ON COLUMN audit.key_usage.actions IS 'all changes of batches made with it';
COMMENT ON COLUMN audit.key_usage.last_action_at IS 'the last such change';
