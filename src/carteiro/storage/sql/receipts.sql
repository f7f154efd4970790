-- What providers post to us: kept raw first, merged afterwards.

-- name: store_payloads
-- One statement, hence one commit: the answers to the providers wait for nothing else.
WITH posted AS MATERIALIZED (
    SELECT p.place, CASE WHEN p.token IS NULL THEN p.provider END AS provider, s.id AS service_id, p.body
    FROM unnest(%(providers)s::text[], %(tokens)s::text[], %(bodies)b::bytea[]) WITH ORDINALITY AS p (provider, token, body, place)
    LEFT JOIN service s ON s.webhook_token = p.token AND s.provider = p.provider
    WHERE p.token IS NULL OR s.id IS NOT NULL
), stored AS (
    INSERT INTO receipt_payload (service_id, provider, body) SELECT service_id, provider, body FROM posted ORDER BY place
    RETURNING id, received_at
), noted AS (
    INSERT INTO receipt_inbox (payload_id, received_at) SELECT id, received_at FROM stored
)
SELECT place FROM posted

-- name: numbers
SELECT s.provider_ref, array_agg(a.account_id ORDER BY a.account_id)
FROM sender s JOIN sender_account a ON a.sender_id = s.id
WHERE s.provider_ref = ANY(%(numbers)s::text[])
GROUP BY s.provider_ref

-- name: take_payloads
-- Oldest first, no more than fits into memory and into one transaction; one at least. What another applier has taken is skipped. The
-- time leads to the payload's partition.
WITH taken AS MATERIALIZED (
    SELECT payload_id, received_at FROM receipt_inbox ORDER BY payload_id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
), found AS (
    SELECT p.*, sum(octet_length(p.body)) OVER (ORDER BY p.id) - octet_length(p.body) AS bytes_before
    FROM taken t
    CROSS JOIN LATERAL (
        SELECT * FROM receipt_payload p WHERE p.received_at = t.received_at AND p.id = t.payload_id LIMIT 1
    ) p
)
SELECT p.id, p.received_at, coalesce(p.provider, s.provider), s.account_id, p.body
FROM found p
LEFT JOIN service s ON s.id = p.service_id
WHERE p.bytes_before < %(bytes_max)s
ORDER BY p.id

-- name: share_batches
SELECT id, account_id FROM batch WHERE id = ANY(%(batch_ids)s::uuid[]) ORDER BY id FOR KEY SHARE

-- name: lock_messages
SELECT m.seq, m.status, m.claim_id IS NOT NULL, s.provider_ref, m.seen_at, m.delivered_at, m.failed_at, m.assumed_at, m.sent_at, m.gave_up_at
FROM message m LEFT JOIN sender s ON s.id = m.sender_id
WHERE m.batch_id = %(batch_id)s AND m.seq = ANY(%(seqs)s::int[])
ORDER BY m.seq
FOR UPDATE OF m

-- name: record_receipts
INSERT INTO receipt (received_at, payload_id, batch_id, seq, kind, at, code, result, detail)
SELECT * FROM unnest(
    %(received_at)s::timestamptz[], %(payload_ids)s::bigint[], %(batch_ids)s::uuid[], %(seqs)s::int[], %(kinds)s::text[],
    %(at)s::timestamptz[], %(codes)s::text[], %(results)s::text[], %(details)s::text[]
)

-- name: clear_inbox
DELETE FROM receipt_inbox WHERE payload_id = ANY(%(payload_ids)s::bigint[])
