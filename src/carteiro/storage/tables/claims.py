"""Who works on what: workers and the slices that they hold."""

from sqlalchemy import ARRAY, Boolean, CheckConstraint, Column, Index, Integer, SmallInteger, Table, Text, text

from carteiro.storage.tables.columns import instant, metadata, serial, uuid

worker = Table(
    "worker",
    metadata,
    Column("id", Text, primary_key=True),
    instant("started_at", now=True),
    instant("seen_at", now=True),
)

lead = Table(
    "lead",
    metadata,
    Column("name", Text, primary_key=True),
    Column("holder", Text, nullable=False),
    instant("until", required=True),
    comment="what one process at a time does; two at once would only do it twice",
)

claim = Table(
    "claim",
    metadata,
    serial(primary_key=True),
    uuid("batch_id", nullable=False),
    Column("service_id", Text, nullable=False),
    Column("worker_id", Text, nullable=False),
    Column("seqs", ARRAY(Integer), nullable=False),
    Column("size", Integer, nullable=False),
    Column("open", Integer, nullable=False, comment="rows whose outcome is not recorded"),
    Column(
        "flushes",
        SmallInteger,
        nullable=False,
        server_default="0",
        comment="records made: what makes a repeated one harmless",
    ),
    instant("claimed_at", now=True),
    instant("last_slot_at", required=True),
    instant("lease_until", required=True),
    instant("closed_at"),
    Column(
        "follow_ups",
        Boolean,
        nullable=False,
        server_default="false",
        comment="its rows are follow-ups of these messages, not the messages",
    ),
    CheckConstraint("open >= 0 AND open <= size", name="open"),
    Index(None, "batch_id"),
    Index("claim_open_idx", "service_id", postgresql_where=text("closed_at IS NULL")),
    postgresql_with={"fillfactor": "70"},
    comment="a slice taken by one worker: lease and fence of its rows",
)
