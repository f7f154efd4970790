-- What makes a repeated request harmless.

-- name: lock_key
SELECT pg_advisory_xact_lock(hashtextextended('idempotency:' || %(account_id)s || ':' || %(scope)s || ':' || %(key)s, 0))

-- name: find_key
SELECT request_hash, batch_id FROM idempotency_key WHERE account_id = %(account_id)s AND scope = %(scope)s AND key = %(key)s

-- name: put_key
INSERT INTO idempotency_key (account_id, scope, key, request_hash, batch_id)
VALUES (%(account_id)s, %(scope)s, %(key)s, %(request_hash)s, %(batch_id)s)

-- name: drop_key
DELETE FROM idempotency_key WHERE account_id = %(account_id)s AND scope = %(scope)s AND key = %(key)s AND batch_id = %(batch_id)s

-- name: claim_signature
-- Taken by the first, kept until it expires; a batch that was cancelled or failed gives it up.
INSERT INTO batch_signature AS s (account_id, signature, batch_id, expires_at)
VALUES (%(account_id)s, %(signature)s, %(batch_id)s, clock_timestamp() + make_interval(secs => %(ttl_s)s))
ON CONFLICT (account_id, signature) DO UPDATE SET batch_id = excluded.batch_id, expires_at = excluded.expires_at
WHERE s.expires_at <= clock_timestamp()
    OR EXISTS (SELECT FROM batch b WHERE b.id = s.batch_id AND b.status IN ('cancelled', 'error'))
RETURNING s.batch_id

-- name: find_signature
SELECT batch_id FROM batch_signature WHERE account_id = %(account_id)s AND signature = %(signature)s
