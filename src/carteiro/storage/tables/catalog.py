"""What operators describe in the catalog file: services, business managers, senders, templates."""

from sqlalchemy import (
    ARRAY,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import DOUBLE_PRECISION, JSONB

from carteiro.storage.tables.columns import instant, metadata, one_of, serial

service = Table(
    "service",
    metadata,
    Column("id", Text, primary_key=True),
    Column("account_id", Text, ForeignKey("account.id"), nullable=False),
    Column("kind", Text, nullable=False, server_default="multibm", comment="the door that it serves"),
    Column("flow", Text, comment="group links: the flow that it serves; null: both"),
    Column("provider", Text, nullable=False),
    Column("base_url", Text, nullable=False),
    Column(
        "api_key_env", Text, nullable=False, comment="name of the environment variable that holds the provider's key"
    ),
    Column("webhook_token", Text, nullable=False, unique=True, comment="unguessable part of the receipts' URL"),
    Column("category", Text, nullable=False, server_default="UTILITY"),
    Column("messages_per_second", Integer, nullable=False),
    Column("charge_rule", Text, nullable=False, server_default="sent_only"),
    Column("min_batch_size", Integer, nullable=False, server_default="1"),
    Column("rotation", Text, nullable=False, server_default="round_robin"),
    Column("test_mode", Boolean, nullable=False, server_default="false", comment="batches wait for moderation"),
    Column("max_inflight", Integer, comment="null: automatic; 1: strictly serial, effective at the next claim"),
    Column("active", Boolean, nullable=False, server_default="true"),
    Column(
        "messages_per_request",
        Integer,
        nullable=False,
        server_default="1",
        comment="most in one request, where the provider takes several; effective at the next claim",
    ),
    one_of("category", "UTILITY", "MARKETING", "AUTHENTICATION"),
    one_of("kind", "multibm", "broadcast", "group_link"),
    one_of("flow", "personal", "business"),
    one_of("charge_rule", "sent_only", "full", "free"),
    one_of("rotation", "round_robin", "quality_first"),
    CheckConstraint("messages_per_second > 0", name="messages_per_second"),
    CheckConstraint("max_inflight > 0", name="max_inflight"),
    CheckConstraint("min_batch_size > 0", name="min_batch_size"),
    CheckConstraint("messages_per_request BETWEEN 1 AND 100", name="messages_per_request"),
)

service_health = Table(
    "service_health",
    metadata,
    Column("service_id", Text, ForeignKey("service.id", ondelete="CASCADE"), primary_key=True),
    Column("latency_s", DOUBLE_PRECISION, nullable=False, server_default="0.2", comment="moving average of a call"),
    Column("failures_in_a_row", Integer, nullable=False, server_default="0", comment="infrastructure failures"),
    Column("probe_s", DOUBLE_PRECISION, nullable=False, server_default="0", comment="last blackout, s; 0: none"),
    instant("wait_until"),
    Column("wait_reason", Text),
    comment="what dispatch learnt about a service; apart from the operator's description of it",
)

business_manager = Table(
    "business_manager",
    metadata,
    Column("id", Text, primary_key=True),
    Column("daily_limit_override", Integer, comment="the operator's; wins over the synced one"),
    Column("daily_limit_synced", Integer, comment="the provider's tier"),
    Column("messages_per_minute", Integer, comment="null: not paced"),
    Column("active", Boolean, nullable=False, server_default="true"),
    Column(
        "limit_note",
        Text,
        comment="the provider's word for the limit, where it is no number; an unknown one leaves the number as it was",
    ),
    instant("synced_at", comment="when the provider was last asked"),
    CheckConstraint("messages_per_minute > 0", name="messages_per_minute"),
    CheckConstraint("daily_limit_override >= 0", name="daily_limit_override"),
    comment="a Meta business portfolio: owns the 24 h limit",
)

sender = Table(
    "sender",
    metadata,
    Column("id", Text, primary_key=True, comment="E.164 digits"),
    Column("business_manager_id", Text, ForeignKey("business_manager.id"), nullable=False),
    Column("quality", Text, nullable=False, server_default="UNKNOWN"),
    Column("status", Text, nullable=False, server_default="ACTIVE"),
    Column("daily_limit", Integer, comment="null: no limit of its own"),
    Column("use_waba_limit", Boolean, nullable=False, server_default="false", comment="only the BM's limit counts"),
    Column("messages_per_second", Integer, comment="null: not paced"),
    Column("active", Boolean, nullable=False, server_default="true", comment="the operator's switch"),
    instant("stopped_until"),
    Column("provider_status", Text, comment="the provider's own word"),
    Column("sync_stopped", Text, comment="the status that the sync stopped it with: it lifts no other"),
    instant("synced_at", comment="when the provider was last asked"),
    Column("provider_ref", Text, comment="what the provider calls it (Meta: the phone number id); null: its id"),
    Column("waba_id", Text, comment="Meta: the WhatsApp business account that it belongs to"),
    instant("wait_until", comment="the provider asked this sender alone to slow down"),
    Column("wait_reason", Text),
    one_of("quality", "HIGH", "MEDIUM", "LOW", "UNKNOWN"),
    CheckConstraint("daily_limit >= 0", name="daily_limit"),
    CheckConstraint("messages_per_second > 0", name="messages_per_second"),
    Index(None, "business_manager_id"),
    Index(None, "waba_id"),
    Index("sender_provider_ref_key", "provider_ref", unique=True, postgresql_where=text("provider_ref IS NOT NULL")),
)

sender_account = Table(
    "sender_account",
    metadata,
    Column("account_id", Text, ForeignKey("account.id"), primary_key=True),
    Column("sender_id", Text, ForeignKey("sender.id", ondelete="CASCADE"), primary_key=True),
    comment="which accounts may send from a sender",
)

template = Table(
    "template",
    metadata,
    serial(primary_key=True),
    Column("name", Text, nullable=False),
    Column("language", Text, nullable=False, server_default="pt_BR"),
    Column("category", Text, nullable=False),
    Column("content", JSONB, nullable=False, comment="the structure as domain/templates.py freezes it"),
    Column("signature", LargeBinary, nullable=False),
    UniqueConstraint("name", "language"),
    one_of("category", "UTILITY", "MARKETING", "AUTHENTICATION"),
)

submission = Table(
    "submission",
    metadata,
    serial(primary_key=True),
    Column("template_id", ForeignKey("template.id", ondelete="CASCADE"), nullable=False),
    Column("business_manager_id", Text, ForeignKey("business_manager.id"), nullable=False),
    Column("physical_name", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("signature", LargeBinary, nullable=False, comment="usable only while equal to the template's"),
    Column("provider_status", Text, comment="the provider's own word"),
    Column("provider_template_id", Text, comment="the provider's id of it"),
    instant("provider_at", comment="of when that word is: an older one does not count"),
    Column(
        "parameter_names",
        ARRAY(Text),
        nullable=False,
        server_default="{}",
        comment="what the body calls its placeholders, in their order; empty: they are numbered",
    ),
    UniqueConstraint("template_id", "business_manager_id"),
    comment="a template's physical copy in one business manager",
)
