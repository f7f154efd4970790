-- Carteiro's own schema. The tables equal the metadata in carteiro.storage.tables (tests/storage/test_schema.py).

CREATE TABLE account (
    id TEXT NOT NULL,
    bills_to TEXT,
    balance BIGINT DEFAULT '0' NOT NULL,
    callback_secret TEXT NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT account_pkey PRIMARY KEY (id),
    CONSTRAINT account_balance_check CHECK (balance >= 0),
    CONSTRAINT account_bills_to_fkey FOREIGN KEY(bills_to) REFERENCES account (id)
);
COMMENT ON COLUMN account.bills_to IS 'another account that pays; null: itself';
COMMENT ON COLUMN account.balance IS 'credits';
COMMENT ON COLUMN account.callback_secret IS 'Standard Webhooks secret, whsec_...';

CREATE TABLE batch_event (
    id BIGINT GENERATED ALWAYS AS IDENTITY,
    at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    batch_id UUID NOT NULL,
    event TEXT NOT NULL,
    from_status TEXT,
    to_status TEXT NOT NULL,
    actor TEXT NOT NULL,
    reason TEXT,
    CONSTRAINT batch_event_pkey PRIMARY KEY (id)
);
CREATE INDEX batch_event_batch_id_idx ON batch_event (batch_id);
COMMENT ON TABLE batch_event IS 'append-only: every change of a batch';

CREATE TABLE batch_signature (
    account_id TEXT NOT NULL,
    signature BYTEA NOT NULL,
    batch_id UUID NOT NULL,
    expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT batch_signature_pkey PRIMARY KEY (account_id, signature)
);
COMMENT ON TABLE batch_signature IS 'one row per (account, signature): an equal request inside the time gets the existing batch';

CREATE TABLE batch_tally (
    batch_id UUID NOT NULL,
    pending INTEGER DEFAULT '0' NOT NULL,
    pending_send INTEGER DEFAULT '0' NOT NULL,
    unknown INTEGER DEFAULT '0' NOT NULL,
    sent INTEGER DEFAULT '0' NOT NULL,
    delivered INTEGER DEFAULT '0' NOT NULL,
    seen INTEGER DEFAULT '0' NOT NULL,
    failed INTEGER DEFAULT '0' NOT NULL,
    unsent INTEGER DEFAULT '0' NOT NULL
);
CREATE INDEX batch_tally_batch_id_idx ON batch_tally (batch_id);
COMMENT ON TABLE batch_tally IS 'deltas of a batch''s counts (pending, pending_send, unknown, sent, delivered, seen, failed, unsent); their sum is exact in any snapshot, folded by the sweep';

CREATE TABLE business_manager (
    id TEXT NOT NULL,
    daily_limit_override INTEGER,
    daily_limit_synced INTEGER,
    messages_per_minute INTEGER,
    active BOOLEAN DEFAULT 'true' NOT NULL,
    CONSTRAINT business_manager_pkey PRIMARY KEY (id),
    CONSTRAINT business_manager_messages_per_minute_check CHECK (messages_per_minute > 0),
    CONSTRAINT business_manager_daily_limit_override_check CHECK (daily_limit_override >= 0)
);
COMMENT ON TABLE business_manager IS 'a Meta business portfolio: owns the 24 h limit';
COMMENT ON COLUMN business_manager.daily_limit_override IS 'the operator''s; wins over the synced one';
COMMENT ON COLUMN business_manager.daily_limit_synced IS 'the provider''s tier';
COMMENT ON COLUMN business_manager.messages_per_minute IS 'null: not paced';

CREATE TABLE capacity_bucket (
    kind TEXT NOT NULL,
    owner TEXT NOT NULL,
    bucket_at TIMESTAMP WITH TIME ZONE NOT NULL,
    used INTEGER NOT NULL,
    CONSTRAINT capacity_bucket_pkey PRIMARY KEY (kind, owner, bucket_at),
    CONSTRAINT capacity_bucket_used_check CHECK (used >= 0)
)
 WITH (fillfactor = 50);
COMMENT ON TABLE capacity_bucket IS 'units of a meter by the latest instant at which their calls may be accepted';

CREATE TABLE capacity_hold (
    batch_id UUID NOT NULL,
    business_manager_id TEXT NOT NULL,
    held INTEGER NOT NULL,
    CONSTRAINT capacity_hold_pkey PRIMARY KEY (batch_id, business_manager_id),
    CONSTRAINT capacity_hold_held_check CHECK (held >= 0)
)
 WITH (fillfactor = 50);
CREATE INDEX capacity_hold_business_manager_id_idx ON capacity_hold (business_manager_id);
COMMENT ON TABLE capacity_hold IS 'capacity reserved by a batch on one BM and not yet used';

CREATE TABLE capacity_meter (
    kind TEXT NOT NULL,
    owner TEXT NOT NULL,
    used INTEGER DEFAULT '0' NOT NULL,
    held INTEGER DEFAULT '0' NOT NULL,
    CONSTRAINT capacity_meter_pkey PRIMARY KEY (kind, owner),
    CONSTRAINT capacity_meter_kind_check CHECK (kind IN ('bm', 'sender')),
    CONSTRAINT capacity_meter_counts_check CHECK (used >= 0 AND held >= 0)
)
 WITH (fillfactor = 50);
COMMENT ON COLUMN capacity_meter.owner IS 'business manager or sender';
COMMENT ON COLUMN capacity_meter.used IS 'units charged inside the window';
COMMENT ON COLUMN capacity_meter.held IS 'sum of the holds; senders hold nothing';

CREATE TABLE claim (
    id BIGINT GENERATED ALWAYS AS IDENTITY,
    batch_id UUID NOT NULL,
    service_id TEXT NOT NULL,
    worker_id TEXT NOT NULL,
    seqs INTEGER[] NOT NULL,
    size INTEGER NOT NULL,
    open INTEGER NOT NULL,
    flushes SMALLINT DEFAULT '0' NOT NULL,
    claimed_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    last_slot_at TIMESTAMP WITH TIME ZONE NOT NULL,
    lease_until TIMESTAMP WITH TIME ZONE NOT NULL,
    closed_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT claim_pkey PRIMARY KEY (id),
    CONSTRAINT claim_open_check CHECK (open >= 0 AND open <= size)
)
 WITH (fillfactor = 70);
CREATE INDEX claim_batch_id_idx ON claim (batch_id);
CREATE INDEX claim_open_idx ON claim (service_id) WHERE closed_at IS NULL;
COMMENT ON TABLE claim IS 'a slice taken by one worker: lease and fence of its rows';
COMMENT ON COLUMN claim.open IS 'rows whose outcome is not recorded';
COMMENT ON COLUMN claim.flushes IS 'records made: what makes a repeated one harmless';

CREATE TABLE idempotency_key (
    account_id TEXT NOT NULL,
    key TEXT NOT NULL,
    request_hash BYTEA NOT NULL,
    batch_id UUID NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT idempotency_key_pkey PRIMARY KEY (account_id, key)
);

CREATE TABLE lead (
    name TEXT NOT NULL,
    holder TEXT NOT NULL,
    until TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT lead_pkey PRIMARY KEY (name)
);
COMMENT ON TABLE lead IS 'what one process at a time does; two at once would only do it twice';

CREATE TABLE lifecycle_edge (
    machine TEXT NOT NULL,
    event TEXT NOT NULL,
    source TEXT NOT NULL,
    target TEXT NOT NULL,
    CONSTRAINT lifecycle_edge_pkey PRIMARY KEY (machine, event, source)
);
COMMENT ON TABLE lifecycle_edge IS 'domain/lifecycle.py, as rows: what the guarded UPDATEs join';

CREATE TABLE message (
    batch_id UUID NOT NULL,
    seq INTEGER NOT NULL,
    phone_key BIGINT NOT NULL,
    status TEXT DEFAULT 'pending' NOT NULL,
    event TEXT DEFAULT 'created' NOT NULL,
    attempt SMALLINT DEFAULT '0' NOT NULL,
    claim_id BIGINT,
    sender_id TEXT,
    business_manager_id TEXT,
    slot_at TIMESTAMP WITH TIME ZONE,
    bucket_at TIMESTAMP WITH TIME ZONE,
    unit_returned BOOLEAN DEFAULT 'false' NOT NULL,
    provider_id TEXT,
    code TEXT,
    sent_at TIMESTAMP WITH TIME ZONE,
    delivered_at TIMESTAMP WITH TIME ZONE,
    seen_at TIMESTAMP WITH TIME ZONE,
    failed_at TIMESTAMP WITH TIME ZONE,
    assumed_at TIMESTAMP WITH TIME ZONE,
    gave_up_at TIMESTAMP WITH TIME ZONE,
    unknown_at TIMESTAMP WITH TIME ZONE,
    charged BOOLEAN,
    CONSTRAINT message_pkey PRIMARY KEY (batch_id, seq),
    CONSTRAINT message_phone_key_batch_id_key UNIQUE (phone_key, batch_id),
    CONSTRAINT message_status_check CHECK (status IN ('pending', 'pending_send', 'unknown', 'sent', 'delivered', 'seen', 'failed', 'unsent'))
)
 PARTITION BY RANGE (batch_id);
COMMENT ON TABLE message IS 'no index on status and none with it in its predicate: state changes stay HOT';
COMMENT ON COLUMN message.seq IS 'from 1, dense';
COMMENT ON COLUMN message.phone_key IS 'phone identity, domain/phones.py';
COMMENT ON COLUMN message.event IS 'the lifecycle event that last moved it';
COMMENT ON COLUMN message.attempt IS 'calls that certainly did not send';
COMMENT ON COLUMN message.claim_id IS 'the last claim: the fence';
COMMENT ON COLUMN message.unit_returned IS 'its unit of capacity was given back: late evidence that it went charges it again';
COMMENT ON COLUMN message.provider_id IS 'the provider''s own id, where it is not ours';
COMMENT ON COLUMN message.code IS 'the provider''s or our code of the last refusal';
COMMENT ON COLUMN message.charged IS 'frozen when the row changes after its batch was settled; null: as its state says';

CREATE TABLE message_content (
    batch_id UUID NOT NULL,
    seq INTEGER NOT NULL,
    address TEXT NOT NULL,
    placeholders TEXT[] NOT NULL,
    extra JSONB,
    CONSTRAINT message_content_pkey PRIMARY KEY (batch_id, seq)
)
 PARTITION BY RANGE (batch_id);
COMMENT ON COLUMN message_content.address IS 'E.164 digits, as sent';
COMMENT ON COLUMN message_content.extra IS 'header media and button parameters of this contact';

CREATE TABLE message_event (
    at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    batch_id UUID NOT NULL,
    event TEXT NOT NULL,
    from_status TEXT NOT NULL,
    to_status TEXT NOT NULL,
    actor TEXT NOT NULL,
    claim_id BIGINT,
    attempt SMALLINT NOT NULL,
    code TEXT,
    seqs INTEGER[] NOT NULL
)
 PARTITION BY RANGE (at);
CREATE INDEX message_event_batch_id_at_idx ON message_event (batch_id, at);
COMMENT ON TABLE message_event IS 'append-only: every change of a message; audit.message_history gives it a row a message';
COMMENT ON COLUMN message_event.seqs IS 'the messages that moved alike in one statement';

CREATE TABLE message_return (
    batch_id UUID NOT NULL,
    seq INTEGER NOT NULL,
    available_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT message_return_pkey PRIMARY KEY (batch_id, seq)
);
COMMENT ON TABLE message_return IS 'rows behind their batch''s cursor that are pending again: deleted on claim';

CREATE TABLE message_unknown (
    batch_id UUID NOT NULL,
    seq INTEGER NOT NULL,
    since_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    look_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    absent SMALLINT DEFAULT '0' NOT NULL,
    duplicate BOOLEAN DEFAULT 'false' NOT NULL,
    CONSTRAINT message_unknown_pkey PRIMARY KEY (batch_id, seq)
);
CREATE INDEX message_unknown_look_at_idx ON message_unknown (look_at);
COMMENT ON TABLE message_unknown IS 'rows whose outcome is to be looked up';
COMMENT ON COLUMN message_unknown.absent IS 'times that the log did not have it';
COMMENT ON COLUMN message_unknown.duplicate IS 'its id was known there: never absent';

CREATE TABLE pace_meter (
    kind TEXT NOT NULL,
    owner TEXT NOT NULL,
    slots_us BIGINT[] DEFAULT '{}' NOT NULL,
    counts INTEGER[] DEFAULT '{}' NOT NULL,
    CONSTRAINT pace_meter_pkey PRIMARY KEY (kind, owner),
    CONSTRAINT pace_meter_kind_check CHECK (kind IN ('service', 'bm', 'sender'))
)
 WITH (fillfactor = 50);
COMMENT ON COLUMN pace_meter.slots_us IS 'granted instants, epoch microseconds';
COMMENT ON COLUMN pace_meter.counts IS 'calls granted at each';

CREATE TABLE receipt (
    received_at TIMESTAMP WITH TIME ZONE NOT NULL,
    payload_id BIGINT NOT NULL,
    batch_id UUID,
    seq INTEGER,
    kind TEXT NOT NULL,
    at TIMESTAMP WITH TIME ZONE,
    code TEXT,
    result TEXT NOT NULL,
    detail TEXT,
    CONSTRAINT receipt_result_check CHECK (result IN ('applied', 'repeated', 'orphan', 'malformed', 'ignored', 'late'))
)
 PARTITION BY RANGE (received_at);
CREATE INDEX receipt_batch_id_seq_idx ON receipt (batch_id, seq);
COMMENT ON TABLE receipt IS 'append-only: each item of a payload and what became of it';

CREATE TABLE receipt_inbox (
    payload_id BIGINT NOT NULL,
    received_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT receipt_inbox_pkey PRIMARY KEY (payload_id)
);
COMMENT ON TABLE receipt_inbox IS 'payloads not yet merged: deleted by the applier';

CREATE TABLE receipt_payload (
    id BIGINT GENERATED ALWAYS AS IDENTITY,
    received_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    service_id TEXT NOT NULL,
    body BYTEA NOT NULL,
    CONSTRAINT receipt_payload_pkey PRIMARY KEY (received_at, id)
)
 PARTITION BY RANGE (received_at);
COMMENT ON COLUMN receipt_payload.body IS 'as it came';

CREATE TABLE template (
    id BIGINT GENERATED ALWAYS AS IDENTITY,
    name TEXT NOT NULL,
    language TEXT DEFAULT 'pt_BR' NOT NULL,
    category TEXT NOT NULL,
    content JSONB NOT NULL,
    signature BYTEA NOT NULL,
    CONSTRAINT template_pkey PRIMARY KEY (id),
    CONSTRAINT template_name_language_key UNIQUE (name, language),
    CONSTRAINT template_category_check CHECK (category IN ('UTILITY', 'MARKETING', 'AUTHENTICATION'))
);
COMMENT ON COLUMN template.content IS 'the structure as domain/templates.py freezes it';

CREATE TABLE worker (
    id TEXT NOT NULL,
    started_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    seen_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT worker_pkey PRIMARY KEY (id)
);

CREATE TABLE api_key (
    id TEXT NOT NULL,
    account_id TEXT NOT NULL,
    name TEXT DEFAULT '' NOT NULL,
    secret_hash BYTEA NOT NULL,
    scopes TEXT[] NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    expires_at TIMESTAMP WITH TIME ZONE,
    revoked_at TIMESTAMP WITH TIME ZONE,
    last_used_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT api_key_pkey PRIMARY KEY (id),
    CONSTRAINT api_key_account_id_fkey FOREIGN KEY(account_id) REFERENCES account (id)
);
COMMENT ON COLUMN api_key.secret_hash IS 'SHA-256 of the 256-bit secret';

CREATE TABLE ledger_entry (
    id BIGINT GENERATED ALWAYS AS IDENTITY,
    account_id TEXT NOT NULL,
    batch_id UUID,
    seq INTEGER,
    kind TEXT NOT NULL,
    amount BIGINT NOT NULL,
    balance_after BIGINT NOT NULL,
    cause TEXT NOT NULL,
    actor TEXT NOT NULL,
    at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT ledger_entry_pkey PRIMARY KEY (id),
    CONSTRAINT ledger_entry_kind_check CHECK (kind IN ('grant', 'debit', 'refund')),
    CONSTRAINT ledger_entry_account_id_fkey FOREIGN KEY(account_id) REFERENCES account (id)
);
CREATE INDEX ledger_entry_account_id_id_idx ON ledger_entry (account_id, id);
CREATE UNIQUE INDEX ledger_entry_once_per_batch_key ON ledger_entry (batch_id, cause) WHERE seq IS NULL;
CREATE UNIQUE INDEX ledger_entry_once_per_message_key ON ledger_entry (batch_id, seq, cause) WHERE seq IS NOT NULL;
COMMENT ON TABLE ledger_entry IS 'append-only credit entries behind account.balance';
COMMENT ON COLUMN ledger_entry.account_id IS 'the billing account';
COMMENT ON COLUMN ledger_entry.seq IS 'set only for the late settlement of one message';
COMMENT ON COLUMN ledger_entry.amount IS 'credits; negative: taken from the account';

CREATE TABLE sender (
    id TEXT NOT NULL,
    business_manager_id TEXT NOT NULL,
    quality TEXT DEFAULT 'UNKNOWN' NOT NULL,
    status TEXT DEFAULT 'ACTIVE' NOT NULL,
    daily_limit INTEGER,
    use_waba_limit BOOLEAN DEFAULT 'false' NOT NULL,
    messages_per_second INTEGER,
    active BOOLEAN DEFAULT 'true' NOT NULL,
    stopped_until TIMESTAMP WITH TIME ZONE,
    CONSTRAINT sender_pkey PRIMARY KEY (id),
    CONSTRAINT sender_quality_check CHECK (quality IN ('HIGH', 'MEDIUM', 'LOW', 'UNKNOWN')),
    CONSTRAINT sender_daily_limit_check CHECK (daily_limit >= 0),
    CONSTRAINT sender_messages_per_second_check CHECK (messages_per_second > 0),
    CONSTRAINT sender_business_manager_id_fkey FOREIGN KEY(business_manager_id) REFERENCES business_manager (id)
);
CREATE INDEX sender_business_manager_id_idx ON sender (business_manager_id);
COMMENT ON COLUMN sender.id IS 'E.164 digits';
COMMENT ON COLUMN sender.daily_limit IS 'null: no limit of its own';
COMMENT ON COLUMN sender.use_waba_limit IS 'only the BM''s limit counts';
COMMENT ON COLUMN sender.messages_per_second IS 'null: not paced';
COMMENT ON COLUMN sender.active IS 'the operator''s switch';

CREATE TABLE service (
    id TEXT NOT NULL,
    account_id TEXT NOT NULL,
    kind TEXT DEFAULT 'multibm' NOT NULL,
    provider TEXT NOT NULL,
    base_url TEXT NOT NULL,
    api_key_env TEXT NOT NULL,
    webhook_token TEXT NOT NULL,
    category TEXT DEFAULT 'UTILITY' NOT NULL,
    messages_per_second INTEGER NOT NULL,
    charge_rule TEXT DEFAULT 'sent_only' NOT NULL,
    min_batch_size INTEGER DEFAULT '1' NOT NULL,
    rotation TEXT DEFAULT 'round_robin' NOT NULL,
    test_mode BOOLEAN DEFAULT 'false' NOT NULL,
    max_inflight INTEGER,
    active BOOLEAN DEFAULT 'true' NOT NULL,
    CONSTRAINT service_pkey PRIMARY KEY (id),
    CONSTRAINT service_category_check CHECK (category IN ('UTILITY', 'MARKETING', 'AUTHENTICATION')),
    CONSTRAINT service_charge_rule_check CHECK (charge_rule IN ('sent_only', 'full')),
    CONSTRAINT service_rotation_check CHECK (rotation IN ('round_robin', 'quality_first')),
    CONSTRAINT service_messages_per_second_check CHECK (messages_per_second > 0),
    CONSTRAINT service_max_inflight_check CHECK (max_inflight > 0),
    CONSTRAINT service_min_batch_size_check CHECK (min_batch_size > 0),
    CONSTRAINT service_account_id_fkey FOREIGN KEY(account_id) REFERENCES account (id),
    CONSTRAINT service_webhook_token_key UNIQUE (webhook_token)
);
COMMENT ON COLUMN service.api_key_env IS 'name of the environment variable that holds the provider''s key';
COMMENT ON COLUMN service.webhook_token IS 'unguessable part of the receipts'' URL';
COMMENT ON COLUMN service.test_mode IS 'batches wait for moderation';
COMMENT ON COLUMN service.max_inflight IS 'null: automatic; 1: strictly serial, effective at the next claim';

CREATE TABLE submission (
    id BIGINT GENERATED ALWAYS AS IDENTITY,
    template_id BIGINT NOT NULL,
    business_manager_id TEXT NOT NULL,
    physical_name TEXT NOT NULL,
    status TEXT NOT NULL,
    signature BYTEA NOT NULL,
    CONSTRAINT submission_pkey PRIMARY KEY (id),
    CONSTRAINT submission_template_id_business_manager_id_key UNIQUE (template_id, business_manager_id),
    CONSTRAINT submission_template_id_fkey FOREIGN KEY(template_id) REFERENCES template (id) ON DELETE CASCADE,
    CONSTRAINT submission_business_manager_id_fkey FOREIGN KEY(business_manager_id) REFERENCES business_manager (id)
);
COMMENT ON TABLE submission IS 'a template''s physical copy in one business manager';
COMMENT ON COLUMN submission.signature IS 'usable only while equal to the template''s';

CREATE TABLE batch (
    id UUID NOT NULL,
    account_id TEXT NOT NULL,
    billing_account_id TEXT NOT NULL,
    service_id TEXT NOT NULL,
    status TEXT DEFAULT 'draft' NOT NULL,
    event TEXT DEFAULT 'created' NOT NULL,
    reason TEXT,
    priority SMALLINT DEFAULT '0' NOT NULL,
    total INTEGER NOT NULL,
    debited INTEGER DEFAULT '0' NOT NULL,
    charged INTEGER DEFAULT '0' NOT NULL,
    refunded INTEGER DEFAULT '0' NOT NULL,
    charge_rule TEXT NOT NULL,
    template_name TEXT NOT NULL,
    template_language TEXT NOT NULL,
    template_signature BYTEA NOT NULL,
    template_content JSONB NOT NULL,
    header JSONB,
    request_signature BYTEA NOT NULL,
    reference TEXT,
    callback_url TEXT,
    on_capacity TEXT DEFAULT 'reject' NOT NULL,
    skipped JSONB,
    max_attempts SMALLINT,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    scheduled_at TIMESTAMP WITH TIME ZONE,
    expires_at TIMESTAMP WITH TIME ZONE,
    started_at TIMESTAMP WITH TIME ZONE,
    ended_at TIMESTAMP WITH TIME ZONE,
    settled_at TIMESTAMP WITH TIME ZONE,
    cursor_seq INTEGER DEFAULT '0' NOT NULL,
    turn_at TIMESTAMP WITH TIME ZONE,
    blocked_by TEXT,
    next_attempt_at TIMESTAMP WITH TIME ZONE,
    error_code TEXT,
    CONSTRAINT batch_pkey PRIMARY KEY (id),
    CONSTRAINT batch_status_check CHECK (status IN ('draft', 'pending_moderation', 'pending', 'processing', 'paused', 'completed', 'cancelled', 'error')),
    CONSTRAINT batch_on_capacity_check CHECK (on_capacity IN ('reject', 'spill')),
    CONSTRAINT batch_total_check CHECK (total > 0),
    CONSTRAINT batch_money_check CHECK (charged + refunded <= debited),
    CONSTRAINT batch_account_id_fkey FOREIGN KEY(account_id) REFERENCES account (id),
    CONSTRAINT batch_billing_account_id_fkey FOREIGN KEY(billing_account_id) REFERENCES account (id),
    CONSTRAINT batch_service_id_fkey FOREIGN KEY(service_id) REFERENCES service (id)
)
 WITH (fillfactor = 70);
CREATE INDEX batch_account_id_id_idx ON batch (account_id, id);
CREATE INDEX batch_account_id_status_id_idx ON batch (account_id, status, id);
CREATE INDEX batch_dispatchable_idx ON batch (service_id, priority DESC, turn_at) WHERE status IN ('pending', 'processing');
CREATE INDEX batch_unsettled_idx ON batch (id) WHERE settled_at IS NULL;
COMMENT ON COLUMN batch.id IS 'time-ordered (UUIDv7): it also names the message partition';
COMMENT ON COLUMN batch.event IS 'the lifecycle event that last moved it';
COMMENT ON COLUMN batch.reason IS 'why it was moved, in words';
COMMENT ON COLUMN batch.priority IS 'higher goes first: single sends before bulk';
COMMENT ON COLUMN batch.debited IS 'credits';
COMMENT ON COLUMN batch.charged IS 'credits, frozen at settlement';
COMMENT ON COLUMN batch.refunded IS 'credits';
COMMENT ON COLUMN batch.template_content IS 'frozen at creation';
COMMENT ON COLUMN batch.header IS 'header media for all contacts';
COMMENT ON COLUMN batch.skipped IS 'what was left out at creation: counts and first rows';
COMMENT ON COLUMN batch.cursor_seq IS 'rows up to here have been claimed once';

CREATE TABLE sender_account (
    account_id TEXT NOT NULL,
    sender_id TEXT NOT NULL,
    CONSTRAINT sender_account_pkey PRIMARY KEY (account_id, sender_id),
    CONSTRAINT sender_account_account_id_fkey FOREIGN KEY(account_id) REFERENCES account (id),
    CONSTRAINT sender_account_sender_id_fkey FOREIGN KEY(sender_id) REFERENCES sender (id) ON DELETE CASCADE
);
COMMENT ON TABLE sender_account IS 'which accounts may send from a sender';

CREATE TABLE service_health (
    service_id TEXT NOT NULL,
    latency_s DOUBLE PRECISION DEFAULT '0.2' NOT NULL,
    failures_in_a_row INTEGER DEFAULT '0' NOT NULL,
    probe_s DOUBLE PRECISION DEFAULT '0' NOT NULL,
    wait_until TIMESTAMP WITH TIME ZONE,
    wait_reason TEXT,
    CONSTRAINT service_health_pkey PRIMARY KEY (service_id),
    CONSTRAINT service_health_service_id_fkey FOREIGN KEY(service_id) REFERENCES service (id) ON DELETE CASCADE
);
COMMENT ON TABLE service_health IS 'what dispatch learnt about a service; apart from the operator''s description of it';
COMMENT ON COLUMN service_health.latency_s IS 'moving average of a call';
COMMENT ON COLUMN service_health.failures_in_a_row IS 'infrastructure failures';
COMMENT ON COLUMN service_health.probe_s IS 'last blackout, s; 0: none';

CREATE TABLE callback (
    id UUID NOT NULL,
    batch_id UUID NOT NULL,
    event TEXT NOT NULL,
    url TEXT NOT NULL,
    body JSONB NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    attempts INTEGER DEFAULT '0' NOT NULL,
    next_attempt_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    delivered_at TIMESTAMP WITH TIME ZONE,
    gave_up_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT callback_pkey PRIMARY KEY (id),
    CONSTRAINT callback_batch_id_fkey FOREIGN KEY(batch_id) REFERENCES batch (id)
);
CREATE INDEX callback_due_idx ON callback (next_attempt_at) WHERE delivered_at IS NULL AND gave_up_at IS NULL;
CREATE UNIQUE INDEX callback_once_key ON callback (batch_id, event);

CREATE TABLE callback_attempt (
    id BIGINT GENERATED ALWAYS AS IDENTITY,
    callback_id UUID NOT NULL,
    at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    status INTEGER,
    error TEXT,
    CONSTRAINT callback_attempt_pkey PRIMARY KEY (id),
    CONSTRAINT callback_attempt_callback_id_fkey FOREIGN KEY(callback_id) REFERENCES callback (id)
);
CREATE INDEX callback_attempt_callback_id_idx ON callback_attempt (callback_id);
COMMENT ON COLUMN callback_attempt.status IS 'HTTP status; null: no answer';

-- Partitions -----------------------------------------------------------------------------------------------------------------
-- A week each. Messages by the time inside their batch's UUIDv7, evidence by its own time. Old ones are dropped whole.

CREATE FUNCTION uuid_floor(at timestamptz) RETURNS uuid LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid
$$;
COMMENT ON FUNCTION uuid_floor IS 'the smallest UUIDv7 of an instant: where a partition by batch id begins';

CREATE FUNCTION refuse_partition_by_name() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is a partition: name % instead', TG_TABLE_NAME, TG_ARGV[0] USING ERRCODE = 'insufficient_privilege';
END
$$;

CREATE FUNCTION ensure_partitions(weeks_back int, weeks_ahead int) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
    week timestamptz;
    parent text;
    child text;
    made int := 0;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('ensure_partitions', 0));
    FOR week IN
        SELECT generate_series(
            date_trunc('week', clock_timestamp(), 'UTC') - make_interval(weeks => weeks_back),
            date_trunc('week', clock_timestamp(), 'UTC') + make_interval(weeks => weeks_ahead),
            '1 week')
    LOOP
        FOREACH parent IN ARRAY ARRAY['message', 'message_content', 'message_event', 'receipt_payload', 'receipt'] LOOP
            child := parent || '_p' || to_char(week AT TIME ZONE 'UTC', 'YYYYMMDD');
            CONTINUE WHEN to_regclass(child) IS NOT NULL;
            -- Made apart and attached: CREATE ... PARTITION OF would lock everybody out of the parent.
            EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', child, parent);
            IF parent IN ('message', 'message_content') THEN
                EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)',
                    parent, child, uuid_floor(week), uuid_floor(week + interval '7 days'));
                -- What was counted of past batches says nothing of the one that is sent now: by such numbers it would be taken for
                -- one row, and slices be joined by comparing all with all. Without them the guess is the same for every batch.
                EXECUTE format('ALTER TABLE %I ALTER COLUMN batch_id SET STATISTICS 0, ALTER COLUMN seq SET STATISTICS 0', child);
            ELSE
                EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)',
                    parent, child, week, week + interval '7 days');
            END IF;
            IF parent = 'message' THEN
                -- Room on each page for the versions that a row goes through, so that they stay HOT.
                EXECUTE format('ALTER TABLE %I SET (fillfactor = 60)', child);
            END IF;
            -- What counts and records changes stands on the parent, and does not see what is done to a partition by its name.
            EXECUTE format('CREATE TRIGGER named_by_parent BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON %I '
                'FOR EACH STATEMENT EXECUTE FUNCTION refuse_partition_by_name(%L)', child, parent);
            made := made + 1;
        END LOOP;
    END LOOP;
    RETURN made;
END
$$;

-- Enough to begin with; the sweep keeps eight weeks ahead.
SELECT ensure_partitions(1, 1);

-- Lifecycle ------------------------------------------------------------------------------------------------------------------
-- domain/lifecycle.py as rows and as triggers. An edge that is not listed is refused, whoever asks.

INSERT INTO lifecycle_edge (machine, event, source, target) VALUES
    ('batch', 'approved', 'pending_moderation', 'pending'),
    ('batch', 'cancelled', 'paused', 'cancelled'),
    ('batch', 'cancelled', 'pending', 'cancelled'),
    ('batch', 'cancelled', 'pending_moderation', 'cancelled'),
    ('batch', 'cancelled', 'processing', 'cancelled'),
    ('batch', 'completed', 'paused', 'completed'),
    ('batch', 'completed', 'processing', 'completed'),
    ('batch', 'erred', 'pending', 'error'),
    ('batch', 'erred', 'processing', 'error'),
    ('batch', 'expired', 'pending', 'cancelled'),
    ('batch', 'expired', 'pending_moderation', 'cancelled'),
    ('batch', 'moderated', 'draft', 'pending_moderation'),
    ('batch', 'opened', 'draft', 'pending'),
    ('batch', 'paused', 'processing', 'paused'),
    ('batch', 'rejected', 'pending_moderation', 'cancelled'),
    ('batch', 'resumed', 'paused', 'processing'),
    ('batch', 'started', 'pending', 'processing'),
    ('message', 'absent', 'unknown', 'pending'),
    ('message', 'absent_dropped', 'unknown', 'unsent'),
    ('message', 'assumed', 'sent', 'delivered'),
    ('message', 'claimed', 'pending', 'pending_send'),
    ('message', 'delivered', 'failed', 'delivered'),
    ('message', 'delivered', 'pending', 'delivered'),
    ('message', 'delivered', 'pending_send', 'delivered'),
    ('message', 'delivered', 'sent', 'delivered'),
    ('message', 'delivered', 'unknown', 'delivered'),
    ('message', 'dropped', 'pending_send', 'unsent'),
    ('message', 'exhausted', 'pending_send', 'failed'),
    ('message', 'failed', 'delivered', 'failed'),
    ('message', 'failed', 'pending', 'failed'),
    ('message', 'failed', 'pending_send', 'failed'),
    ('message', 'failed', 'sent', 'failed'),
    ('message', 'failed', 'unknown', 'failed'),
    ('message', 'gave_up', 'unknown', 'failed'),
    ('message', 'given_back', 'pending_send', 'pending'),
    ('message', 'guarded', 'pending', 'failed'),
    ('message', 'lost', 'pending_send', 'unknown'),
    ('message', 'seen', 'delivered', 'seen'),
    ('message', 'seen', 'failed', 'seen'),
    ('message', 'seen', 'pending', 'seen'),
    ('message', 'seen', 'pending_send', 'seen'),
    ('message', 'seen', 'sent', 'seen'),
    ('message', 'seen', 'unknown', 'seen'),
    ('message', 'sent', 'failed', 'sent'),
    ('message', 'sent', 'pending', 'sent'),
    ('message', 'sent', 'pending_send', 'sent'),
    ('message', 'sent', 'unknown', 'sent'),
    ('message', 'withdrawn', 'pending', 'unsent');

CREATE FUNCTION refuse_illegal_edge() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        RAISE EXCEPTION 'a % cannot begin as %', TG_ARGV[0], NEW.status USING ERRCODE = 'check_violation';
    END IF;
    RAISE EXCEPTION 'illegal edge of a %: % -> %', TG_ARGV[0], OLD.status, NEW.status USING ERRCODE = 'check_violation';
END
$$;

CREATE FUNCTION refuse_new_identity() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the identity of a % is fixed at its creation', TG_ARGV[0] USING ERRCODE = 'check_violation';
END
$$;

CREATE TRIGGER batch_begins BEFORE INSERT ON batch FOR EACH ROW
    WHEN (NEW.status <> 'draft') EXECUTE FUNCTION refuse_illegal_edge('batch');
CREATE TRIGGER batch_edge BEFORE UPDATE ON batch FOR EACH ROW
    WHEN (OLD.status <> NEW.status AND NOT ((OLD.status, NEW.status) IN (
        ('draft', 'pending'),
        ('draft', 'pending_moderation'),
        ('paused', 'cancelled'),
        ('paused', 'completed'),
        ('paused', 'processing'),
        ('pending', 'cancelled'),
        ('pending', 'error'),
        ('pending', 'processing'),
        ('pending_moderation', 'cancelled'),
        ('pending_moderation', 'pending'),
        ('processing', 'cancelled'),
        ('processing', 'completed'),
        ('processing', 'error'),
        ('processing', 'paused')
    )
    )) EXECUTE FUNCTION refuse_illegal_edge('batch');
CREATE TRIGGER batch_identity BEFORE UPDATE ON batch FOR EACH ROW
    WHEN ((OLD.id, OLD.account_id, OLD.service_id) IS DISTINCT FROM (NEW.id, NEW.account_id, NEW.service_id))
    EXECUTE FUNCTION refuse_new_identity('batch');

CREATE TRIGGER message_begins BEFORE INSERT ON message FOR EACH ROW
    WHEN (NEW.status <> 'pending') EXECUTE FUNCTION refuse_illegal_edge('message');
CREATE TRIGGER message_edge BEFORE UPDATE ON message FOR EACH ROW
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
        ('unknown', 'pending'),
        ('unknown', 'seen'),
        ('unknown', 'sent'),
        ('unknown', 'unsent')
    )
    OR (OLD.status = 'failed' AND NEW.status = 'sent' AND OLD.failed_at IS NULL AND OLD.gave_up_at IS NOT NULL)
    OR (OLD.status = 'delivered' AND NEW.status = 'failed' AND OLD.delivered_at IS NULL AND OLD.assumed_at IS NOT NULL)
    )) EXECUTE FUNCTION refuse_illegal_edge('message');
CREATE TRIGGER message_identity BEFORE UPDATE ON message FOR EACH ROW
    WHEN (OLD.batch_id <> NEW.batch_id OR OLD.seq <> NEW.seq OR OLD.phone_key <> NEW.phone_key)
    EXECUTE FUNCTION refuse_new_identity('message');

-- Audit and counts -----------------------------------------------------------------------------------------------------------
-- In the statement that moves the rows: there is no change without its record, and the counts are exact in any snapshot.

CREATE FUNCTION current_actor() RETURNS text LANGUAGE sql STABLE AS $$
    SELECT coalesce(
        nullif(current_setting('carteiro.actor', true), ''), nullif(current_setting('application_name'), ''), session_user)
$$;
COMMENT ON FUNCTION current_actor IS 'who acts: carteiro.actor of the transaction, else the application, else the role';

CREATE FUNCTION record_batch_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO batch_event (batch_id, event, from_status, to_status, actor, reason)
    VALUES (NEW.id, NEW.event, CASE WHEN TG_OP = 'UPDATE' THEN OLD.status END, NEW.status, current_actor(), NEW.reason);
    RETURN NULL;
END
$$;
CREATE TRIGGER batch_created AFTER INSERT ON batch FOR EACH ROW EXECUTE FUNCTION record_batch_change();
CREATE TRIGGER batch_changed AFTER UPDATE ON batch FOR EACH ROW
    WHEN (OLD.status <> NEW.status) EXECUTE FUNCTION record_batch_change();

CREATE FUNCTION record_message_insert() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO batch_tally (batch_id, pending) SELECT batch_id, count(*) FROM new_rows GROUP BY batch_id;
    RETURN NULL;
END
$$;
CREATE TRIGGER message_inserted AFTER INSERT ON message REFERENCING NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION record_message_insert();

-- Transition tables have no statistics: left to itself the planner would join them by nested loops.
CREATE FUNCTION record_message_change() RETURNS trigger LANGUAGE plpgsql SET enable_nestloop = off SET jit = off AS $$
BEGIN
    WITH moved AS MATERIALIZED (
        SELECT n.batch_id, n.seq, n.event, o.status AS from_status, n.status AS to_status, n.claim_id, n.attempt,
            CASE WHEN n.code IS DISTINCT FROM o.code THEN n.code END AS code
        FROM old_rows o JOIN new_rows n ON n.batch_id = o.batch_id AND n.seq = o.seq
        WHERE o.status <> n.status
    ), told AS (
        INSERT INTO message_event (batch_id, event, from_status, to_status, actor, claim_id, attempt, code, seqs)
        SELECT batch_id, event, from_status, to_status, current_actor(), claim_id, attempt, code, array_agg(seq ORDER BY seq)
        FROM moved GROUP BY batch_id, event, from_status, to_status, claim_id, attempt, code
    )
    INSERT INTO batch_tally (batch_id, pending, pending_send, unknown, sent, delivered, seen, failed, unsent)
    SELECT batch_id,
        coalesce(sum(d) FILTER (WHERE s = 'pending'), 0), coalesce(sum(d) FILTER (WHERE s = 'pending_send'), 0), coalesce(sum(d) FILTER (WHERE s = 'unknown'), 0),
        coalesce(sum(d) FILTER (WHERE s = 'sent'), 0), coalesce(sum(d) FILTER (WHERE s = 'delivered'), 0), coalesce(sum(d) FILTER (WHERE s = 'seen'), 0),
        coalesce(sum(d) FILTER (WHERE s = 'failed'), 0), coalesce(sum(d) FILTER (WHERE s = 'unsent'), 0)
    FROM (SELECT batch_id, from_status AS s, -1 AS d FROM moved UNION ALL SELECT batch_id, to_status, 1 FROM moved) AS delta
    GROUP BY batch_id;
    RETURN NULL;
END
$$;
CREATE TRIGGER message_changed AFTER UPDATE ON message REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION record_message_change();

CREATE FUNCTION refuse_rewriting() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is append-only', TG_TABLE_NAME USING ERRCODE = 'insufficient_privilege';
END
$$;
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON batch_event FOR EACH STATEMENT EXECUTE FUNCTION refuse_rewriting();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON message_event FOR EACH STATEMENT EXECUTE FUNCTION refuse_rewriting();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger_entry FOR EACH STATEMENT EXECUTE FUNCTION refuse_rewriting();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON receipt FOR EACH STATEMENT EXECUTE FUNCTION refuse_rewriting();
