-- Our word to the client: queued with the settlement, sent until it is taken.

-- name: queue
INSERT INTO callback (id, batch_id, event, url, body)
VALUES (%(id)s, %(batch_id)s, %(event)s, %(url)s, %(body)s)
ON CONFLICT (batch_id, event) DO NOTHING

-- name: claim_due
-- Pushing the next attempt ahead is the lease: whoever dies while sending leaves it to be sent again.
WITH due AS MATERIALIZED (
    SELECT id FROM callback
    WHERE delivered_at IS NULL AND gave_up_at IS NULL AND next_attempt_at <= (SELECT clock_timestamp())
    ORDER BY next_attempt_at LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
)
UPDATE callback c SET attempts = c.attempts + 1, next_attempt_at = clock_timestamp() + make_interval(secs => %(lease_s)s)
FROM due, batch b, account a
WHERE c.id = due.id AND b.id = c.batch_id AND a.id = b.account_id
RETURNING c.id, c.url, c.body, c.attempts, a.callback_secret

-- name: note_attempt
INSERT INTO callback_attempt (callback_id, status, error) VALUES (%(id)s, %(status)s, %(error)s)

-- name: delivered
UPDATE callback SET delivered_at = coalesce(delivered_at, clock_timestamp()), gave_up_at = NULL WHERE id = %(id)s

-- name: failed
-- Fenced by the attempt's number: a later attempt has the say.
UPDATE callback SET
    gave_up_at = CASE WHEN %(delay_s)s::float IS NULL THEN clock_timestamp() END,
    next_attempt_at = clock_timestamp() + make_interval(secs => coalesce(%(delay_s)s::float, 0))
WHERE id = %(id)s AND attempts = %(attempt)s AND delivered_at IS NULL AND gave_up_at IS NULL

-- name: replay
UPDATE callback SET attempts = 0, delivered_at = NULL, gave_up_at = NULL, next_attempt_at = clock_timestamp()
WHERE id = %(id)s
