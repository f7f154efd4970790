"""The provider's later word: stored raw first, then merged; and our word to the client."""

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from carteiro.storage.tables.columns import instant, metadata, one_of, serial, uuid

receipt_payload = Table(
    "receipt_payload",
    metadata,
    Column("id", BigInteger, Identity(always=True), nullable=False),
    instant("received_at", now=True),
    Column("service_id", Text, comment="whose address it came to; null: the provider has one address for everybody"),
    Column("provider", Text, comment="who posted it; null: the service's provider"),
    Column("body", LargeBinary, nullable=False, comment="as it came"),
    PrimaryKeyConstraint("received_at", "id"),
    CheckConstraint("service_id IS NOT NULL OR provider IS NOT NULL", name="origin"),
    postgresql_partition_by="RANGE (received_at)",
)

receipt_inbox = Table(
    "receipt_inbox",
    metadata,
    Column("payload_id", BigInteger, primary_key=True, autoincrement=False),
    instant("received_at", required=True),
    comment="payloads not yet merged: deleted by the applier",
)

receipt_waiting = Table(
    "receipt_waiting",
    metadata,
    serial(primary_key=True),
    Column("provider_id", Text, nullable=False),
    instant("received_at", required=True),
    Column("payload_id", BigInteger, nullable=False),
    Column("kind", Text, nullable=False),
    instant("at", required=True),
    Column("code", Text),
    Column("failure", Text),
    Column("via", Text, comment="which of our numbers it was told under"),
    Index(None, "provider_id"),
    Index(None, "received_at"),
    comment="receipts that name their message by an id of the provider that we do not know yet: merged when we do,"
    " orphans after an hour",
)

receipt = Table(
    "receipt",
    metadata,
    instant("received_at", required=True),
    Column("payload_id", BigInteger, nullable=False),
    uuid("batch_id"),
    Column("seq", Integer),
    Column("kind", Text, nullable=False),
    instant("at"),
    Column("code", Text),
    Column("result", Text, nullable=False),
    Column("detail", Text),
    Index(None, "batch_id", "seq"),
    one_of("result", "applied", "repeated", "orphan", "malformed", "ignored", "late"),
    postgresql_partition_by="RANGE (received_at)",
    comment="append-only: each item of a payload and what became of it",
)

callback = Table(
    "callback",
    metadata,
    uuid("id", primary_key=True),
    uuid("batch_id", ForeignKey("batch.id"), nullable=False),
    Column("event", Text, nullable=False),
    Column("url", Text, nullable=False),
    Column("body", JSONB, nullable=False),
    instant("created_at", now=True),
    Column("attempts", Integer, nullable=False, server_default="0"),
    instant("next_attempt_at", now=True),
    instant("delivered_at"),
    instant("gave_up_at"),
    Index(None, "created_at"),
    Index("callback_once_key", "batch_id", "event", unique=True),
    Index("callback_due_idx", "next_attempt_at", postgresql_where=text("delivered_at IS NULL AND gave_up_at IS NULL")),
)

callback_attempt = Table(
    "callback_attempt",
    metadata,
    serial(primary_key=True),
    uuid("callback_id", ForeignKey("callback.id"), nullable=False),
    instant("at", now=True),
    Column("status", Integer, comment="HTTP status; null: no answer"),
    Column("error", Text),
    Index(None, "callback_id"),
)
