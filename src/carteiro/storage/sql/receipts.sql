-- What providers post to us: kept raw first, merged afterwards.

-- name: store_payload
-- One statement, hence one commit: the answer to the provider waits for nothing else.
WITH stored AS (
    INSERT INTO receipt_payload (service_id, body)
    SELECT s.id, %(body)s FROM service s WHERE s.provider = %(provider)s AND s.webhook_token = %(token)s
    RETURNING id, received_at
)
INSERT INTO receipt_inbox (payload_id, received_at) SELECT id, received_at FROM stored

-- name: take_payloads
-- Oldest first; what another applier has taken is skipped. The time leads to the payload's partition.
WITH taken AS MATERIALIZED (
    SELECT payload_id, received_at FROM receipt_inbox ORDER BY payload_id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
)
SELECT p.id, p.received_at, s.provider, s.account_id, p.body
FROM taken t
JOIN receipt_payload p ON p.received_at = t.received_at AND p.id = t.payload_id
LEFT JOIN service s ON s.id = p.service_id
ORDER BY p.id

-- name: share_batches
SELECT id FROM batch WHERE id = ANY(%(batch_ids)s::uuid[]) ORDER BY id FOR KEY SHARE

-- name: lock_messages
SELECT seq, status, claim_id IS NOT NULL, seen_at, delivered_at, failed_at, assumed_at, sent_at, gave_up_at
FROM message
WHERE batch_id = %(batch_id)s AND seq = ANY(%(seqs)s::int[])
ORDER BY seq
FOR UPDATE

-- name: record_receipts
INSERT INTO receipt (received_at, payload_id, batch_id, seq, kind, at, code, result, detail)
SELECT * FROM unnest(
    %(received_at)s::timestamptz[], %(payload_ids)s::bigint[], %(batch_ids)s::uuid[], %(seqs)s::int[], %(kinds)s::text[],
    %(at)s::timestamptz[], %(codes)s::text[], %(results)s::text[], %(details)s::text[]
)

-- name: clear_inbox
DELETE FROM receipt_inbox WHERE payload_id = ANY(%(payload_ids)s::bigint[])
