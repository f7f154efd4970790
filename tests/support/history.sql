-- What tests/support/history.py loads, one statement after the other, with psycopg's parameters.

-- Every batch with its time: even ones of this week until now, odd ones of the two weeks before.
CREATE TEMP TABLE past ON COMMIT DROP AS
SELECT k, at, (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || '7000' || '8' || lpad(to_hex(k), 15, '0'))::uuid AS id
FROM (
    SELECT k, CASE WHEN k %% 2 = 0 THEN week + (now() - week) * (k / %(batches)s::float)
        ELSE week - interval '14 days' + interval '14 days' * (k / (%(batches)s + 1.0)) END AS at
    FROM generate_series(1, %(batches)s) AS k, date_trunc('week', now(), 'UTC') AS week
) timed;

CREATE TEMP TABLE slice ON COMMIT DROP AS
SELECT row_number() OVER (ORDER BY past.at, first) AS claim_id, past.k, past.id, past.at, first, least(%(rows)s, first + %(claim_rows)s - 1) AS last
FROM past, generate_series(1, %(rows)s, %(claim_rows)s) AS first;

INSERT INTO batch (id, account_id, billing_account_id, service_id, status, event, total, debited, charged, charge_rule, template_name,
    template_language, template_signature, template_content, request_signature, created_at, started_at, ended_at, settled_at, cursor_seq, turn_at)
SELECT id, %(account)s, %(account)s, %(service)s, 'completed', 'completed', %(rows)s, %(rows)s, %(rows)s, 'full', 'order_update',
    'pt_BR', '', '{}', int8send(k), at, at, at, at, %(rows)s, at
FROM past ORDER BY at;

INSERT INTO batch_tally (batch_id, delivered) SELECT id, %(rows)s FROM past ORDER BY at;

INSERT INTO batch_event (batch_id, at, event, from_status, to_status, actor)
SELECT id, at, e.event, e.source, e.target, 'history'
FROM past, (VALUES ('created', NULL, 'draft'), ('opened', 'draft', 'pending'), ('started', 'pending', 'processing'),
    ('completed', 'processing', 'completed')) AS e (event, source, target)
ORDER BY at;

INSERT INTO ledger_entry (account_id, batch_id, kind, amount, balance_after, cause, actor, at)
SELECT %(account)s, id, 'debit', -%(rows)s, 1, 'created', 'history', at FROM past ORDER BY at;

INSERT INTO callback (id, batch_id, event, url, body, created_at, attempts, next_attempt_at, delivered_at)
SELECT gen_random_uuid(), id, 'batch.completed', 'https://client.example', '{}', at, 1, at, at FROM past ORDER BY at;

INSERT INTO callback_attempt (callback_id, at, status) SELECT id, created_at, 200 FROM callback;

INSERT INTO batch_signature SELECT %(account)s, sha256(int8send(k)), id, at + interval '5 minutes' FROM past;

INSERT INTO idempotency_key SELECT %(account)s, 'key ' || k, '', id, at FROM past;

INSERT INTO claim (id, batch_id, service_id, worker_id, seqs, size, open, flushes, claimed_at, last_slot_at, lease_until, closed_at)
OVERRIDING SYSTEM VALUE
SELECT claim_id, id, %(service)s, 'w0', ARRAY(SELECT generate_series(first, last)), last - first + 1, 0, 2, at, at, at, at
FROM slice ORDER BY claim_id;

SELECT setval(pg_get_serial_sequence('claim', 'id'), (SELECT max(claim_id) FROM slice));

INSERT INTO message_event (at, batch_id, event, from_status, to_status, actor, claim_id, attempt, seqs)
SELECT c.claimed_at, c.batch_id, e.event, e.source, e.target, 'history', c.id, 0, c.seqs
FROM claim c, (VALUES ('claimed', 'pending', 'pending_send'), ('sent', 'pending_send', 'sent'), ('delivered', 'sent', 'delivered'))
    AS e (event, source, target)
ORDER BY c.id;

-- Sorted once at the end: row by row it would cost more than all the rest.
ALTER TABLE message DROP CONSTRAINT message_phone_key_batch_id_key;

INSERT INTO message (batch_id, seq, phone_key, status, event, claim_id, sender_id, business_manager_id, slot_at, bucket_at, provider_id,
    sent_at, delivered_at)
SELECT id, seq, 551180000000 + (k * %(rows)s::bigint + seq) * 7919 %% %(phones)s, 'delivered', 'delivered', claim_id, '5511415001001',
    'acme-bm1', at, at, 'theirs', at, at
FROM slice, generate_series(first, last) AS seq;

ALTER TABLE message ADD CONSTRAINT message_phone_key_batch_id_key UNIQUE (phone_key, batch_id);

INSERT INTO message_content (batch_id, seq, address, placeholders)
SELECT id, seq, '5511980000000', ARRAY['Ana', seq::text] FROM slice, generate_series(first, last) AS seq;

INSERT INTO receipt_payload (id, received_at, service_id, body) OVERRIDING SYSTEM VALUE
SELECT row_number() OVER (ORDER BY at, page), at, %(service)s, convert_to(repeat('{}', 200), 'UTF8')
FROM past, generate_series(1, %(rows)s, %(payload_rows)s) AS page;

SELECT setval(pg_get_serial_sequence('receipt_payload', 'id'), (SELECT max(id) FROM receipt_payload));

INSERT INTO receipt (received_at, payload_id, batch_id, seq, kind, at, result)
SELECT at, 1 + seq / %(payload_rows)s, id, seq, 'delivered', at, 'applied'
FROM slice, generate_series(first, last) AS seq;

-- One batch in ten by a provider that makes ids of its own.
INSERT INTO message_alias (provider_id, batch_id, seq, at)
SELECT 'wamid.' || k || '.' || seq, id, seq, at FROM slice, generate_series(first, last) AS seq WHERE k %% 10 = 0;

INSERT INTO suppression (account_id, phone_key, scope, source, until, said_at, actor)
SELECT %(account)s, 551190000000 + n::bigint * 7919 %% %(phones)s, 'all', CASE n %% 2 WHEN 0 THEN 'api' ELSE 'cool-down' END,
    CASE n %% 2 WHEN 1 THEN now() + interval '1 day' END, now(), 'history'
FROM generate_series(1, %(suppressed)s) AS n;

-- A day's worth of minutes of every meter of the account.
INSERT INTO capacity_meter (kind, owner, used)
SELECT m.kind, m.owner, 1430 FROM sender s, LATERAL (VALUES ('sender', s.id), ('bm', s.business_manager_id)) AS m (kind, owner)
GROUP BY m.kind, m.owner ON CONFLICT DO NOTHING;

INSERT INTO capacity_bucket (kind, owner, bucket_at, used)
SELECT kind, owner, date_trunc('minute', now()) - make_interval(mins => n), 1
FROM capacity_meter, generate_series(1, 1430) AS n ON CONFLICT DO NOTHING;
