"""Batches put straight into a state, along legal edges, for tests that begin in the middle of a life."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, LiteralString
from uuid import UUID

from psycopg import AsyncConnection
from uuid_utils.compat import uuid7

ACCOUNT = "acme"
SERVICE = "acme-utility"
TOKEN = "token-of-acme"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
BM = "bm1"
SENDER = "5511400010001"
SENT_AT = datetime(2026, 11, 2, 12, 0, tzinfo=UTC)

Connection = AsyncConnection[Any]

CLAIMED = (
    "claimed",
    "pending_send",
    "claim_id = %(claim)s, sender_id = %(sender)s, business_manager_id = %(bm)s, slot_at = %(at)s, bucket_at = %(at)s",
)

STEPS: dict[str, tuple[tuple[str, str, str], ...]] = {
    "pending": (),
    "given_back": (CLAIMED, ("given_back", "pending", "unit_returned = true")),
    "pending_send": (CLAIMED,),
    "unknown": (CLAIMED, ("lost", "unknown", "unknown_at = %(at)s")),
    "sent": (CLAIMED, ("sent", "sent", "sent_at = %(at)s")),
    "delivered": (CLAIMED, ("delivered", "delivered", "sent_at = %(at)s, delivered_at = %(at)s")),
    "seen": (CLAIMED, ("seen", "seen", "sent_at = %(at)s, seen_at = %(at)s")),
    "failed": (CLAIMED, ("failed", "failed", "failed_at = %(at)s, code = 'EC_0'")),
    "assumed": (
        CLAIMED,
        ("sent", "sent", "sent_at = %(at)s"),
        ("assumed", "delivered", "assumed_at = %(at)s"),
    ),
    "gave_up": (
        CLAIMED,
        ("lost", "unknown", "unknown_at = %(at)s"),
        ("gave_up", "failed", "gave_up_at = %(at)s, code = 'OUTCOME_UNKNOWN'"),
    ),
    "guarded": (("guarded", "failed", "failed_at = %(at)s, code = 'MISSING_PLACEHOLDER'"),),
    "unsent": (("withdrawn", "unsent", ""),),
    "dropped": (CLAIMED, ("dropped", "unsent", "")),
}
"""What a message can have gone through, by a name of its own: steps of (event, status, what else is set)."""


async def add_service(conn: Connection, *, balance: int = 0, charge_rule: str = "sent_only") -> None:
    """The account, its service at Infobip, and one sender of one business manager."""
    await conn.execute(
        "INSERT INTO account (id, balance, callback_secret) VALUES (%s, %s, %s)", (ACCOUNT, balance, SECRET)
    )
    await conn.execute(
        "INSERT INTO service (id, account_id, provider, base_url, api_key_env, webhook_token, messages_per_second,"
        " charge_rule) VALUES (%s, %s, 'infobip', 'http://127.0.0.1:1', 'KEY', %s, 80, %s)",
        (SERVICE, ACCOUNT, TOKEN, charge_rule),
    )
    await conn.execute("INSERT INTO business_manager (id, daily_limit_override) VALUES (%s, 1000)", (BM,))
    await conn.execute("INSERT INTO sender (id, business_manager_id) VALUES (%s, %s)", (SENDER, BM))
    await conn.execute("INSERT INTO sender_account (account_id, sender_id) VALUES (%s, %s)", (ACCOUNT, SENDER))
    await conn.execute("INSERT INTO capacity_meter (kind, owner) VALUES ('bm', %s), ('sender', %s)", (BM, SENDER))


async def add_batch(
    conn: Connection,
    pasts: Sequence[str],
    *,
    events: Sequence[str] = ("opened", "started"),
    debited: int | None = None,
    refunded: int = 0,
    charge_rule: str = "sent_only",
    callback_url: str | None = None,
    reference: str | None = None,
    held: int = 0,
    at: datetime = SENT_AT,
) -> UUID:
    """A batch whose messages, seq from 1, have the named pasts, and which went through the named batch events.

    Messages were claimed and know their facts since `at`. `held` is what the batch still holds on BM.
    """
    batch_id = uuid7()
    await conn.execute(
        "INSERT INTO batch (id, account_id, billing_account_id, service_id, total, debited, refunded, charge_rule,"
        " template_name, template_language, template_signature, template_content, request_signature, callback_url,"
        " reference, turn_at)"
        " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, 'order_update', 'pt_BR', '', '{}', '', %s, %s, %s)",
        (
            batch_id,
            ACCOUNT,
            ACCOUNT,
            SERVICE,
            len(pasts),
            len(pasts) if debited is None else debited,
            refunded,
            charge_rule,
            callback_url,
            reference,
            at,
        ),
    )
    await conn.execute(
        "INSERT INTO message (batch_id, seq, phone_key) SELECT %s, seq, seq FROM generate_series(1, %s) AS seq",
        (batch_id, len(pasts)),
    )
    for past in sorted(set(pasts)):
        seqs = [seq for seq, name in enumerate(pasts, start=1) if name == past]
        await _live_through(conn, batch_id, past, seqs, at)
    for event in events:
        await conn.execute(
            "UPDATE batch b SET status = e.target, event = e.event FROM lifecycle_edge e"
            " WHERE b.id = %s AND e.machine = 'batch' AND e.event = %s AND e.source = b.status",
            (batch_id, event),
        )
    if held:
        await conn.execute("INSERT INTO capacity_hold VALUES (%s, %s, %s)", (batch_id, BM, held))
        await conn.execute("UPDATE capacity_meter SET held = held + %s WHERE kind = 'bm' AND owner = %s", (held, BM))
    return batch_id


async def _live_through(conn: Connection, batch_id: UUID, past: str, seqs: list[int], at: datetime) -> None:
    steps = STEPS[past]
    params = {
        "batch": batch_id,
        "seqs": seqs,
        "at": at,
        "claim": await _claim(conn, batch_id, seqs, at) if CLAIMED in steps else None,
        "sender": SENDER,
        "bm": BM,
    }
    for event, status, also in steps:
        changes = f"status = '{status}', event = '{event}'" + (f", {also}" if also else "")
        await conn.execute(
            f"UPDATE message SET {changes} WHERE batch_id = %(batch)s AND seq = ANY(%(seqs)s)".encode(), params
        )
    if past == "unknown":
        await conn.execute("INSERT INTO message_unknown (batch_id, seq) SELECT %(batch)s, unnest(%(seqs)s)", params)
    if past == "given_back":
        await conn.execute("INSERT INTO message_return (batch_id, seq) SELECT %(batch)s, unnest(%(seqs)s)", params)


async def _claim(conn: Connection, batch_id: UUID, seqs: list[int], at: datetime) -> int:
    cursor = await conn.execute(
        "INSERT INTO claim (batch_id, service_id, worker_id, seqs, size, open, last_slot_at, lease_until)"
        " VALUES (%s, %s, 'w1', %s, %s, %s, %s, clock_timestamp() + interval '1 minute') RETURNING id",
        (batch_id, SERVICE, seqs, len(seqs), len(seqs), at),
    )
    row = await cursor.fetchone()
    assert row is not None
    return int(row[0])


async def status_of(conn: Connection, batch_id: UUID, seq: int = 1) -> str:
    cursor = await conn.execute("SELECT status FROM message WHERE batch_id = %s AND seq = %s", (batch_id, seq))
    row = await cursor.fetchone()
    assert row is not None
    return str(row[0])


async def one(conn: Connection, query: LiteralString, *params: object) -> Any:
    """The only row of a query, or its only column."""
    cursor = await conn.execute(query, params)
    rows = await cursor.fetchall()
    assert len(rows) == 1, rows
    return rows[0] if len(rows[0]) > 1 else rows[0][0]
