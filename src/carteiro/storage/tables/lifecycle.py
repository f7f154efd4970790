"""The edges of the state machines, in the database."""

from sqlalchemy import Column, Table, Text

from carteiro.storage.tables.columns import metadata

lifecycle_edge = Table(
    "lifecycle_edge",
    metadata,
    Column("machine", Text, primary_key=True),
    Column("event", Text, primary_key=True),
    Column("source", Text, primary_key=True),
    Column("target", Text, nullable=False),
    comment="domain/lifecycle.py, as rows: what the guarded UPDATEs join",
)
