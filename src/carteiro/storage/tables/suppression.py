"""The contacts that an account must not write to."""

from sqlalchemy import BigInteger, Column, ForeignKey, Index, Integer, Table, Text, UniqueConstraint, text

from carteiro.domain.suppression import Scope, Source
from carteiro.storage.tables.columns import instant, metadata, one_of, serial

suppression = Table(
    "suppression",
    metadata,
    serial(primary_key=True),
    Column("account_id", Text, ForeignKey("account.id"), nullable=False),
    Column("phone_key", BigInteger, nullable=False, comment="phone identity, domain/phones.py"),
    Column("scope", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("reason", Text, comment="the provider's code, or the client's words"),
    instant("until", comment="null: for ever; passed: it lapsed, or was taken back"),
    Column("times", Integer, nullable=False, server_default="1", comment="cool-downs in a row"),
    instant("said_at", required=True, comment="by the source's clock: of two words the later counts"),
    Column("actor", Text, nullable=False, comment="who wrote it last"),
    instant("created_at", now=True),
    instant("changed_at", now=True),
    one_of("scope", *Scope),
    one_of("source", *Source),
    UniqueConstraint("account_id", "phone_key", "scope", "source"),
    Index(None, "account_id", "id"),
    Index("suppression_lapse_idx", "until", postgresql_where=text("until IS NOT NULL")),
    comment="contacts that an account must not write to: one row a contact, scope and source",
)
