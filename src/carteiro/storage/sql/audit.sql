-- The views of schema `audit` that must be empty, and what they judge by.

-- name: violation_views
-- In the order of the promises, which is the order in which they were made.
SELECT c.relname, coalesce(obj_description(c.oid, 'pg_class'), '')
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'audit' AND c.relkind = 'v' AND c.relname LIKE 'violation\_%%'
ORDER BY c.oid

-- name: look_back
SELECT set_config('carteiro.audit_lookback', %(lookback)s, true)

-- name: give_room
-- A batch of a million is sorted, and windows over it are kept, by what the server gives a session for that: 4 MB, if nobody said else.
SELECT set_config('work_mem', '64MB', true)

-- name: put_setting
INSERT INTO audit.setting AS s (name, value)
SELECT * FROM unnest(%(names)s::text[], %(values)s::float[])
ON CONFLICT (name) DO UPDATE SET value = excluded.value, changed_at = clock_timestamp() WHERE s.value <> excluded.value

-- name: put_code
INSERT INTO audit.code_meaning AS c (code, meaning)
SELECT * FROM unnest(%(codes)s::text[], %(meanings)s::text[])
ON CONFLICT (code) DO UPDATE SET meaning = excluded.meaning WHERE c.meaning <> excluded.meaning
