-- name: candidates
-- Who could send this template for this account now. A submission is usable only while APPROVED and equal to the content that the
-- batch froze.
SELECT s.id, s.business_manager_id, sub.physical_name, s.quality,
    s.messages_per_second,
    bm.messages_per_minute,
    coalesce(s.provider_ref, s.id),
    sub.parameter_names,
    CASE WHEN s.wait_until > clock_timestamp() THEN s.wait_until END
FROM sender_account sa
JOIN service v ON v.id = %(service_id)s
-- Meta knows its senders by ids of its own: one without is another provider's.
JOIN sender s ON s.id = sa.sender_id AND (s.provider_ref IS NOT NULL) = (v.provider = 'meta')
JOIN business_manager bm ON bm.id = s.business_manager_id
JOIN template t ON t.name = %(template_name)s AND t.language = %(template_language)s
JOIN submission sub ON sub.template_id = t.id AND sub.business_manager_id = bm.id
WHERE sa.account_id = %(account_id)s
    AND s.active AND s.status = 'ACTIVE' AND (s.stopped_until IS NULL OR s.stopped_until <= clock_timestamp())
    AND bm.active
    AND sub.status = 'APPROVED' AND sub.signature = %(signature)s
ORDER BY s.id
