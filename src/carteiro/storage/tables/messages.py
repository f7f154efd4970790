"""The outbox: one row per contact of a batch. Hot and narrow apart from cold and wide."""

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    Column,
    Index,
    Integer,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from carteiro.domain.lifecycle import MessageState
from carteiro.storage.tables.columns import instant, metadata, one_of, uuid

message = Table(
    "message",
    metadata,
    uuid("batch_id", nullable=False),
    Column("seq", Integer, nullable=False, comment="from 1, dense"),
    Column("phone_key", BigInteger, nullable=False, comment="phone identity, domain/phones.py"),
    Column("status", Text, nullable=False, server_default=MessageState.PENDING),
    Column("event", Text, nullable=False, server_default="created", comment="the lifecycle event that last moved it"),
    Column("attempt", SmallInteger, nullable=False, server_default="0", comment="calls that certainly did not send"),
    Column("claim_id", BigInteger, comment="the last claim: the fence"),
    Column("sender_id", Text),
    Column("business_manager_id", Text),
    instant("slot_at"),
    instant("bucket_at"),
    Column(
        "unit_returned",
        Boolean,
        nullable=False,
        server_default="false",
        comment="its unit of capacity was given back: late evidence that it went charges it again",
    ),
    Column("provider_id", Text, comment="the provider's own id, where it is not ours"),
    Column("code", Text, comment="the provider's or our code of the last refusal"),
    instant("sent_at"),
    instant("delivered_at"),
    instant("seen_at"),
    instant("failed_at"),
    instant("assumed_at"),
    instant("gave_up_at"),
    instant("unknown_at"),
    Column(
        "charged", Boolean, comment="frozen when the row changes after its batch was settled; null: as its state says"
    ),
    PrimaryKeyConstraint("batch_id", "seq"),
    # By phone first: a look-up by batch alone must never be tempted to read a million rows through it.
    UniqueConstraint("phone_key", "batch_id"),
    one_of("status", *MessageState),
    postgresql_partition_by="RANGE (batch_id)",
    comment="no index on status and none with it in its predicate: state changes stay HOT",
)

message_content = Table(
    "message_content",
    metadata,
    uuid("batch_id", nullable=False),
    Column("seq", Integer, nullable=False),
    Column("address", Text, nullable=False, comment="E.164 digits, as sent"),
    Column("placeholders", ARRAY(Text), nullable=False),
    Column("extra", JSONB, comment="header media and button parameters of this contact"),
    PrimaryKeyConstraint("batch_id", "seq"),
    postgresql_partition_by="RANGE (batch_id)",
)

message_event = Table(
    "message_event",
    metadata,
    instant("at", now=True),
    uuid("batch_id", nullable=False),
    Column("event", Text, nullable=False),
    Column("from_status", Text, nullable=False),
    Column("to_status", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("claim_id", BigInteger),
    Column("attempt", SmallInteger, nullable=False),
    Column("code", Text),
    Column("seqs", ARRAY(Integer), nullable=False, comment="the messages that moved alike in one statement"),
    Column(
        "id",
        BigInteger,
        nullable=False,
        server_default=text("nextval('message_event_id_seq')"),
        comment="the order of the changes of one message, whatever the clock said",
    ),
    Index(None, "batch_id", "at"),
    postgresql_partition_by="RANGE (at)",
    comment="append-only: every change of a message; audit.message_history gives it a row a message",
)

message_return = Table(
    "message_return",
    metadata,
    uuid("batch_id", primary_key=True),
    Column("seq", Integer, primary_key=True),
    instant("available_at", now=True),
    Column(
        "together",
        SmallInteger,
        comment="most messages in its next request: half of the one that was refused as a whole; null: any",
    ),
    comment="rows behind their batch's cursor that are pending again: deleted on claim",
)

message_alias = Table(
    "message_alias",
    metadata,
    Column("provider_id", Text, primary_key=True),
    uuid("batch_id", nullable=False),
    Column("seq", Integer, nullable=False),
    Column(
        "followup", Boolean, nullable=False, server_default="false", comment="it is the id of the message's follow-up"
    ),
    instant("at", now=True),
    Index(None, "batch_id", "seq"),
    comment="messages by the provider's own id, where that is not ours",
)

pair_wait = Table(
    "pair_wait",
    metadata,
    uuid("batch_id", primary_key=True),
    Column("seq", Integer, primary_key=True),
    Column("waits", SmallInteger, nullable=False),
    comment="how often the provider said that a message's contact gets too many from its sender: each time its wait is"
    " longer",
)

message_unknown = Table(
    "message_unknown",
    metadata,
    uuid("batch_id", primary_key=True),
    Column("seq", Integer, primary_key=True),
    instant("since_at", now=True),
    instant("look_at", now=True),
    Column("absent", SmallInteger, nullable=False, server_default="0", comment="times that the log did not have it"),
    Column(
        "duplicate", Boolean, nullable=False, server_default="false", comment="its id was known there: never absent"
    ),
    Index(None, "look_at"),
    comment="rows whose outcome is to be looked up",
)
