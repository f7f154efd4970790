"""Each violation view of schema `audit` is empty on a legal history, and sees what it is there for."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, LiteralString

import pytest

from tests.support.audit import Connection, read, tamper, views_of
from tests.support.lives import ACCOUNT, BM, SENDER, World

VIOLATIONS = Path(__file__).parents[2] / "alembic" / "sql" / "0003_violations.sql"


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


def test_a_clock_that_was_set_back_leaves_the_order_of_the_changes(session: Connection, world: World) -> None:
    tamper(session, world, "UPDATE message_event SET at = now() + interval '1 hour' - id * interval '1 ms'")
    assert read(session, "violation_lifecycle") == []
    assert read(session, "violation_resend") == []
    rows = session.execute(
        "SELECT array_agg(to_status ORDER BY event_id NULLS FIRST) AS states FROM audit.message_history"
        " WHERE batch_id = %s AND seq = 6",
        [world.running],
    ).fetchall()
    assert rows[0]["states"] == ["pending", "pending_send", "unknown", "pending", "pending_send", "sent"]


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


def test_a_distance_that_nobody_could_see_is_not_asked_for(session: Connection, world: World) -> None:
    """Calls start up to the tolerated lateness after their slots."""
    close = {"batch": world.running}
    session.execute(
        "UPDATE message SET slot_at = slot_at + interval '0.15 seconds' WHERE batch_id = %(batch)s AND seq = 1", close
    )
    assert read(session, "violation_pacing") != []
    session.execute("UPDATE audit.setting SET value = 1 WHERE name = 'lateness_s'")
    assert read(session, "violation_pacing") == []
