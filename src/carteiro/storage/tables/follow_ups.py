"""What is sent once to a contact who answers: a row a message, and its history."""

from sqlalchemy import BigInteger, Column, Index, Integer, PrimaryKeyConstraint, SmallInteger, Table, Text, text

from carteiro.domain.lifecycle import MessageState
from carteiro.storage.tables.columns import instant, metadata, one_of, serial, uuid

follow_up = Table(
    "follow_up",
    metadata,
    uuid("batch_id", nullable=False),
    Column("seq", Integer, nullable=False),
    Column("account_id", Text, nullable=False),
    Column("service_id", Text, nullable=False),
    Column(
        "sender_id",
        Text,
        nullable=False,
        comment="who sent the message: the contact's window is open with this number alone",
    ),
    Column("business_manager_id", Text, nullable=False),
    Column("status", Text, nullable=False, server_default=MessageState.PENDING),
    Column("event", Text, nullable=False, server_default="answered", comment="the lifecycle event that last moved it"),
    instant("created_at", now=True),
    instant("answered_at", required=True, comment="when the contact wrote, by the provider's clock"),
    Column(
        "answered_by",
        Text,
        nullable=False,
        comment="how the answer was found to be one: it named the message, or by who wrote it",
    ),
    instant("window_until", required=True, comment="until when it may be sent"),
    instant("available_at", now=True, comment="not claimed before"),
    Column("attempt", SmallInteger, nullable=False, server_default="0", comment="calls that certainly did not send"),
    Column("claim_id", BigInteger, comment="the last claim: the fence"),
    instant("slot_at"),
    Column("provider_id", Text, comment="the provider's own id, where it is not ours"),
    Column("code", Text, comment="the provider's or our code: why it failed, waits or was not sent"),
    instant("sent_at"),
    instant("delivered_at"),
    instant("seen_at"),
    instant("failed_at"),
    instant("gave_up_at"),
    instant("unknown_at"),
    instant("look_at", comment="when its unknown outcome is looked up next"),
    instant("changed_at", now=True, comment="when it came into its state"),
    PrimaryKeyConstraint("batch_id", "seq"),
    one_of("status", *MessageState),
    one_of("answered_by", "context", "phone"),
    Index("follow_up_pending_idx", "service_id", "available_at", postgresql_where=text("status = 'pending'")),
    Index("follow_up_unknown_idx", "look_at", postgresql_where=text("status = 'unknown'")),
    postgresql_with={"fillfactor": "70"},
    comment="what is sent once to a contact who answered a message: one row a message, made by its first answer",
)

follow_up_event = Table(
    "follow_up_event",
    metadata,
    serial(primary_key=True),
    instant("at", now=True),
    uuid("batch_id", nullable=False),
    Column("seq", Integer, nullable=False),
    Column("event", Text, nullable=False),
    Column("from_status", Text),
    Column("to_status", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("claim_id", BigInteger),
    Column("attempt", SmallInteger, nullable=False),
    Column("code", Text),
    Index(None, "batch_id", "seq"),
    Index(None, "at"),
    comment="append-only: every change of a follow-up; goes with the history of messages of its week",
)
