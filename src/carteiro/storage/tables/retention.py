"""What is gone: partitions dropped for their age, and people erased."""

from sqlalchemy import Column, Index, Integer, LargeBinary, PrimaryKeyConstraint, Table, Text

from carteiro.storage.tables.columns import instant, metadata, serial, uuid

partition_drop = Table(
    "partition_drop",
    metadata,
    Column("parent", Text, nullable=False),
    instant("from_at", required=True),
    instant("until_at", required=True, comment="not included"),
    instant("decided_at", now=True, comment="from then on its rows count as gone"),
    instant("dropped_at", comment="null: not yet"),
    PrimaryKeyConstraint("parent", "from_at"),
    comment="partitions that were dropped for their age, or are about to be",
)

erasure_salt = Table(
    "erasure_salt",
    metadata,
    Column("salt", LargeBinary, nullable=False),
    comment="one row: without it nobody can try out whose hash an erasure shows",
)

erasure = Table(
    "erasure",
    metadata,
    serial(primary_key=True),
    instant("at", now=True),
    Column("phone_hash", LargeBinary, nullable=False),
    uuid(
        "batch_id",
        comment="the batch whose messages were erased; null: what was erased elsewhere, and the end of the work",
    ),
    Column("messages", Integer, nullable=False, server_default="0"),
    Column("payloads", Integer, nullable=False, server_default="0", comment="raw receipts and inbound messages"),
    Column("actor", Text, nullable=False),
    Column("reason", Text),
    Index(None, "phone_hash"),
    Index(None, "batch_id"),
    comment="append-only: what was erased of whom, by a salted hash of the phone",
)
