"""Who owns what, and whose money it is."""

from sqlalchemy import (
    ARRAY,
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    text,
)

from carteiro.storage.tables.columns import instant, metadata, one_of, serial, uuid

account = Table(
    "account",
    metadata,
    Column("id", Text, primary_key=True),
    Column("bills_to", Text, ForeignKey("account.id"), comment="another account that pays; null: itself"),
    Column("balance", BigInteger, nullable=False, server_default="0", comment="credits"),
    Column("callback_secret", Text, nullable=False, comment="Standard Webhooks secret, whsec_..."),
    instant("created_at", now=True),
    CheckConstraint("balance >= 0", name="balance"),
)

api_key = Table(
    "api_key",
    metadata,
    Column("id", Text, primary_key=True),
    Column("account_id", Text, ForeignKey("account.id"), nullable=False),
    Column("name", Text, nullable=False, server_default=""),
    Column("secret_hash", LargeBinary, nullable=False, comment="SHA-256 of the 256-bit secret"),
    Column("scopes", ARRAY(Text), nullable=False),
    instant("created_at", now=True),
    instant("expires_at"),
    instant("revoked_at"),
    instant("last_used_at"),
    Column("owner_id", Text, comment="the person of the directory on whose behalf the key speaks"),
)

ledger_entry = Table(
    "ledger_entry",
    metadata,
    serial(primary_key=True),
    Column("account_id", Text, ForeignKey("account.id"), nullable=False, comment="the billing account"),
    uuid("batch_id"),
    Column("seq", Integer, comment="set only for the late settlement of one message"),
    Column("kind", Text, nullable=False),
    Column("amount", BigInteger, nullable=False, comment="credits; negative: taken from the account"),
    Column("balance_after", BigInteger, nullable=False),
    Column("cause", Text, nullable=False),
    Column("actor", Text, nullable=False),
    instant("at", now=True),
    one_of("kind", "grant", "debit", "refund"),
    Index("ledger_entry_once_per_batch_key", "batch_id", "cause", unique=True, postgresql_where=text("seq IS NULL")),
    Index(
        "ledger_entry_once_per_message_key",
        "batch_id",
        "seq",
        "cause",
        unique=True,
        postgresql_where=text("seq IS NOT NULL"),
    ),
    Index(None, "account_id", "id"),
    comment="append-only credit entries behind account.balance",
)
