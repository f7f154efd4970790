"""One request, its counts, its history, and the claims that make a repeat harmless."""

from sqlalchemy import CheckConstraint, Column, ForeignKey, Index, Integer, LargeBinary, SmallInteger, Table, Text, text
from sqlalchemy.dialects.postgresql import DOUBLE_PRECISION, JSONB

from carteiro.domain.lifecycle import BatchState, MessageState
from carteiro.storage.tables.columns import instant, metadata, one_of, serial, uuid

batch = Table(
    "batch",
    metadata,
    uuid("id", primary_key=True, comment="time-ordered (UUIDv7): it also names the message partition"),
    Column("account_id", Text, ForeignKey("account.id"), nullable=False),
    Column("billing_account_id", Text, ForeignKey("account.id"), nullable=False),
    Column("service_id", Text, ForeignKey("service.id"), nullable=False),
    Column("status", Text, nullable=False, server_default=BatchState.DRAFT),
    Column("event", Text, nullable=False, server_default="created", comment="the lifecycle event that last moved it"),
    Column("reason", Text, comment="why it was moved, in words"),
    Column(
        "priority",
        SmallInteger,
        nullable=False,
        server_default="0",
        comment="higher goes first: single sends before bulk",
    ),
    Column("total", Integer, nullable=False),
    Column("debited", Integer, nullable=False, server_default="0", comment="credits"),
    Column("charged", Integer, nullable=False, server_default="0", comment="credits, frozen at settlement"),
    Column("refunded", Integer, nullable=False, server_default="0", comment="credits"),
    Column("charge_rule", Text, nullable=False),
    Column("template_name", Text, nullable=False),
    Column("template_language", Text, nullable=False),
    Column("template_signature", LargeBinary, nullable=False),
    Column("template_content", JSONB, nullable=False, comment="frozen at creation"),
    Column("header", JSONB, comment="header media for all contacts"),
    Column("request_signature", LargeBinary, nullable=False),
    Column("reference", Text),
    Column("callback_url", Text),
    Column("on_capacity", Text, nullable=False, server_default="reject"),
    Column("skipped", JSONB, comment="what was left out at creation: counts and first rows"),
    Column("max_attempts", SmallInteger),
    instant("created_at", now=True),
    instant("scheduled_at"),
    instant("expires_at"),
    instant("started_at"),
    instant("ended_at"),
    instant("settled_at"),
    Column("cursor_seq", Integer, nullable=False, server_default="0", comment="rows up to here have been claimed once"),
    instant("turn_at"),
    Column("blocked_by", Text),
    instant("next_attempt_at"),
    Column("error_code", Text),
    Column(
        "suppressed",
        Integer,
        nullable=False,
        server_default="0",
        comment="messages withdrawn because their contact was suppressed",
    ),
    Column(
        "door",
        Text,
        nullable=False,
        server_default="batch",
        comment="where it came in; a reminder is sent by the request that made it, and never pumped",
    ),
    uuid("parent_batch_id", ForeignKey("batch.id"), comment="the batch whose failed messages this one sends again"),
    Column(
        "retry_base_s",
        DOUBLE_PRECISION,
        comment="delay after the first attempt that did not send, times the attempt; null: the dispatcher's own",
    ),
    Column("follow_up", JSONB, comment="what is sent once to a contact who answers"),
    one_of("status", *BatchState),
    one_of("door", "batch", "broadcast", "group_link", "reminder"),
    one_of("on_capacity", "reject", "spill"),
    CheckConstraint("total > 0", name="total"),
    CheckConstraint("charged + refunded <= debited", name="money"),
    Index(None, "account_id", "id"),
    Index(None, "account_id", "status", "id"),
    Index(
        "batch_dispatchable_idx",
        "service_id",
        text("priority DESC"),
        "turn_at",
        postgresql_where=text("status IN ('pending', 'processing')"),
    ),
    Index(
        "batch_retried_once_key",
        "parent_batch_id",
        unique=True,
        postgresql_where=text("parent_batch_id IS NOT NULL AND status <> 'draft'"),
    ),
    Index(
        "batch_followed_up_idx",
        "account_id",
        text("coalesce(settled_at, 'infinity'::timestamptz)"),
        postgresql_where=text("follow_up IS NOT NULL"),
    ),
    Index(None, "parent_batch_id", postgresql_where=text("parent_batch_id IS NOT NULL")),
    Index("batch_unsettled_idx", "id", postgresql_where=text("settled_at IS NULL")),
    postgresql_with={"fillfactor": "70"},
)

_counted = ", ".join(MessageState)
batch_tally = Table(
    "batch_tally",
    metadata,
    uuid("batch_id", nullable=False),
    *(Column(state, Integer, nullable=False, server_default="0") for state in MessageState),
    Index(None, "batch_id"),
    comment=f"deltas of a batch's counts ({_counted}); their sum is exact in any snapshot, folded by the sweep",
)

batch_event = Table(
    "batch_event",
    metadata,
    serial(primary_key=True),
    instant("at", now=True),
    uuid("batch_id", nullable=False),
    Column("event", Text, nullable=False),
    Column("from_status", Text),
    Column("to_status", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("reason", Text),
    Index(None, "batch_id"),
    comment="append-only: every change of a batch",
)

batch_signature = Table(
    "batch_signature",
    metadata,
    Column("account_id", Text, primary_key=True),
    Column("signature", LargeBinary, primary_key=True),
    uuid("batch_id", nullable=False),
    instant("expires_at", required=True),
    Index(None, "expires_at"),
    comment="one row per (account, signature): an equal request inside the time gets the existing batch",
)

idempotency_key = Table(
    "idempotency_key",
    metadata,
    Column("account_id", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column(
        "scope",
        Text,
        primary_key=True,
        server_default="",
        comment="whose keys they are within the account; empty: of its batches",
    ),
    Column("request_hash", LargeBinary, nullable=False),
    uuid("batch_id", nullable=False),
    instant("created_at", now=True),
    Index(None, "created_at"),
)
