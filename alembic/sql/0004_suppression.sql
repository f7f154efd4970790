-- Contacts that an account must not write to.

CREATE TABLE suppression (
    id BIGINT GENERATED ALWAYS AS IDENTITY,
    account_id TEXT NOT NULL,
    phone_key BIGINT NOT NULL,
    scope TEXT NOT NULL,
    source TEXT NOT NULL,
    reason TEXT,
    until TIMESTAMP WITH TIME ZONE,
    times INTEGER DEFAULT '1' NOT NULL,
    said_at TIMESTAMP WITH TIME ZONE NOT NULL,
    actor TEXT NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    changed_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT suppression_pkey PRIMARY KEY (id),
    CONSTRAINT suppression_scope_check CHECK (scope IN ('all', 'marketing')),
    CONSTRAINT suppression_source_check CHECK (source IN ('api', 'preference', 'blocklist', 'inbound', 'cool-down')),
    CONSTRAINT suppression_account_id_phone_key_scope_source_key UNIQUE (account_id, phone_key, scope, source),
    CONSTRAINT suppression_account_id_fkey FOREIGN KEY(account_id) REFERENCES account (id)
);
CREATE INDEX suppression_account_id_id_idx ON suppression (account_id, id);
CREATE INDEX suppression_lapse_idx ON suppression (until) WHERE until IS NOT NULL;
COMMENT ON TABLE suppression IS 'contacts that an account must not write to: one row a contact, scope and source';
COMMENT ON COLUMN suppression.phone_key IS 'phone identity, domain/phones.py';
COMMENT ON COLUMN suppression.reason IS 'the provider''s code, or the client''s words';
COMMENT ON COLUMN suppression.until IS 'null: for ever; passed: it lapsed, or was taken back';
COMMENT ON COLUMN suppression.times IS 'cool-downs in a row';
COMMENT ON COLUMN suppression.said_at IS 'by the source''s clock: of two words the later counts';
COMMENT ON COLUMN suppression.actor IS 'who wrote it last';

ALTER TABLE batch ADD COLUMN suppressed INTEGER DEFAULT '0' NOT NULL;
COMMENT ON COLUMN batch.suppressed IS 'messages withdrawn because their contact was suppressed';

CREATE VIEW audit.suppressions AS
SELECT s.account_id, audit.masked(s.phone_key::text) AS phone, s.scope, s.source, s.reason, s.until IS NULL OR s.until > now() AS in_force,
    s.until, s.times, s.said_at, s.created_at, s.changed_at, s.actor
FROM suppression s;
COMMENT ON VIEW audit.suppressions IS 'contacts that must not be written to, and those that were lately taken off the list';
COMMENT ON COLUMN audit.suppressions.account_id IS 'whose list';
COMMENT ON COLUMN audit.suppressions.phone IS 'the contact: last four digits';
COMMENT ON COLUMN audit.suppressions.scope IS 'all, or marketing only';
COMMENT ON COLUMN audit.suppressions.source IS 'whose word it is: api, preference, blocklist, inbound or cool-down';
COMMENT ON COLUMN audit.suppressions.reason IS 'the provider''s code, or the client''s words';
COMMENT ON COLUMN audit.suppressions.in_force IS 'whether it holds now';
COMMENT ON COLUMN audit.suppressions.until IS 'when it lapses, lapsed or was taken back; null: for ever';
COMMENT ON COLUMN audit.suppressions.times IS 'cool-downs in a row';
COMMENT ON COLUMN audit.suppressions.said_at IS 'when the source said so';
COMMENT ON COLUMN audit.suppressions.created_at IS 'when the contact came on the list by this source for the first time';
COMMENT ON COLUMN audit.suppressions.changed_at IS 'when the entry last changed';
COMMENT ON COLUMN audit.suppressions.actor IS 'who wrote it last';
