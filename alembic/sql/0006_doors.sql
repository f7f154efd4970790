-- Three doors into one engine: batches, group broadcasts, and group links with their reminders.

ALTER TABLE batch
    ADD COLUMN door TEXT DEFAULT 'batch' NOT NULL,
    ADD COLUMN parent_batch_id UUID,
    ADD COLUMN retry_base_s DOUBLE PRECISION,
    ADD COLUMN follow_up JSONB,
    ADD CONSTRAINT batch_door_check CHECK (door IN ('batch', 'broadcast', 'group_link', 'reminder')),
    ADD CONSTRAINT batch_parent_batch_id_fkey FOREIGN KEY (parent_batch_id) REFERENCES batch (id);
CREATE UNIQUE INDEX batch_retried_once_key ON batch (parent_batch_id) WHERE parent_batch_id IS NOT NULL AND status <> 'draft';
COMMENT ON COLUMN batch.door IS 'where it came in; a reminder is sent by the request that made it, and never pumped';
COMMENT ON COLUMN batch.parent_batch_id IS 'the batch whose failed messages this one sends again';
COMMENT ON COLUMN batch.retry_base_s IS 'delay after the first attempt that did not send, times the attempt; null: the dispatcher''s own';
COMMENT ON COLUMN batch.follow_up IS 'what is sent once to a contact who answers';

ALTER TABLE service
    ADD COLUMN flow TEXT,
    DROP CONSTRAINT service_charge_rule_check,
    ADD CONSTRAINT service_charge_rule_check CHECK (charge_rule IN ('sent_only', 'full', 'free')),
    ADD CONSTRAINT service_kind_check CHECK (kind IN ('multibm', 'broadcast', 'group_link')),
    ADD CONSTRAINT service_flow_check CHECK (flow IN ('personal', 'business'));
COMMENT ON COLUMN service.kind IS 'the door that it serves';
COMMENT ON COLUMN service.flow IS 'group links: the flow that it serves; null: both';

ALTER TABLE sender
    ADD COLUMN provider_ref TEXT,
    ADD COLUMN waba_id TEXT,
    ADD COLUMN wait_until TIMESTAMP WITH TIME ZONE,
    ADD COLUMN wait_reason TEXT;
CREATE UNIQUE INDEX sender_provider_ref_key ON sender (provider_ref) WHERE provider_ref IS NOT NULL;
COMMENT ON COLUMN sender.provider_ref IS 'what the provider calls it (Meta: the phone number id); null: its id';
COMMENT ON COLUMN sender.waba_id IS 'Meta: the WhatsApp business account that it belongs to';
COMMENT ON COLUMN sender.wait_until IS 'the provider asked this sender alone to slow down';

ALTER TABLE api_key ADD COLUMN owner_id TEXT;
COMMENT ON COLUMN api_key.owner_id IS 'the person of the directory on whose behalf the key speaks';
