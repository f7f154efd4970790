-- What operators describe in the catalog file.

-- name: lock_catalog
SELECT pg_advisory_xact_lock(hashtextextended('catalog', 0))

-- name: accounts
SELECT id, bills_to FROM account ORDER BY id

-- name: services
SELECT id, account_id, kind, flow, provider, base_url, api_key_env, category, messages_per_second, charge_rule, min_batch_size,
    rotation, test_mode, max_inflight, messages_per_request, active
FROM service ORDER BY id

-- name: business_managers
SELECT id, daily_limit_override, messages_per_minute, active FROM business_manager ORDER BY id

-- name: senders
SELECT id, business_manager_id, quality, status, daily_limit, use_waba_limit, messages_per_second, provider_ref, waba_id, active,
    ARRAY(SELECT a.account_id FROM sender_account a WHERE a.sender_id = s.id ORDER BY a.account_id) AS accounts
FROM sender s ORDER BY id

-- name: templates
SELECT name, language, category, content, signature FROM template ORDER BY name, language

-- name: submissions
SELECT t.name AS template, t.language, s.business_manager_id, s.physical_name, s.status, s.signature, s.parameter_names
FROM submission s JOIN template t ON t.id = s.template_id
ORDER BY t.name, t.language, s.business_manager_id

-- name: put_account
INSERT INTO account (id, callback_secret) VALUES (%(id)s, %(callback_secret)s) ON CONFLICT (id) DO NOTHING

-- name: put_billing
UPDATE account SET bills_to = %(bills_to)s WHERE id = %(id)s

-- name: put_service
INSERT INTO service (id, account_id, kind, flow, provider, base_url, api_key_env, webhook_token, category, messages_per_second,
    charge_rule, min_batch_size, rotation, test_mode, max_inflight, messages_per_request, active)
VALUES (%(id)s, %(account_id)s, %(kind)s, %(flow)s, %(provider)s, %(base_url)s, %(api_key_env)s, %(webhook_token)s, %(category)s,
    %(messages_per_second)s, %(charge_rule)s, %(min_batch_size)s, %(rotation)s, %(test_mode)s, %(max_inflight)s,
    %(messages_per_request)s, %(active)s)
ON CONFLICT (id) DO UPDATE SET account_id = excluded.account_id, kind = excluded.kind, flow = excluded.flow, provider = excluded.provider,
    base_url = excluded.base_url, api_key_env = excluded.api_key_env, category = excluded.category,
    messages_per_second = excluded.messages_per_second, charge_rule = excluded.charge_rule,
    min_batch_size = excluded.min_batch_size, rotation = excluded.rotation, test_mode = excluded.test_mode,
    max_inflight = excluded.max_inflight, messages_per_request = excluded.messages_per_request, active = excluded.active

-- name: put_business_manager
INSERT INTO business_manager (id, daily_limit_override, messages_per_minute, active)
VALUES (%(id)s, %(daily_limit_override)s, %(messages_per_minute)s, %(active)s)
ON CONFLICT (id) DO UPDATE SET daily_limit_override = excluded.daily_limit_override,
    messages_per_minute = excluded.messages_per_minute, active = excluded.active

-- name: put_sender
INSERT INTO sender (id, business_manager_id, quality, status, daily_limit, use_waba_limit, messages_per_second, provider_ref, waba_id, active)
VALUES (%(id)s, %(business_manager_id)s, coalesce(%(quality)s, 'UNKNOWN'), coalesce(%(status)s, 'ACTIVE'), %(daily_limit)s,
    %(use_waba_limit)s, %(messages_per_second)s, %(provider_ref)s, %(waba_id)s, %(active)s)
ON CONFLICT (id) DO UPDATE SET business_manager_id = excluded.business_manager_id,
    quality = coalesce(%(quality)s, sender.quality), status = coalesce(%(status)s, sender.status),
    daily_limit = excluded.daily_limit, use_waba_limit = excluded.use_waba_limit,
    messages_per_second = excluded.messages_per_second, provider_ref = excluded.provider_ref, waba_id = excluded.waba_id,
    active = excluded.active

-- name: drop_sender_accounts
DELETE FROM sender_account WHERE sender_id = %(id)s AND account_id <> ALL(%(accounts)s::text[])

-- name: put_sender_accounts
INSERT INTO sender_account (sender_id, account_id)
SELECT %(id)s, account_id FROM unnest(%(accounts)s::text[]) AS account_id
ON CONFLICT DO NOTHING

-- name: put_template
INSERT INTO template (name, language, category, content, signature)
VALUES (%(name)s, %(language)s, %(category)s, %(content)s, %(signature)s)
ON CONFLICT (name, language) DO UPDATE SET category = excluded.category, content = excluded.content,
    signature = excluded.signature

-- name: put_submission
INSERT INTO submission (template_id, business_manager_id, physical_name, status, signature, parameter_names)
SELECT t.id, %(business_manager_id)s, %(physical_name)s, coalesce(%(status)s, 'PENDING'), %(signature)s, %(parameter_names)s::text[]
FROM template t WHERE t.name = %(template)s AND t.language = %(language)s
ON CONFLICT (template_id, business_manager_id) DO UPDATE SET physical_name = excluded.physical_name,
    status = coalesce(%(status)s, submission.status), signature = excluded.signature, parameter_names = excluded.parameter_names

-- name: deactivate_service
UPDATE service SET active = false WHERE id = %(id)s

-- name: deactivate_business_manager
UPDATE business_manager SET active = false WHERE id = %(id)s

-- name: deactivate_sender
UPDATE sender SET active = false WHERE id = %(id)s

-- name: drop_template
DELETE FROM template WHERE name = %(name)s AND language = %(language)s

-- name: drop_submission
DELETE FROM submission s USING template t
WHERE t.id = s.template_id AND t.name = %(template)s AND t.language = %(language)s
    AND s.business_manager_id = %(business_manager_id)s

-- name: ensure_meters
INSERT INTO capacity_meter (kind, owner)
SELECT 'bm', id FROM business_manager UNION ALL SELECT 'sender', id FROM sender
ON CONFLICT DO NOTHING

-- name: ensure_pace
INSERT INTO pace_meter (kind, owner)
SELECT 'service', id FROM service UNION ALL SELECT 'bm', id FROM business_manager UNION ALL SELECT 'sender', id FROM sender
ON CONFLICT DO NOTHING

-- name: ensure_health
INSERT INTO service_health (service_id) SELECT id FROM service ON CONFLICT DO NOTHING

-- name: service
SELECT s.id, s.account_id, coalesce(a.bills_to, a.id), s.category, s.charge_rule, s.min_batch_size, s.rotation, s.test_mode,
    s.active, s.kind
FROM service s JOIN account a ON a.id = s.account_id
WHERE s.id = %(service_id)s

-- name: has_broadcast_service
SELECT EXISTS (SELECT FROM service WHERE kind = 'broadcast' AND active)

-- name: broadcast_service
SELECT s.id, s.account_id, coalesce(a.bills_to, a.id), s.category, s.charge_rule, s.min_batch_size, s.rotation, s.test_mode,
    s.active, s.kind
FROM service s JOIN account a ON a.id = s.account_id
WHERE s.account_id = %(account_id)s AND s.kind = 'broadcast' AND s.active
ORDER BY s.id
LIMIT 1

-- name: group_link_service
-- The one for this flow before the one for both.
SELECT s.id, s.account_id, coalesce(a.bills_to, a.id), s.category, s.charge_rule, s.min_batch_size, s.rotation, s.test_mode,
    s.active, s.kind
FROM service s JOIN account a ON a.id = s.account_id
WHERE s.account_id = %(account_id)s AND s.kind = 'group_link' AND s.active AND (s.flow = %(flow)s OR s.flow IS NULL)
ORDER BY s.flow NULLS LAST, s.id
LIMIT 1

-- name: connection
SELECT provider, base_url, api_key_env FROM service WHERE id = %(service_id)s

-- name: template
SELECT name, language, category, content, signature FROM template WHERE name = %(name)s AND language = %(language)s

-- name: template_usable
-- Some business manager in which the account has a sender at the service's provider holds an approved copy that equals the
-- template. Senders and copies as in pools.sql, whatever keeps them from sending at present.
SELECT EXISTS (
    SELECT FROM submission sub
    JOIN template t ON t.id = sub.template_id
    JOIN service v ON v.id = %(service_id)s
    JOIN sender s ON s.business_manager_id = sub.business_manager_id AND (s.provider_ref IS NOT NULL) = (v.provider = 'meta')
    JOIN sender_account sa ON sa.sender_id = s.id AND sa.account_id = v.account_id
    WHERE t.name = %(name)s AND t.language = %(language)s AND sub.status = 'APPROVED' AND sub.signature = %(signature)s
)

-- name: account_capacity
-- The senders that the account may use at present, whatever the template, with what they and their business managers have used.
-- From the buckets still in the window, not from the meters: those release a bucket only when somebody claims or creates.
SELECT s.id, s.business_manager_id, CASE WHEN s.use_waba_limit THEN NULL ELSE s.daily_limit END, own.used,
    coalesce(bm.daily_limit_override, bm.daily_limit_synced), theirs.used, coalesce(m.held, 0), theirs.oldest_at
FROM sender_account sa
JOIN sender s ON s.id = sa.sender_id
JOIN business_manager bm ON bm.id = s.business_manager_id
LEFT JOIN capacity_meter m ON m.kind = 'bm' AND m.owner = bm.id
CROSS JOIN LATERAL (
    SELECT coalesce(sum(b.used), 0)::int AS used FROM capacity_bucket b
    WHERE b.kind = 'sender' AND b.owner = s.id AND b.bucket_at > clock_timestamp() - make_interval(secs => %(keep_s)s)
) own
CROSS JOIN LATERAL (
    SELECT coalesce(sum(b.used), 0)::int AS used, min(b.bucket_at) FILTER (WHERE b.used > 0) AS oldest_at FROM capacity_bucket b
    WHERE b.kind = 'bm' AND b.owner = bm.id AND b.bucket_at > clock_timestamp() - make_interval(secs => %(keep_s)s)
) theirs
WHERE sa.account_id = %(account_id)s AND s.active AND s.status = 'ACTIVE' AND bm.active
    AND (s.stopped_until IS NULL OR s.stopped_until <= clock_timestamp())
ORDER BY s.id
