"""The metadata and the column types that recur."""

from typing import Any

from sqlalchemy import BigInteger, CheckConstraint, Column, DateTime, Identity, MetaData, text
from sqlalchemy.dialects.postgresql import UUID

metadata = MetaData(
    naming_convention={
        "ix": "%(table_name)s_%(column_0_N_name)s_idx",
        "uq": "%(table_name)s_%(column_0_N_name)s_key",
        "ck": "%(table_name)s_%(constraint_name)s_check",
        "fk": "%(table_name)s_%(column_0_N_name)s_fkey",
        "pk": "%(table_name)s_pkey",
    }
)

NOW = text("clock_timestamp()")


def instant(name: str, *, required: bool = False, now: bool = False, comment: str | None = None) -> Column[Any]:
    """A `timestamptz` column; `now` gives it the clock's time by default (not the transaction's)."""
    default = NOW if now else None
    return Column(
        name, DateTime(timezone=True), nullable=not (required or now), server_default=default, comment=comment
    )


def uuid(name: str, *args: Any, **options: Any) -> Column[Any]:
    return Column(name, UUID(as_uuid=True), *args, **options)


def serial(name: str = "id", **options: Any) -> Column[Any]:
    return Column(name, BigInteger, Identity(always=True), **options)


def one_of(column: str, *values: str) -> CheckConstraint:
    listed = ", ".join(f"'{value}'" for value in values)
    return CheckConstraint(f"{column} IN ({listed})", name=column)
