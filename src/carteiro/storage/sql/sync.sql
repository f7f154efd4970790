-- What the provider says of senders, limits and templates, written into the catalog. The operator's switches are never touched.

-- name: take_lead
INSERT INTO lead AS l (name, holder, until)
VALUES ('sync', %(holder)s, clock_timestamp() + make_interval(secs => %(lease_s)s))
ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until = excluded.until
WHERE l.until <= clock_timestamp()
RETURNING true

-- name: rest_until
-- Not where the row is gone: a notice made it due while the sync was under way.
UPDATE lead SET until = clock_timestamp() + make_interval(secs => %(rest_s)s) WHERE name = 'sync' AND holder = %(holder)s

-- name: make_due
DELETE FROM lead WHERE name = 'sync'

-- name: connections
-- Services that share an address and a key share what they can be told.
SELECT min(s.id), array_agg(DISTINCT x.id ORDER BY x.id)
FROM service s
JOIN sender_account sa ON sa.account_id = s.account_id
JOIN sender x ON x.id = sa.sender_id AND x.active AND (x.provider_ref IS NOT NULL) = (s.provider = 'meta')
JOIN business_manager bm ON bm.id = x.business_manager_id AND bm.active
WHERE s.active
GROUP BY s.provider, s.base_url, s.api_key_env
ORDER BY 1

-- name: managers
-- Each business manager of some senders: these, the usable ones first, the provider's accounts that they belong to, and its submissions
-- as the provider knows them.
SELECT x.business_manager_id, array_agg(x.id ORDER BY x.status <> 'ACTIVE', x.id),
    coalesce(array_agg(DISTINCT x.waba_id) FILTER (WHERE x.waba_id IS NOT NULL), '{}'),
    ARRAY(
        SELECT DISTINCT sub.physical_name || ' ' || t.language FROM submission sub JOIN template t ON t.id = sub.template_id
        WHERE sub.business_manager_id = x.business_manager_id ORDER BY 1)
FROM sender x
WHERE x.id = ANY(%(senders)s::text[])
GROUP BY x.business_manager_id
ORDER BY x.business_manager_id

-- name: names
SELECT id, coalesce(provider_ref, id) FROM sender WHERE id = ANY(%(senders)s::text[])

-- name: note_senders
-- It stops an active sender, and lets go on what it stopped itself: a refusal's or an operator's status is another word.
WITH told AS (
    SELECT * FROM unnest(%(senders)s::text[], %(words)s::text[], %(standings)s::text[], %(qualities)s::text[])
        AS t (id, word, standing, quality)
), old AS MATERIALIZED (
    SELECT s.id, s.status, s.quality, s.status IN ('ACTIVE', s.sync_stopped) AS ours
    FROM sender s JOIN told USING (id) ORDER BY s.id FOR NO KEY UPDATE OF s
)
UPDATE sender s SET provider_status = t.word, synced_at = %(asked_at)s,
    quality = coalesce(t.quality, s.quality),
    status = CASE WHEN old.ours AND t.standing = 'stopped' THEN t.word WHEN old.ours AND t.standing = 'good' THEN 'ACTIVE' ELSE s.status END,
    sync_stopped = CASE WHEN old.ours AND t.standing = 'stopped' THEN t.word WHEN t.standing = 'good' THEN NULL ELSE s.sync_stopped END
FROM told t JOIN old USING (id)
WHERE s.id = t.id
RETURNING s.id, old.status, s.status, old.quality, s.quality

-- name: note_limit
WITH old AS MATERIALIZED (
    SELECT id, daily_limit_synced, limit_note, daily_limit_override FROM business_manager WHERE id = %(business_manager_id)s FOR NO KEY UPDATE
)
UPDATE business_manager bm SET synced_at = %(asked_at)s,
    daily_limit_synced = CASE WHEN %(word)s::text IS NULL OR NOT %(known)s THEN bm.daily_limit_synced ELSE %(cap)s::int END,
    limit_note = CASE WHEN %(word)s::text IS NULL THEN bm.limit_note WHEN %(cap)s::int IS NULL THEN %(word)s END
FROM old WHERE bm.id = old.id
RETURNING old.daily_limit_synced, bm.daily_limit_synced, old.limit_note, bm.limit_note, old.daily_limit_override

-- name: note_templates
-- STOPPED is the word of a refusal or of an operator, and only an operator takes it back. Nothing was said in the future: such a word
-- would count for ever.
WITH told AS (
    SELECT *, least(%(at)s, clock_timestamp()) AS at
    FROM unnest(%(names)s::text[], %(languages)s::text[], %(words)s::text[], %(usable)s::bool[], %(ids)s::text[])
        AS t (name, language, word, usable, template_id)
), old AS MATERIALIZED (
    SELECT s.id, s.status, t.word, t.usable, t.template_id, t.name, t.language, t.at
    FROM submission s JOIN template b ON b.id = s.template_id
    JOIN told t ON t.name = s.physical_name AND t.language = b.language
    WHERE s.business_manager_id = %(business_manager_id)s AND (s.provider_at IS NULL OR s.provider_at <= t.at)
    ORDER BY s.id FOR NO KEY UPDATE OF s
)
UPDATE submission s SET provider_status = old.word, provider_at = old.at,
    provider_template_id = coalesce(old.template_id, s.provider_template_id),
    status = CASE WHEN s.status = 'STOPPED' THEN s.status WHEN old.usable THEN 'APPROVED' ELSE old.word END
FROM old WHERE s.id = old.id
RETURNING old.name, old.language, old.status, s.status

-- name: managers_of_notice
-- Names recur in every business manager: a notice is one's by the provider's id, or if there is but one that it can be.
WITH named AS (
    SELECT s.business_manager_id, s.provider_template_id
    FROM submission s JOIN template b ON b.id = s.template_id
    WHERE s.physical_name = %(name)s AND b.language = %(language)s AND EXISTS (
        SELECT FROM sender x JOIN sender_account sa ON sa.sender_id = x.id
        WHERE x.business_manager_id = s.business_manager_id AND sa.account_id = %(account_id)s)
)
SELECT business_manager_id FROM named
WHERE provider_template_id = %(template_id)s OR (provider_template_id IS NULL AND (SELECT count(*) FROM named) = 1)
ORDER BY business_manager_id

-- name: managers_of_accounts
SELECT waba_id, array_agg(DISTINCT business_manager_id ORDER BY business_manager_id) FROM sender
WHERE waba_id = ANY(%(accounts)s::text[])
GROUP BY waba_id

-- name: senders_of_account
-- Not those that the provider was asked about since: its answer is younger than the notice.
SELECT id FROM sender WHERE waba_id = %(account)s AND (synced_at IS NULL OR synced_at <= %(at)s) ORDER BY id

-- name: wait_account
WITH told AS MATERIALIZED (
    SELECT id FROM sender WHERE waba_id = %(account)s ORDER BY id FOR NO KEY UPDATE
)
UPDATE sender s SET wait_until = greatest(s.wait_until, %(until)s), wait_reason = %(word)s FROM told WHERE s.id = told.id

-- name: unlimited
SELECT business_manager_id, why FROM audit.unlimited_managers ORDER BY business_manager_id
