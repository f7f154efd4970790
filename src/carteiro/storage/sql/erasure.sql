-- One person taken out of everything that is kept. Money, counts and states stay.

-- name: batches
-- The index by phone, in every partition.
SELECT batch_id FROM message WHERE phone_key = %(phone_key)s ORDER BY batch_id

-- name: lock_message
SELECT seq, status FROM message WHERE phone_key = %(phone_key)s AND batch_id = %(batch_id)s FOR UPDATE

-- name: withdraw
WITH moved AS (
    UPDATE message m SET status = e.target, event = e.event, code = %(code)s
    FROM lifecycle_edge e
    WHERE m.batch_id = %(batch_id)s AND m.seq = ANY(%(seqs)s::int[]) AND e.machine = 'message' AND e.event = 'withdrawn' AND e.source = m.status
    RETURNING m.seq
), gone AS (
    DELETE FROM message_return WHERE batch_id = %(batch_id)s AND seq = ANY(ARRAY(SELECT seq FROM moved))
)
SELECT count(*)::int FROM moved

-- name: forget
-- The provider's own id may have the phone inside.
WITH aliases AS (
    DELETE FROM message_alias WHERE batch_id = %(batch_id)s AND seq = %(seq)s
), content AS (
    UPDATE message_content SET address = '', placeholders = '{}', extra = NULL WHERE batch_id = %(batch_id)s AND seq = %(seq)s
)
UPDATE message SET phone_key = erased_key(phone_key, batch_id), provider_id = NULL WHERE batch_id = %(batch_id)s AND seq = %(seq)s

-- name: provider_ids
SELECT provider_id FROM message WHERE batch_id = %(batch_id)s AND seq = %(seq)s AND provider_id IS NOT NULL
UNION
SELECT provider_id FROM message_alias WHERE batch_id = %(batch_id)s AND seq = %(seq)s

-- name: payloads_of
-- Raw receipts of one message, by what became of their items.
SELECT DISTINCT received_at, payload_id FROM receipt WHERE batch_id = %(batch_id)s AND seq = %(seq)s ORDER BY received_at, payload_id

-- name: scan_payloads
-- A page by the primary key; what mentions none of the spellings is not sent here.
SELECT p.received_at, p.id, EXISTS (SELECT FROM unnest(%(spellings)s::bytea[]) AS word WHERE position(word IN p.body) > 0)
FROM receipt_payload p
WHERE (p.received_at, p.id) > (%(received_at)s, %(id)s)
ORDER BY p.received_at, p.id
LIMIT %(limit)s

-- name: lock_payload
SELECT body, EXISTS (SELECT FROM receipt_inbox i WHERE i.payload_id = p.id) FROM receipt_payload p
WHERE p.received_at = %(received_at)s AND p.id = %(id)s
FOR UPDATE

-- name: put_payload
UPDATE receipt_payload SET body = %(body)s WHERE received_at = %(received_at)s AND id = %(id)s

-- name: note
INSERT INTO erasure (phone_hash, batch_id, messages, payloads, actor, reason)
VALUES (erasure_hash(%(phone_key)s), %(batch_id)s, %(messages)s, %(payloads)s, current_actor(), %(reason)s)
