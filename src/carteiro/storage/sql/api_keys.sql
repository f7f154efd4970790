-- name: add
INSERT INTO api_key (id, account_id, name, secret_hash, scopes, expires_at, owner_id)
VALUES (%(id)s, %(account_id)s, %(name)s, %(secret_hash)s, %(scopes)s, %(expires_at)s, %(owner_id)s)

-- name: find
SELECT k.id, k.account_id, coalesce(a.bills_to, a.id), k.secret_hash, k.scopes,
    k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > clock_timestamp()),
    k.last_used_at IS NULL OR k.last_used_at < clock_timestamp() - make_interval(secs => %(touch_after_s)s), k.owner_id
FROM api_key k JOIN account a ON a.id = k.account_id
WHERE k.id = %(id)s

-- name: touch
UPDATE api_key SET last_used_at = clock_timestamp()
WHERE id = %(id)s AND (last_used_at IS NULL OR last_used_at < clock_timestamp() - make_interval(secs => %(touch_after_s)s))

-- name: revoke
UPDATE api_key SET revoked_at = clock_timestamp() WHERE id = %(id)s AND revoked_at IS NULL RETURNING id

-- name: list
SELECT id, account_id, name, scopes, created_at, expires_at, revoked_at, last_used_at, owner_id
FROM api_key WHERE %(account_id)s::text IS NULL OR account_id = %(account_id)s
ORDER BY created_at
