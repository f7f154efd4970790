"""Schema `audit`: what its views show of a legal history, and that each violation view sees what it is there for."""

import asyncio
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg.rows import dict_row
from psycopg.sql import SQL, Identifier

from carteiro.storage.pool import open_pool
from tests.support.databases import DatabaseServer
from tests.support.lives import ACCOUNT, ADDRESS, BM, KEY, SENDER, WORKER, World, live

VIOLATIONS = Path(__file__).parents[2] / "alembic" / "sql" / "0003_violations.sql"

Connection = psycopg.Connection[dict[str, Any]]


@pytest.fixture(scope="module")
def lived(postgres_server: DatabaseServer) -> Iterator[tuple[str, World]]:
    async def make(dsn: str) -> World:
        async with open_pool(dsn, min_size=1, max_size=2, application_name="tests") as pool:
            return await live(pool)

    with postgres_server.fresh_database() as dsn:
        yield dsn, asyncio.run(make(dsn))


@pytest.fixture
def world(lived: tuple[str, World]) -> World:
    return lived[1]


@pytest.fixture
def session(lived: tuple[str, World]) -> Iterator[Connection]:
    """What the test does is rolled back, and no trigger stands in its way after `tamper`."""
    with psycopg.connect(lived[0], row_factory=dict_row) as connection:
        yield connection
        connection.rollback()


def views_of(session: Connection, pattern: str = "%") -> list[str]:
    rows = session.execute(
        "SELECT viewname FROM pg_views WHERE schemaname = 'audit' AND viewname LIKE %s ORDER BY viewname", (pattern,)
    )
    return [row["viewname"] for row in rows]


def read(session: Connection, view: str) -> list[dict[str, Any]]:
    return session.execute(SQL("SELECT * FROM audit.{}").format(Identifier(view))).fetchall()


def tamper(session: Connection, world: World, *statements: LiteralString) -> None:
    """Past every trigger, as only the database's superuser can."""
    session.execute("SET LOCAL session_replication_role = replica")
    names = {
        "settled": world.settled,
        "running": world.running,
        "cancelled": world.cancelled,
        "paused": world.paused,
        "claim": world.open_claim,
    }
    for statement in statements:
        session.execute(statement, names)


# Violations ---------------------------------------------------------------------------------------------------------


def test_a_legal_history_violates_nothing(session: Connection) -> None:
    assert {view: rows for view in views_of(session, "violation%") if (rows := read(session, view))} == {}


def test_there_is_a_view_for_every_promise(session: Connection) -> None:
    rows = session.execute(
        "SELECT obj_description(('audit.' || viewname)::regclass) AS meaning FROM pg_views"
        " WHERE schemaname = 'audit' AND viewname LIKE 'violation%'"
    ).fetchall()
    told = {match.group(1) for row in rows if (match := re.match(r"Promise (\d+):", row["meaning"]))}
    assert told == {str(number) for number in range(1, 12)}
    assert all("Cost:" in row["meaning"] for row in rows)


@dataclass(frozen=True, slots=True)
class Fault:
    view: str
    what: str
    statements: tuple[LiteralString, ...]


def fault(view: str, what: str, *statements: LiteralString) -> Any:
    return pytest.param(Fault(f"violation_{view}", what, statements), id=f"{view}: {what}")


EVENT = "INSERT INTO message_event (batch_id, event, from_status, to_status, actor, claim_id, attempt, seqs) VALUES "
IMPATIENT = "UPDATE audit.setting SET value = 0 WHERE name = 'patience_s'"

FAULTS = [
    fault(
        "counts",
        "the counts do not sum to the total",
        "INSERT INTO batch_tally (batch_id, pending) VALUES (%(running)s, 1)",
    ),
    fault(
        "counts",
        "a count is not the number of messages in that state",
        "INSERT INTO batch_tally (batch_id, pending, sent) VALUES (%(running)s, -1, 1)",
    ),
    fault(
        "counts",
        "the batch has not as many messages as its total",
        "DELETE FROM message WHERE batch_id = %(running)s AND seq = 9",
    ),
    fault(
        "counts",
        "its messages are not numbered from 1 without a gap",
        "UPDATE message SET seq = 10 WHERE batch_id = %(running)s AND seq = 9",
    ),
    fault(
        "counts",
        "a settled batch has messages without an outcome",
        "UPDATE message SET status = 'sent' WHERE batch_id = %(settled)s AND seq = 1",
    ),
    fault(
        "counts",
        "a batch is settled that has not ended",
        "UPDATE batch SET status = 'processing' WHERE id = %(settled)s",
    ),
    fault(
        "resend",
        "claimed again without evidence that it had not gone",
        EVENT + "(%(running)s, 'claimed', 'pending', 'pending_send', 'x', 1, 0, '{1}')",
    ),
    fault(
        "resend",
        "given back by somebody whose claim it was not",
        "UPDATE message_event SET claim_id = claim_id + 100 WHERE batch_id = %(running)s AND event = 'given_back'",
    ),
    fault(
        "resend",
        "declared absent although its outcome was not unknown",
        "DELETE FROM message_event WHERE batch_id = %(running)s AND event = 'lost'",
    ),
    fault(
        "calls",
        "evidence of a call before the first claim",
        EVENT + "(%(running)s, 'sent', 'pending', 'sent', 'x', NULL, 0, '{9}')",
    ),
    fault(
        "calls",
        "a message has gone, or may have, without a claim",
        "UPDATE message SET status = 'sent' WHERE batch_id = %(running)s AND seq = 9",
    ),
    fault(
        "calls",
        "the claim of a message does not list it",
        "UPDATE claim SET seqs = '{1}' WHERE id = %(claim)s",
    ),
    fault(
        "limits",
        "more accepted in one window than the limit",
        "UPDATE audit.limit_history SET daily_limit = 5 WHERE kind = 'sender'",
    ),
    fault("limits", "a meter does not equal its buckets", "UPDATE capacity_meter SET used = used + 1"),
    fault("limits", "a bucket has no meter", "DELETE FROM capacity_meter WHERE kind = 'sender'"),
    fault("limits", "a meter does not equal its holds", "UPDATE capacity_meter SET held = 7 WHERE kind = 'bm'"),
    fault("limits", "a bucket does not equal its messages", "UPDATE capacity_bucket SET used = used + 2"),
    fault("limits", "a bucket does not equal its messages", "UPDATE capacity_bucket SET used = 1"),
    fault("limits", "a bucket does not equal its messages", "DELETE FROM capacity_bucket"),
    fault("limits", "a settled batch still holds capacity", "INSERT INTO capacity_hold VALUES (%(settled)s, 'bm1', 1)"),
    fault(
        "pacing",
        "more calls in one interval than the pace",
        "UPDATE audit.limit_history SET pace = 2 WHERE kind = 'service'",
    ),
    fault(
        "pacing",
        "two calls closer than nine tenths of an even pace",
        "UPDATE message SET slot_at = slot_at + interval '0.15 seconds' WHERE batch_id = %(running)s AND seq = 1",
    ),
    fault("money", "a balance is not the sum of its entries", "UPDATE account SET balance = balance + 1"),
    fault(
        "money",
        "a balance is below zero",
        "ALTER TABLE account DROP CONSTRAINT account_balance_check",
        "UPDATE account SET balance = -1",
    ),
    fault(
        "money",
        "an entry does not follow from the one before it",
        "UPDATE ledger_entry SET balance_after = balance_after + 1 WHERE batch_id = %(running)s",
    ),
    fault(
        "money", "an entry has the wrong sign", "UPDATE ledger_entry SET amount = -amount WHERE batch_id = %(running)s"
    ),
    fault(
        "money",
        "a batch says that it was debited otherwise than the ledger",
        "UPDATE batch SET debited = debited + 1 WHERE id = %(running)s",
    ),
    fault(
        "money",
        "a batch says that it was debited otherwise than the ledger",
        "DELETE FROM batch WHERE id = %(running)s",
    ),
    fault(
        "money",
        "a batch says that it was refunded otherwise than the ledger",
        "UPDATE batch SET refunded = 1 WHERE id = %(running)s",
    ),
    fault(
        "money",
        "entries of a batch stand in another account than the one that pays",
        "UPDATE batch SET billing_account_id = 'rival' WHERE id = %(running)s",
    ),
    fault("money", "a settled batch does not add up", "UPDATE batch SET charged = 0 WHERE id = %(settled)s"),
    fault(
        "money",
        "more was charged and refunded than debited",
        "ALTER TABLE batch DROP CONSTRAINT batch_money_check",
        "UPDATE batch SET charged = 100 WHERE id = %(running)s",
    ),
    fault("money", "a batch is charged before its settlement", "UPDATE batch SET charged = 1 WHERE id = %(running)s"),
    fault(
        "money",
        "a settled batch is charged otherwise than its messages",
        "UPDATE message SET charged = NULL WHERE batch_id = %(settled)s AND seq = 4",
    ),
    fault(
        "money",
        "a message is charged before the settlement of its batch",
        "UPDATE message SET charged = true WHERE batch_id = %(running)s AND seq = 1",
    ),
    fault(
        "receipts",
        "a message is not in the state that its facts mean",
        "UPDATE message SET status = 'delivered' WHERE batch_id = %(running)s AND seq = 2",
    ),
    fault(
        "receipts",
        "a message is not in the state that its facts mean",
        "UPDATE message SET sent_at = NULL WHERE batch_id = %(running)s AND seq = 2",
    ),
    fault(
        "receipts",
        "a receipt that was applied is not in its message",
        "UPDATE message SET delivered_at = delivered_at + interval '1 second' WHERE batch_id = %(running)s AND seq = 1",
    ),
    fault(
        "control",
        "claimed while the batch was paused",
        EVENT + "(%(paused)s, 'claimed', 'pending', 'pending_send', 'x', 1, 0, '{2}')",
    ),
    fault(
        "control",
        "claimed while the batch was cancelled",
        EVENT + "(%(cancelled)s, 'claimed', 'pending', 'pending_send', 'x', 1, 0, '{2}')",
    ),
    fault("stalled", "a batch that may be sent was not tried", IMPATIENT),
    fault(
        "stalled",
        "nothing was claimed and no reason is given",
        "UPDATE batch SET turn_at = now() - interval '20 seconds' WHERE id = %(running)s",
        "UPDATE batch_event SET at = at - interval '1 hour' WHERE batch_id = %(running)s",
        "UPDATE message_event SET at = at - interval '1 hour' WHERE batch_id = %(running)s",
    ),
    fault(
        "stuck", "a receipt payload was not merged", "INSERT INTO receipt_inbox VALUES (1, now() - interval '1 hour')"
    ),
    fault("stuck", "a callback was not tried", "UPDATE callback SET next_attempt_at = now() - interval '1 hour'"),
    fault(
        "stuck",
        "a lapsed claim was not closed",
        "UPDATE claim SET lease_until = now() - interval '1 hour' WHERE id = %(claim)s",
    ),
    fault(
        "stuck",
        "a message is being sent under a claim that is over",
        "UPDATE claim SET closed_at = now() WHERE id = %(claim)s",
    ),
    fault(
        "stuck",
        "more messages are being sent under a claim than it has open",
        "UPDATE claim SET open = 0 WHERE id = %(claim)s",
    ),
    fault("stuck", "an unknown outcome is not looked up", "DELETE FROM message_unknown"),
    fault(
        "stuck",
        "the look-up of an unknown outcome is overdue",
        "UPDATE message_unknown SET look_at = now() - interval '1 hour'",
    ),
    fault("stuck", "a message behind the cursor waits for nobody", "DELETE FROM message_return"),
    fault(
        "stuck",
        "a batch that no longer sends keeps pending messages",
        "UPDATE batch SET expires_at = now() - interval '1 hour' WHERE id = %(running)s",
    ),
    fault(
        "stuck",
        "a batch that no longer sends keeps pending messages",
        "UPDATE batch SET status = 'error', ended_at = now() - interval '1 hour' WHERE id = %(running)s",
    ),
    fault(
        "stuck",
        "a batch with all its outcomes is not settled",
        IMPATIENT,
        "UPDATE batch SET settled_at = NULL WHERE id = %(cancelled)s",
    ),
    fault(
        "stuck",
        "an abandoned draft was not collected",
        "UPDATE batch SET status = 'draft', created_at = now() - interval '4 hours' WHERE id = %(paused)s",
    ),
    fault(
        "tenants",
        "a batch runs under a service of another account",
        "UPDATE batch SET service_id = 'rival-utility' WHERE id = %(running)s",
    ),
    fault(
        "tenants",
        "messages went from a sender that their account may not use",
        "UPDATE message SET sender_id = '5511400010002' WHERE batch_id = %(running)s AND seq = 1",
    ),
    fault(
        "tenants",
        "a batch was cancelled with a key of another account",
        "UPDATE batch_event SET actor = 'key:k2' WHERE batch_id = %(cancelled)s AND event = 'cancelled'",
    ),
    fault(
        "tenants",
        "an idempotency key leads to a batch of another account",
        "UPDATE idempotency_key SET account_id = 'rival' WHERE batch_id = %(running)s",
    ),
    fault(
        "tenants",
        "a signature leads to a batch of another account",
        "UPDATE batch_signature SET account_id = 'rival' WHERE batch_id = %(running)s",
    ),
    fault(
        "lifecycle",
        "a batch went along an edge that does not exist",
        "UPDATE batch_event SET to_status = 'completed' WHERE batch_id = %(cancelled)s AND event = 'cancelled'",
    ),
    fault(
        "lifecycle",
        "the history of a batch has a gap",
        "DELETE FROM batch_event WHERE batch_id = %(running)s AND event = 'opened'",
    ),
    fault(
        "lifecycle",
        "a batch is not where its history ends",
        "UPDATE batch SET status = 'completed' WHERE id = %(running)s",
    ),
    fault(
        "lifecycle",
        "messages went along an edge that does not exist",
        EVENT + "(%(running)s, 'given_back', 'sent', 'pending', 'x', 1, 0, '{2}')",
    ),
    fault(
        "lifecycle",
        "the history of a message has a gap",
        "DELETE FROM message_event WHERE batch_id = %(settled)s AND event = 'sent'",
    ),
    fault(
        "lifecycle",
        "a message is not where its history ends",
        "UPDATE message SET status = 'seen' WHERE batch_id = %(running)s AND seq = 2",
    ),
]


@pytest.mark.parametrize("planted", FAULTS)
def test_a_violation_view_sees(planted: Fault, session: Connection, world: World) -> None:
    tamper(session, world, *planted.statements)
    seen = {row["what"]: row for row in read(session, planted.view)}
    assert planted.what in seen
    row = seen[planted.what]
    assert row["expected"] != row["found"]
    assert row["batch_id"] or row["subject"]


def test_every_rule_of_every_violation_view_has_a_fault_that_it_sees() -> None:
    rules = re.findall(r"^SELECT (?:DISTINCT )?(?:format\()?'([^']* [^']*)'", VIOLATIONS.read_text(), re.MULTILINE)
    planted = {fault.values[0].what for fault in FAULTS}
    assert len(rules) > 50
    assert [
        rule for rule in rules if not any(re.fullmatch(re.escape(rule).replace("%s", r"\w+"), what) for what in planted)
    ] == []


def test_a_breach_is_told_with_its_place_and_its_size(session: Connection, world: World) -> None:
    tamper(session, world, "INSERT INTO batch_tally (batch_id, seen) VALUES (%(running)s, 3)")
    rows = read(session, "violation_counts")
    assert [(row["batch_id"], row["subject"], row["expected"], row["found"], row["off_by"]) for row in rows] == [
        (world.running, None, "9", "12", 3),
        (world.running, "seen", "0", "3", 3),
    ]


# What is no violation -----------------------------------------------------------------------------------------------


def test_exactly_at_the_limit_is_allowed_and_one_above_is_not(session: Connection) -> None:
    found = session.execute(
        "SELECT count(*) AS n FROM audit.judged_messages m WHERE m.unit = 'charged' AND m.sender_id = %s"
        " AND NOT (m.batch_id, m.seq) IN (SELECT e.batch_id, unnest(e.seqs) FROM message_event e"
        " WHERE e.from_status = 'pending' AND e.event = 'delivered')",
        (SENDER,),
    ).fetchone()
    assert found is not None
    for limit, breaches in ((found["n"], 0), (found["n"] - 1, 1)):
        session.execute("UPDATE audit.limit_history SET daily_limit = %s WHERE owner = %s", (limit, SENDER))
        rows = read(session, "violation_limits")
        assert [row["off_by"] for row in rows] == [1] * breaches


def test_a_window_is_half_open(session: Connection) -> None:
    """What left exactly one window ago does not count any more."""
    session.execute("UPDATE audit.limit_history SET daily_limit = 1 WHERE owner = %s", (SENDER,))
    session.execute("UPDATE audit.setting SET value = 0.2 WHERE name = 'window_s'")
    session.execute("UPDATE audit.setting SET value = 0.001 WHERE name = 'bucket_s'")
    close = "SELECT count(*) AS n FROM audit.violation_limits WHERE what LIKE 'more accepted%%'"
    assert session.execute(close).fetchone() == {"n": 0}
    session.execute("UPDATE audit.setting SET value = 0.200001 WHERE name = 'window_s'")
    found = session.execute(close).fetchone()
    assert found is not None
    assert found["n"] > 0


def test_a_lowered_limit_is_judged_as_it_was_at_the_claim(session: Connection) -> None:
    session.execute("UPDATE business_manager SET daily_limit_override = 1 WHERE id = %s", (BM,))
    assert read(session, "violation_limits") == []
    over = read(session, "over_limit")
    assert [(row["kind"], row["owner"], row["daily_limit"]) for row in over] == [("bm", BM, 1)]
    assert over[0]["over"] == over[0]["used"] + over[0]["held"] - 1


def test_a_sender_that_was_taken_from_its_account_later_was_its_own_before(session: Connection) -> None:
    session.execute("DELETE FROM sender_account WHERE account_id = %s", (ACCOUNT,))
    assert read(session, "violation_tenants") == []


def test_a_batch_that_waits_with_a_reason_is_no_violation(session: Connection, world: World) -> None:
    tamper(
        session,
        world,
        IMPATIENT,
        "UPDATE batch SET blocked_by = 'capacity', next_attempt_at = now() + interval '1 hour' WHERE id = %(running)s",
    )
    assert read(session, "violation_stalled") == []


def test_batches_that_were_settled_long_ago_are_judged_on_demand(session: Connection, world: World) -> None:
    tamper(
        session,
        world,
        "UPDATE batch SET settled_at = now() - interval '3 days' WHERE id = %(settled)s",
        "UPDATE message SET status = 'unknown' WHERE batch_id = %(settled)s AND seq = 1",
    )
    assert read(session, "violation_lifecycle") == []
    session.execute("SET LOCAL carteiro.audit_lookback = '4 days'")
    assert [row["seq"] for row in read(session, "violation_lifecycle")] == [1]


def test_looking_back_never_cuts_a_window_in_two(session: Connection) -> None:
    session.execute("SET LOCAL carteiro.audit_lookback = '1 second'")
    row = session.execute("SELECT now() - audit.judged_since() AS back").fetchone()
    assert row is not None
    assert row["back"].total_seconds() == 2 * 86_400


# Reading ------------------------------------------------------------------------------------------------------------


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
    assert [row["shown"] for row in rows] == ["***0001", "***5", "***", "***"]


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
