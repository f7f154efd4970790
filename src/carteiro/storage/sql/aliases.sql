-- Messages by the provider's own id, and receipts that wait for such an id to become known.

-- name: note
-- Not of a contact who was erased: the id may have the phone inside.
INSERT INTO message_alias (provider_id, batch_id, seq, followup)
SELECT t.provider_id, m.batch_id, m.seq, %(followup)s
FROM unnest(%(provider_ids)s::text[], %(seqs)s::int[]) AS t (provider_id, seq)
JOIN message m ON m.batch_id = %(batch_id)s AND m.seq = t.seq
WHERE m.seq = ANY(%(seqs)s::int[]) AND m.phone_key > 0
ORDER BY t.provider_id
ON CONFLICT DO NOTHING

-- name: find
SELECT provider_id, batch_id, seq, followup FROM message_alias WHERE provider_id = ANY(%(provider_ids)s::text[])

-- name: wait
INSERT INTO receipt_waiting (provider_id, received_at, payload_id, kind, at, code, failure, via)
SELECT * FROM unnest(%(provider_ids)s::text[], %(received_at)s::timestamptz[], %(payload_ids)s::bigint[], %(kinds)s::text[],
    %(at)s::timestamptz[], %(codes)s::text[], %(failures)s::text[], %(vias)s::text[])

-- name: take_waiting
-- Those whose message is known by now, and those that have waited too long.
WITH due AS MATERIALIZED (
    SELECT w.id FROM receipt_waiting w
    WHERE (SELECT true FROM message_alias a WHERE a.provider_id = w.provider_id LIMIT 1)
        OR w.received_at < (SELECT clock_timestamp() - make_interval(secs => %(wait_s)s))
    ORDER BY w.id LIMIT %(limit)s
    FOR UPDATE OF w SKIP LOCKED
)
DELETE FROM receipt_waiting w USING due WHERE w.id = due.id
RETURNING w.provider_id, w.received_at, w.payload_id, w.kind, w.at, w.code, w.failure, w.via
