"""What a broadcast has beside its batch."""

from sqlalchemy import Column, ForeignKey, Index, Table, Text
from sqlalchemy.dialects.postgresql import JSONB

from carteiro.storage.tables.columns import metadata, uuid

broadcast = Table(
    "broadcast",
    metadata,
    uuid("batch_id", ForeignKey("batch.id"), primary_key=True),
    Column("public_id", Text, nullable=False, unique=True, comment="short, cannot be guessed, may be shown"),
    Column("owner_id", Text, nullable=False, comment="the person of the directory on whose behalf it was posted"),
    Column("group_id", Text, nullable=False, comment="the group of the directory that was addressed"),
    Column("variables", JSONB, nullable=False, comment="what the template's placeholders say, the same to everybody"),
    Index(None, "owner_id"),
    comment="what a broadcast has beside its batch, whose id it shares",
)
