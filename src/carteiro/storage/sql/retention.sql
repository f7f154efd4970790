-- What goes by age: partitions whole, small tables in slices.

-- name: try_lock
SELECT pg_try_advisory_lock(hashtextextended('retention', 0))

-- name: unlock
SELECT pg_advisory_unlock(hashtextextended('retention', 0))

-- name: partitions
-- By their names, as ensure_partitions() gives them: the Monday that a week begins with, in UTC.
SELECT p.relname, c.relname, at.day, at.day + interval '7 days'
FROM pg_inherits i
JOIN pg_class p ON p.oid = i.inhparent AND p.relname = ANY(%(parents)s::text[]) AND pg_table_is_visible(p.oid)
JOIN pg_class c ON c.oid = i.inhrelid AND c.relname ~ ('^' || p.relname || '_p[0-9]{8}$')
CROSS JOIN LATERAL (SELECT to_timestamp(right(c.relname, 8) || ' +00', 'YYYYMMDD TZH') AS day) at
WHERE at.day + interval '7 days' <= clock_timestamp() - make_interval(secs => %(keep_s)s)
    AND NOT EXISTS (SELECT FROM partition_drop d WHERE d.parent = p.relname AND d.from_at = at.day)
ORDER BY at.day, p.relname

-- name: batches_of_messages
SELECT count(*)::int, min(b.id::text)::uuid FROM batch b
WHERE b.id >= uuid_floor(%(from_at)s) AND b.id < uuid_floor(%(until_at)s)
    AND (b.settled_at IS NULL OR b.settled_at > clock_timestamp() - make_interval(secs => %(keep_s)s))

-- name: batches_of_events
SELECT count(*)::int, min(b.id::text)::uuid FROM batch b
WHERE b.created_at < %(until_at)s
    AND (b.settled_at IS NULL OR b.settled_at > clock_timestamp() - make_interval(secs => %(keep_s)s))
    AND EXISTS (SELECT FROM message_event e WHERE e.batch_id = b.id AND e.at >= %(from_at)s AND e.at < %(until_at)s)

-- name: batches_of_receipts
SELECT count(*)::int, min(b.id::text)::uuid FROM batch b
WHERE b.created_at < %(until_at)s
    AND (b.settled_at IS NULL OR b.settled_at > clock_timestamp() - make_interval(secs => %(keep_s)s))
    AND EXISTS (SELECT FROM receipt r WHERE r.batch_id = b.id AND r.received_at >= %(from_at)s AND r.received_at < %(until_at)s)

-- name: waiting_payloads
SELECT count(*)::int FROM receipt_inbox WHERE received_at >= %(from_at)s AND received_at < %(until_at)s

-- name: decide
INSERT INTO partition_drop (parent, from_at, until_at)
SELECT parent, %(from_at)s, %(until_at)s FROM unnest(%(parents)s::text[]) AS parent
ON CONFLICT DO NOTHING

-- name: decided
-- What is left of each: a partition, one whose detachment was cut short, a table of its own, or nothing.
SELECT d.parent, d.parent || '_p' || to_char(d.from_at AT TIME ZONE 'UTC', 'YYYYMMDD'), d.from_at, d.until_at,
    CASE WHEN c.oid IS NULL THEN 'gone' WHEN i.inhrelid IS NULL THEN 'detached' WHEN i.inhdetachpending THEN 'pending' ELSE 'attached' END
FROM partition_drop d
LEFT JOIN pg_class c ON c.relname = d.parent || '_p' || to_char(d.from_at AT TIME ZONE 'UTC', 'YYYYMMDD') AND pg_table_is_visible(c.oid)
LEFT JOIN pg_inherits i ON i.inhrelid = c.oid
WHERE d.dropped_at IS NULL
-- A half detached one keeps all the others of its table from being detached.
ORDER BY i.inhdetachpending DESC NULLS LAST, d.from_at, d.parent

-- name: note_dropped
UPDATE partition_drop SET dropped_at = clock_timestamp() WHERE parent = %(parent)s AND from_at = %(from_at)s

-- name: is_dropped
SELECT EXISTS (
    SELECT FROM partition_drop d
    WHERE d.parent = 'message' AND %(batch_id)s::uuid >= uuid_floor(d.from_at) AND %(batch_id)s::uuid < uuid_floor(d.until_at))

-- name: prune_claims
-- Claims are read with their messages, and go with them.
WITH old AS MATERIALIZED (
    SELECT c.id FROM partition_drop d JOIN claim c ON c.batch_id >= uuid_floor(d.from_at) AND c.batch_id < uuid_floor(d.until_at)
    WHERE d.parent = 'message' AND d.dropped_at IS NOT NULL
    LIMIT %(n)s
)
DELETE FROM claim c USING old WHERE c.id = old.id

-- name: prune_returns
WITH old AS MATERIALIZED (
    SELECT r.batch_id, r.seq FROM partition_drop d JOIN message_return r ON r.batch_id >= uuid_floor(d.from_at) AND r.batch_id < uuid_floor(d.until_at)
    WHERE d.parent = 'message' AND d.dropped_at IS NOT NULL
    LIMIT %(n)s
)
DELETE FROM message_return r USING old WHERE r.batch_id = old.batch_id AND r.seq = old.seq

-- name: prune_aliases
WITH old AS MATERIALIZED (
    SELECT a.provider_id FROM partition_drop d JOIN message_alias a ON a.batch_id >= uuid_floor(d.from_at) AND a.batch_id < uuid_floor(d.until_at)
    WHERE d.parent = 'message' AND d.dropped_at IS NOT NULL
    LIMIT %(n)s
)
DELETE FROM message_alias a USING old WHERE a.provider_id = old.provider_id

-- name: prune_pair_waits
WITH old AS MATERIALIZED (
    SELECT p.batch_id, p.seq FROM partition_drop d JOIN pair_wait p ON p.batch_id >= uuid_floor(d.from_at) AND p.batch_id < uuid_floor(d.until_at)
    WHERE d.parent = 'message' AND d.dropped_at IS NOT NULL
    LIMIT %(n)s
)
DELETE FROM pair_wait p USING old WHERE p.batch_id = old.batch_id AND p.seq = old.seq

-- name: prune_follow_ups
WITH old AS MATERIALIZED (
    SELECT f.batch_id, f.seq FROM partition_drop d JOIN follow_up f ON f.batch_id >= uuid_floor(d.from_at) AND f.batch_id < uuid_floor(d.until_at)
    WHERE d.parent = 'message' AND d.dropped_at IS NOT NULL
    LIMIT %(n)s
)
DELETE FROM follow_up f USING old WHERE f.batch_id = old.batch_id AND f.seq = old.seq

-- name: prune_follow_up_events
WITH old AS MATERIALIZED (
    SELECT e.id FROM partition_drop d JOIN follow_up_event e ON e.at >= d.from_at AND e.at < d.until_at
    WHERE d.parent = 'message_event' AND d.dropped_at IS NOT NULL
    LIMIT %(n)s
)
DELETE FROM follow_up_event e USING old WHERE e.id = old.id

-- name: prune_idempotency_keys
WITH old AS MATERIALIZED (
    SELECT account_id, scope, key FROM idempotency_key WHERE created_at < (SELECT clock_timestamp() - make_interval(secs => %(keep_s)s))
    ORDER BY created_at LIMIT %(n)s
    FOR UPDATE SKIP LOCKED
)
DELETE FROM idempotency_key k USING old WHERE k.account_id = old.account_id AND k.scope = old.scope AND k.key = old.key

-- name: prune_signatures
-- Expired, they keep nobody from anything.
WITH old AS MATERIALIZED (
    SELECT account_id, signature FROM batch_signature WHERE expires_at < (SELECT clock_timestamp() - interval '1 hour')
    ORDER BY expires_at LIMIT %(n)s
    FOR UPDATE SKIP LOCKED
)
DELETE FROM batch_signature s USING old WHERE s.account_id = old.account_id AND s.signature = old.signature

-- name: prune_group_links
-- With the references that point to them.
WITH old AS MATERIALIZED (
    SELECT g.batch_id, g.account_id, b.reference FROM group_link g JOIN batch b ON b.id = g.batch_id
    WHERE b.settled_at < clock_timestamp() - make_interval(secs => %(keep_s)s)
    ORDER BY g.batch_id LIMIT %(n)s
    FOR UPDATE OF g SKIP LOCKED
), keys AS (
    DELETE FROM idempotency_key k USING old
    WHERE k.account_id = old.account_id AND k.scope = 'group-link' AND k.key = old.reference AND k.batch_id = old.batch_id
)
DELETE FROM group_link g USING old WHERE g.batch_id = old.batch_id

-- name: prune_callbacks
WITH old AS MATERIALIZED (
    SELECT id FROM callback
    WHERE created_at < (SELECT clock_timestamp() - make_interval(secs => %(keep_s)s)) AND (delivered_at IS NOT NULL OR gave_up_at IS NOT NULL)
    ORDER BY created_at LIMIT %(n)s
    FOR UPDATE SKIP LOCKED
), attempts AS (
    DELETE FROM callback_attempt a USING old WHERE a.callback_id = old.id
)
DELETE FROM callback c USING old WHERE c.id = old.id

-- name: prune_jobs
-- Procrastinate deletes what it finishes. These were cut short, with the worker that had them: the sweep has asked anew long since.
WITH old AS MATERIALIZED (
    SELECT j.id FROM procrastinate_jobs j
    WHERE j.status <> 'todo' AND (j.status <> 'doing' OR j.worker_id IS NULL)
        AND (SELECT max(e.at) FROM procrastinate_events e WHERE e.job_id = j.id) < clock_timestamp() - interval '1 day'
    LIMIT %(n)s
    FOR UPDATE OF j SKIP LOCKED
)
DELETE FROM procrastinate_jobs j USING old WHERE j.id = old.id
