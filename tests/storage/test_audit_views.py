"""Schema `audit`: what its views show of a legal history."""

from tests.support.audit import Connection, read, tamper, views_of
from tests.support.lives import ACCOUNT, ADDRESS, BM, KEY, SENDER, WORKER, World


def test_every_view_and_every_column_says_what_it_is(session: Connection) -> None:
    silent = session.execute(
        "SELECT c.relname, a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum >= 0"
        " WHERE c.relnamespace = 'audit'::regnamespace AND c.relkind IN ('v', 'r') AND NOT a.attisdropped"
        " AND col_description(c.oid, a.attnum) IS NULL"
        " UNION ALL SELECT c.relname, NULL FROM pg_class c"
        " WHERE c.relnamespace = 'audit'::regnamespace AND c.relkind IN ('v', 'r')"
        " AND obj_description(c.oid, 'pg_class') IS NULL"
    ).fetchall()
    assert silent == []


def test_no_view_shows_a_phone(session: Connection) -> None:
    shown = "\n".join(str(read(session, view)) for view in views_of(session))
    assert "***" in shown
    assert ADDRESS not in shown
    assert "5511876500" not in shown, "the identity of a phone is a phone"


def test_a_phone_is_masked_however_short(session: Connection) -> None:
    rows = session.execute(
        "SELECT audit.masked(a) AS shown FROM unnest('{5511987650001,12345,1234,\"\"}'::text[]) AS t (a)"
    ).fetchall()
    assert [row["shown"] for row in rows] == ["***0001", "***5", "***", None]


def test_a_batch_tells_its_states_its_money_and_its_callbacks(session: Connection, world: World) -> None:
    session.execute("INSERT INTO callback_attempt (callback_id, status) SELECT id, 503 FROM callback")
    rows = session.execute(
        "SELECT * FROM audit.batch_timeline WHERE batch_id = %s ORDER BY at", (world.settled,)
    ).fetchall()
    told = [(row["kind"], row["event"], row["credits"]) for row in rows]
    assert told[:4] == [
        ("state", "created", None),
        ("money", "debit", -7),
        ("state", "opened", None),
        ("state", "started", None),
    ]
    assert sorted(told[4:7]) == [("money", "refund", 4), ("settlement", "settled", None), ("state", "completed", None)]
    assert told[7] == ("callback", "batch.completed", None)
    assert rows[0]["actor"] == f"key:{KEY}"
    assert rows[7]["detail"] == "HTTP 503"


def test_counts_and_money_of_batches(session: Connection, world: World) -> None:
    counts = {row["batch_id"]: row for row in read(session, "batch_counts")}[world.running]
    assert counts["total"] == 9
    states = ("pending", "pending_send", "unknown", "sent", "delivered", "seen", "failed", "unsent")
    assert [counts[state] for state in states] == [2, 1, 1, 3, 2, 0, 0, 0]
    money = {row["batch_id"]: row for row in read(session, "batch_money")}
    assert [money[world.settled][part] for part in ("debited", "charged", "refunded", "held")] == [7, 3, 4, 0]
    assert [money[world.running][part] for part in ("debited", "charged", "refunded", "held")] == [9, 0, 0, 9]


def test_a_message_tells_every_change_since_its_creation(session: Connection, world: World) -> None:
    rows = session.execute(
        "SELECT * FROM audit.message_history WHERE batch_id = %s AND seq = 6 ORDER BY at", (world.running,)
    ).fetchall()
    assert [(row["event"], row["from_status"], row["to_status"]) for row in rows] == [
        ("created", None, "pending"),
        ("claimed", "pending", "pending_send"),
        ("lost", "pending_send", "unknown"),
        ("absent", "unknown", "pending"),
        ("claimed", "pending", "pending_send"),
        ("sent", "pending_send", "sent"),
    ]
    assert {row["phone"] for row in rows} == {"***0006"}
    assert rows[0]["actor"] == f"key:{KEY}"
    assert rows[1]["worker_id"] == WORKER
    assert rows[2]["code"] == "TIMEOUT"


def test_who_got_a_batch_and_what_it_cost(session: Connection, world: World) -> None:
    rows = session.execute(
        "SELECT * FROM audit.message_now WHERE batch_id = %s ORDER BY seq", (world.settled,)
    ).fetchall()
    assert [(row["status"], row["charged"]) for row in rows] == [
        ("delivered", True),
        ("seen", True),
        ("failed", False),
        ("delivered", False),  # failed at its settlement
        ("failed", False),
        ("delivered", True),
        ("sent", False),
    ]


def test_capacity_tells_what_is_free_and_when_more_is(session: Connection) -> None:
    rows = {(row["kind"], row["owner"]): row for row in read(session, "capacity_now")}
    bm, sender = rows["bm", BM], rows["sender", SENDER]
    assert (bm["daily_limit"], bm["limit_source"]) == (1000, "operator")
    assert bm["used"] == sender["used"] > 0
    assert bm["held"] > 0
    assert bm["free"] == 1000 - bm["used"] - bm["held"]
    assert sender["free"] == 100 - sender["used"]
    oldest = session.execute("SELECT min(bucket_at) AS at FROM capacity_bucket").fetchone()
    assert oldest is not None
    assert (bm["next_free_at"] - oldest["at"]).total_seconds() == 86_460


def test_senders_whose_own_limit_does_not_count_say_so(session: Connection) -> None:
    session.execute("UPDATE sender SET use_waba_limit = true WHERE id = %s", (SENDER,))
    row = {row["owner"]: row for row in read(session, "capacity_now")}[SENDER]
    assert (row["daily_limit"], row["limit_source"], row["free"]) == (None, "business manager", None)


def test_the_pace_of_this_moment(session: Connection) -> None:
    session.execute(
        "INSERT INTO pace_meter VALUES ('service', 'acme-utility',"
        " ARRAY[-2000000, -500000, -100000, 300000]::bigint[] , '{1,2,1,4}')"
    )
    session.execute(
        "UPDATE pace_meter SET slots_us ="
        " ARRAY(SELECT (extract(epoch FROM now()) * 1000000)::bigint + t FROM unnest(slots_us) AS s (t))"
    )
    session.execute("UPDATE service_health SET wait_until = now() + interval '9 seconds', wait_reason = 'throttled'")
    row = {(row["kind"], row["owner"]): row for row in read(session, "pacing_now")}["service", "acme-utility"]
    assert (row["rate"], row["started"], row["planned"], row["used_percent"]) == (20, 3, 4, 15)
    assert row["wait_reason"] == "throttled"


def test_a_stalled_batch_is_explained(session: Connection, world: World) -> None:
    tamper(
        session,
        world,
        "UPDATE message_event SET at = at - interval '1 hour'",
        "UPDATE batch_event SET at = at - interval '1 hour'",
    )

    def why(batch: object) -> str:
        return str({row["batch_id"]: row for row in read(session, "stalled_batches")}[batch]["why"])

    assert why(world.paused) == "paused: asked to"
    assert why(world.running) == "waits for its turn"
    for change, reason in (
        ("UPDATE batch SET blocked_by = 'capacity'", "capacity"),
        ("UPDATE worker SET seen_at = now() - interval '2 minutes'", "no worker is running"),
        ("UPDATE service_health SET wait_until = now() + interval '1 hour', wait_reason = 'blackout'", "blackout"),
        ("UPDATE service SET active = false", "the service is stopped"),
        ("UPDATE batch SET scheduled_at = now() + interval '1 hour'", "scheduled"),
        ("UPDATE batch SET expires_at = now() - interval '1 hour'", "expired"),
    ):
        session.execute(change.encode())
        assert reason in why(world.running)
    assert {row["batch_id"] for row in read(session, "stalled_batches")} == {world.paused, world.running}


def test_unknown_messages_and_receipts_without_a_message(session: Connection, world: World) -> None:
    unknown = read(session, "unknown_messages")
    assert [(row["batch_id"], row["seq"], row["code"], row["worker_id"], row["times_absent"]) for row in unknown] == [
        (world.running, 4, "TIMEOUT", WORKER, 0)
    ]
    orphans = read(session, "orphan_receipts")
    assert [(row["result"], row["service_id"], row["detail"]) for row in orphans] == [
        ("orphan", "acme-utility", "foreign-id"),
        ("late", "acme-utility", None),
    ]
    assert (orphans[1]["batch_id"], orphans[1]["seq"]) == (world.cancelled, 2)


def test_the_balance_says_what_it_is_made_of(session: Connection) -> None:
    row = {row["account_id"]: row for row in read(session, "ledger_balance")}[ACCOUNT]
    assert row["balance"] == row["granted"] - row["debited"] + row["refunded"]
    assert row["debited"] == row["charged"] + row["refunded"] + row["held"]
    assert row["difference"] == 0
    entries = [entry for entry in read(session, "ledger_entries") if entry["account_id"] == ACCOUNT]
    assert sum(entry["amount"] for entry in entries) == row["balance"]


def test_callbacks_are_shown_without_secrets(session: Connection, world: World) -> None:
    rows = read(session, "callback_log")
    assert [(row["batch_id"], row["url"], row["state"], row["attempt_at"]) for row in rows] == [
        (world.settled, "https://***@client.example/hook", "waiting", None)
    ]


def test_what_was_done_with_a_key(session: Connection) -> None:
    row = {row["key_id"]: row for row in read(session, "key_usage")}[KEY]
    assert (row["state"], row["batches"]) == ("valid", 4)
    assert row["actions"] > row["batches"]
    session.execute("UPDATE api_key SET revoked_at = now() WHERE id = %s", (KEY,))
    assert {row["key_id"]: row["state"] for row in read(session, "key_usage")}[KEY] == "revoked"
