-- Meters, buckets and holds. Every change of a hold or a bucket happens under the row lock of its meter.

-- name: ensure_meters
INSERT INTO capacity_meter (kind, owner)
SELECT * FROM unnest(%(kinds)s::text[], %(owners)s::text[]) AS t (kind, owner)
WHERE NOT EXISTS (SELECT FROM capacity_meter m WHERE m.kind = t.kind AND m.owner = t.owner)
ON CONFLICT DO NOTHING

-- name: lock_meters
-- What they hold comes with the lock: a row that had to be waited for is given as it was left.
SELECT m.kind, m.owner, m.used, m.held
FROM capacity_meter m JOIN unnest(%(kinds)s::text[], %(owners)s::text[]) AS t (kind, owner) USING (kind, owner)
ORDER BY m.kind, m.owner
FOR UPDATE OF m

-- name: release_buckets
-- In a statement of its own, after the lock: limits that were changed while it was waited for are seen. It does not read the meters
-- again, which change with each claim: somebody's old snapshot makes all that they were stay.
WITH gone AS (
    DELETE FROM capacity_bucket
    WHERE ctid = ANY(ARRAY(
        SELECT due_buckets(%(kinds)s::text[], %(owners)s::text[], clock_timestamp() - make_interval(secs => %(keep_s)s))))
    RETURNING kind, owner, used
), freed AS (
    SELECT kind, owner, sum(used)::int AS used FROM gone GROUP BY kind, owner
), released AS (
    UPDATE capacity_meter m SET used = m.used - freed.used FROM freed WHERE m.kind = freed.kind AND m.owner = freed.owner
)
SELECT t.kind, t.owner, coalesce(freed.used, 0),
    CASE t.kind
        WHEN 'bm' THEN coalesce(bm.daily_limit_override, bm.daily_limit_synced)
        ELSE CASE WHEN NOT s.use_waba_limit THEN s.daily_limit END
    END
FROM unnest(%(kinds)s::text[], %(owners)s::text[]) AS t (kind, owner)
LEFT JOIN freed USING (kind, owner)
LEFT JOIN business_manager bm ON t.kind = 'bm' AND bm.id = t.owner
LEFT JOIN sender s ON t.kind = 'sender' AND s.id = t.owner

-- name: next_release
SELECT min(oldest.bucket_at)
FROM unnest(%(kinds)s::text[], %(owners)s::text[]) AS t (kind, owner)
CROSS JOIN LATERAL (
    SELECT b.bucket_at FROM capacity_bucket b WHERE b.kind = t.kind AND b.owner = t.owner AND b.used > 0 ORDER BY b.bucket_at LIMIT 1
) oldest

-- name: charge_meters
-- A unit from a hold turns held into used and needs only used + n; a unit from free room needs used + held + n.
UPDATE capacity_meter m SET used = m.used + t.n, held = m.held - t.from_hold
FROM unnest(%(kinds)s::text[], %(owners)s::text[], %(ns)s::int[], %(from_holds)s::int[], %(limits)s::int[])
    AS t (kind, owner, n, from_hold, cap)
WHERE m.kind = t.kind AND m.owner = t.owner AND m.held >= t.from_hold
    AND (t.cap IS NULL OR CASE WHEN t.n > t.from_hold THEN m.used + m.held + t.n - t.from_hold <= t.cap ELSE m.used + t.n <= t.cap END)
RETURNING m.kind, m.owner

-- name: charge_buckets
INSERT INTO capacity_bucket AS b (kind, owner, bucket_at, used)
SELECT * FROM unnest(%(kinds)s::text[], %(owners)s::text[], %(buckets)s::timestamptz[], %(ns)s::int[])
ON CONFLICT (kind, owner, bucket_at) DO UPDATE SET used = b.used + excluded.used

-- name: return_units
-- A unit whose bucket was released meanwhile is not returned: it has left the window already.
WITH told AS (
    SELECT * FROM unnest(%(kinds)s::text[], %(owners)s::text[], %(buckets)s::timestamptz[], %(ns)s::int[]) AS t (kind, owner, bucket_at, n)
), returned AS (
    UPDATE capacity_bucket b SET used = b.used - t.n FROM told t
    WHERE b.kind = t.kind AND b.owner = t.owner AND b.bucket_at = t.bucket_at
    RETURNING b.kind, b.owner, t.n
), summed AS (
    SELECT kind, owner, sum(n)::int AS n FROM returned GROUP BY kind, owner
)
UPDATE capacity_meter m SET used = m.used - s.n FROM summed s WHERE m.kind = s.kind AND m.owner = s.owner
RETURNING m.kind, m.owner, s.n

-- name: charge_again
WITH late AS (
    SELECT business_manager_id, sender_id, bucket_at FROM message
    WHERE batch_id = %(batch_id)s AND seq = ANY(%(seqs)s::int[])
), units AS (
    SELECT kind, owner, bucket_at, count(*)::int AS n
    FROM late CROSS JOIN LATERAL (VALUES ('bm', business_manager_id), ('sender', sender_id)) AS meter (kind, owner)
    GROUP BY kind, owner, bucket_at
), buckets AS (
    INSERT INTO capacity_bucket AS b (kind, owner, bucket_at, used) SELECT kind, owner, bucket_at, n FROM units ORDER BY kind, owner
    ON CONFLICT (kind, owner, bucket_at) DO UPDATE SET used = b.used + excluded.used
)
UPDATE capacity_meter m SET used = m.used + s.n
FROM (SELECT kind, owner, sum(n)::int AS n FROM units GROUP BY kind, owner ORDER BY kind, owner) s
WHERE m.kind = s.kind AND m.owner = s.owner

-- name: add_meter_holds
UPDATE capacity_meter m SET held = m.held + t.n
FROM unnest(%(owners)s::text[], %(ns)s::int[], %(limits)s::int[]) AS t (owner, n, cap)
WHERE m.kind = 'bm' AND m.owner = t.owner AND (t.cap IS NULL OR m.used + m.held + t.n <= t.cap)
RETURNING m.owner

-- name: add_holds
INSERT INTO capacity_hold AS h (batch_id, business_manager_id, held)
SELECT %(batch_id)s, t.owner, t.n FROM unnest(%(owners)s::text[], %(ns)s::int[]) AS t (owner, n)
ON CONFLICT (batch_id, business_manager_id) DO UPDATE SET held = h.held + excluded.held

-- name: restore_meter_holds
UPDATE capacity_meter m SET held = m.held + t.n
FROM unnest(%(owners)s::text[], %(ns)s::int[]) AS t (owner, n) WHERE m.kind = 'bm' AND m.owner = t.owner

-- name: use_holds
UPDATE capacity_hold h SET held = h.held - t.n
FROM unnest(%(owners)s::text[], %(ns)s::int[]) AS t (owner, n)
WHERE h.batch_id = %(batch_id)s AND h.business_manager_id = t.owner AND h.held >= t.n
RETURNING h.business_manager_id

-- name: drop_meter_holds
UPDATE capacity_meter m SET held = m.held - t.n
FROM unnest(%(owners)s::text[], %(ns)s::int[]) AS t (owner, n) WHERE m.kind = 'bm' AND m.owner = t.owner

-- name: read_holders
SELECT batch_id, held FROM capacity_hold WHERE business_manager_id = %(business_manager_id)s AND held > 0

-- name: cut_holds
WITH cut AS (
    UPDATE capacity_hold h SET held = h.held - t.n
    FROM unnest(%(batch_ids)s::uuid[], %(ns)s::int[]) AS t (batch_id, n)
    WHERE h.batch_id = t.batch_id AND h.business_manager_id = %(business_manager_id)s AND h.held >= t.n
    RETURNING t.n
), summed AS (
    SELECT coalesce(sum(n), 0)::int AS n FROM cut
)
UPDATE capacity_meter m SET held = m.held - summed.n FROM summed WHERE m.kind = 'bm' AND m.owner = %(business_manager_id)s
RETURNING summed.n

-- name: read_holds
SELECT business_manager_id, held FROM capacity_hold WHERE batch_id = %(batch_id)s AND held > 0
ORDER BY business_manager_id
