"""SQLAlchemy Core tables: what Alembic migrates. Import `metadata` from here, so that every table is known to it."""

from carteiro.storage.tables import (
    accounts,
    batches,
    broadcasts,
    capacity,
    catalog,
    claims,
    follow_ups,
    group_links,
    lifecycle,
    messages,
    receipts,
    retention,
    suppression,
)
from carteiro.storage.tables.columns import metadata

__all__ = [
    "accounts",
    "batches",
    "broadcasts",
    "capacity",
    "catalog",
    "claims",
    "follow_ups",
    "group_links",
    "lifecycle",
    "messages",
    "metadata",
    "receipts",
    "retention",
    "suppression",
]
