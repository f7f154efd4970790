"""Credits: the balance of an account and the append-only entries behind it. Amounts are in credits and above zero."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection, AsyncCursor
from psycopg.rows import args_row

from carteiro.storage.later import Later
from carteiro.storage.statements import load

SQL = load("ledger")

HIGHEST_ID = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Entry:
    """One change of a balance; `amount` is negative where credits were taken."""

    id: int
    at: datetime
    kind: str
    amount: int
    balance_after: int
    cause: str
    batch_id: UUID | None


async def grant(
    conn: AsyncConnection[Any], account_id: str, amount: int, cause: str, actor: str, *, once: bool = False
) -> int | None:
    """Add credits; the balance after it. With `once` None when the account has a grant of this cause already.

    Locks the account row. Raises LookupError for an unknown account.
    """
    await lock_account(conn, account_id)
    if once:
        cursor = await conn.execute(SQL.has_grant, {"account_id": account_id, "cause": cause})
        if await _number(cursor):
            return None
    cursor = await conn.execute(SQL.grant, {"account_id": account_id, "amount": amount, "cause": cause, "actor": actor})
    return await _number(cursor)


async def debit(
    conn: AsyncConnection[Any], account_id: str, amount: int, *, batch_id: UUID, cause: str, actor: str
) -> Later[int | None]:
    """Take credits for a batch; the balance after it, or None when there are too few. Locks the account row."""
    cursor = await conn.execute(
        SQL.debit,
        {"account_id": account_id, "amount": amount, "batch_id": batch_id, "cause": cause, "actor": actor},
    )
    return Later(lambda: _number(cursor))


async def refund(
    conn: AsyncConnection[Any], account_id: str, batch_id: UUID, amount: int, cause: str, actor: str
) -> int | None:
    """Give credits of a batch back, once per (batch, cause); the balance after it, or None when it was done before.

    Locks the account row: the caller has locked the batch. Raises LookupError for an unknown account.
    """
    await lock_account(conn, account_id)
    cursor = await conn.execute(
        SQL.refund,
        {"account_id": account_id, "batch_id": batch_id, "amount": amount, "cause": cause, "actor": actor},
    )
    return await _number(cursor)


async def lock_account(conn: AsyncConnection[Any], account_id: str) -> int:
    """Lock the account row against other changes of its balance, and read that. Raises LookupError."""
    cursor = await conn.execute(SQL.lock_account, {"account_id": account_id})
    balance = await _number(cursor)
    if balance is None:
        raise LookupError(f"there is no account {account_id}")
    return balance


async def read_balance(conn: AsyncConnection[Any], account_id: str) -> int | None:
    """Credits of the account itself, not of the one it bills to; None when it does not exist."""
    cursor = await conn.execute(SQL.balance, {"account_id": account_id})
    return await _number(cursor)


async def read_entries(
    conn: AsyncConnection[Any], *, account_id: str, billing_account_id: str, before_id: int = HIGHEST_ID, limit: int
) -> list[Entry]:
    """Newest first, below `before_id`: all of the billing account's own, else only those of the account's batches."""
    async with conn.cursor(row_factory=args_row(Entry)) as cursor:
        await cursor.execute(
            SQL.entries,
            {
                "account_id": account_id,
                "billing_account_id": billing_account_id,
                "before_id": before_id,
                "limit": limit,
            },
        )
        return await cursor.fetchall()


async def _number(cursor: AsyncCursor[Any]) -> int | None:
    row = await cursor.fetchone()
    return int(row[0]) if row else None
