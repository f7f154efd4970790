"""What a group link or a reminder has beside its batch of one."""

from sqlalchemy import Column, ForeignKey, Index, Table, Text

from carteiro.storage.tables.columns import metadata, one_of, uuid

group_link = Table(
    "group_link",
    metadata,
    uuid("batch_id", ForeignKey("batch.id"), primary_key=True),
    Column("account_id", Text, nullable=False),
    Column("flow", Text, nullable=False),
    one_of("flow", "personal", "business"),
    Index(None, "account_id", "batch_id"),
    comment="what a group link or reminder has beside its batch of one; goes by age, its batch stays",
)
