-- Contacts that an account must not write to. A row is in force while `until` is null or ahead.

-- name: note
-- Of two words of one source the later counts; an equal one is the same word told again.
INSERT INTO suppression AS s (account_id, phone_key, scope, source, reason, until, said_at, actor, created_at, changed_at)
SELECT DISTINCT ON (account_id, phone_key, scope, source)
    account_id, phone_key, scope, source, reason, CASE WHEN NOT stop THEN least(said_at, clock_timestamp()) END,
    -- Nothing was said in the future: such a word could never be taken back. Null: said now.
    least(said_at, clock_timestamp()), current_actor(), clock.now, clock.now
FROM unnest(%(accounts)s::text[], %(phones)s::bigint[], %(scopes)s::text[], %(sources)s::text[], %(reasons)s::text[],
    %(said_at)s::timestamptz[], %(stops)s::bool[]) AS t (account_id, phone_key, scope, source, reason, said_at, stop)
CROSS JOIN (SELECT clock_timestamp() AS now OFFSET 0) clock -- read once: what is new was not changed after it was made
ORDER BY account_id, phone_key, scope, source, said_at DESC, stop DESC
ON CONFLICT (account_id, phone_key, scope, source) DO UPDATE SET
    reason = excluded.reason, until = excluded.until, said_at = excluded.said_at, actor = excluded.actor, changed_at = clock_timestamp()
WHERE s.said_at < excluded.said_at

-- name: cool_down
-- What is refused while a cool-down runs had left before it began: that does not make it longer.
INSERT INTO suppression AS s (account_id, phone_key, scope, source, reason, until, said_at, actor, created_at, changed_at)
SELECT DISTINCT ON (account_id, phone_key, scope, source)
    account_id, phone_key, scope, source, reason, clock_timestamp() + make_interval(secs => %(first_s)s), least(said_at, clock_timestamp()),
    current_actor(), clock.now, clock.now
FROM unnest(%(accounts)s::text[], %(phones)s::bigint[], %(scopes)s::text[], %(sources)s::text[], %(reasons)s::text[],
    %(said_at)s::timestamptz[]) AS t (account_id, phone_key, scope, source, reason, said_at)
CROSS JOIN (SELECT clock_timestamp() AS now OFFSET 0) clock -- read once: what is new was not changed after it was made
ORDER BY account_id, phone_key, scope, source, said_at DESC
ON CONFLICT (account_id, phone_key, scope, source) DO UPDATE SET
    reason = excluded.reason, said_at = excluded.said_at, actor = excluded.actor, changed_at = clock_timestamp(),
    times = CASE WHEN s.until < clock_timestamp() - make_interval(secs => %(longest_s)s) THEN 1 ELSE s.times + 1 END,
    until = CASE WHEN s.until < clock_timestamp() - make_interval(secs => %(longest_s)s) THEN excluded.until
        ELSE clock_timestamp() + make_interval(secs => least(%(longest_s)s, %(first_s)s * power(2, least(s.times, 30)))) END
WHERE s.said_at < excluded.said_at AND s.until <= clock_timestamp()

-- name: contacts_of
SELECT m.seq, b.account_id, m.phone_key
FROM batch b JOIN message m ON m.batch_id = b.id
-- Of a contact who was erased nothing is known any more.
WHERE b.id = %(batch_id)s AND m.batch_id = %(batch_id)s AND m.seq = ANY(%(seqs)s::int[]) AND m.phone_key > 0

-- name: among
SELECT t.phone_key
FROM unnest(%(phones)s::bigint[]) AS t (phone_key)
CROSS JOIN LATERAL (
    SELECT 1 FROM suppression s
    WHERE s.account_id = %(account_id)s AND s.phone_key = t.phone_key AND s.scope = ANY(%(scopes)s::text[])
        AND (s.until IS NULL OR s.until > now())
    LIMIT 1
) listed

-- name: in_batch
-- A look-up a message, by LIMIT: the list may be a hundred times longer than the batch.
SELECT m.seq
FROM message m
CROSS JOIN LATERAL (
    SELECT 1 FROM suppression s
    WHERE s.account_id = %(account_id)s AND s.phone_key = m.phone_key AND s.scope = ANY(%(scopes)s::text[])
        AND (s.until IS NULL OR s.until > greatest(now(), %(at)s::timestamptz))
    LIMIT 1
) listed
WHERE m.batch_id = %(batch_id)s AND m.seq BETWEEN %(first_seq)s AND %(last_seq)s
ORDER BY m.seq

-- name: withdraw
WITH moved AS (
    UPDATE message m SET status = e.target, event = e.event, code = %(code)s
    FROM lifecycle_edge e
    WHERE m.batch_id = %(batch_id)s AND m.seq = ANY(%(seqs)s::int[]) AND e.machine = 'message' AND e.event = 'withdrawn' AND e.source = m.status
    RETURNING m.seq
), gone AS (
    DELETE FROM message_return WHERE batch_id = %(batch_id)s AND seq = ANY(ARRAY(SELECT seq FROM moved))
)
UPDATE batch SET suppressed = suppressed + (SELECT count(*) FROM moved) WHERE id = %(batch_id)s

-- name: lift
-- In order, as `note` writes: two of them never wait for each other in a circle.
WITH listed AS MATERIALIZED (
    SELECT id FROM suppression
    WHERE account_id = %(account_id)s AND phone_key = ANY(%(phones)s::bigint[]) AND scope = ANY(%(scopes)s::text[])
        AND (until IS NULL OR until > clock_timestamp())
    ORDER BY phone_key, scope, source
    FOR UPDATE
), lifted AS (
    UPDATE suppression s SET until = clock_timestamp(), actor = current_actor(), changed_at = clock_timestamp()
    FROM listed WHERE s.id = listed.id
    RETURNING s.phone_key
)
SELECT count(DISTINCT phone_key)::int FROM lifted

-- name: page
SELECT id, phone_key, scope, source, reason, until, times, created_at, changed_at
FROM suppression
WHERE account_id = %(account_id)s AND id < %(before_id)s AND scope = ANY(%(scopes)s::text[]) AND (until IS NULL OR until > now())
ORDER BY id DESC
LIMIT %(limit)s

-- name: of_contact
SELECT id, phone_key, scope, source, reason, until, times, created_at, changed_at
FROM suppression
WHERE account_id = %(account_id)s AND phone_key = %(phone_key)s AND (until IS NULL OR until > now())
ORDER BY id DESC

-- name: forget_lapsed
DELETE FROM suppression
WHERE id = ANY(ARRAY(
    SELECT id FROM suppression WHERE until < now() - make_interval(secs => %(keep_s)s) LIMIT %(limit)s FOR UPDATE SKIP LOCKED))
