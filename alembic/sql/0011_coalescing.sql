-- Several messages in one request to the provider.

ALTER TABLE service ADD COLUMN messages_per_request INTEGER DEFAULT '1' NOT NULL;
ALTER TABLE service ADD CONSTRAINT service_messages_per_request_check CHECK (messages_per_request BETWEEN 1 AND 100);
COMMENT ON COLUMN service.messages_per_request IS 'most in one request, where the provider takes several; effective at the next claim';

ALTER TABLE message_return ADD COLUMN together SMALLINT;
COMMENT ON COLUMN message_return.together IS 'most messages in its next request: half of the one that was refused as a whole; null: any';
