"""Accounts: who owns batches, keys and credits, and who pays."""

from dataclasses import dataclass, field
from typing import Any

from psycopg import AsyncConnection
from psycopg.rows import args_row

from carteiro.storage.statements import load

SQL = load("accounts")


@dataclass(frozen=True, slots=True)
class Account:
    """`billing_account_id` is the account itself, or the one that it bills to (one step, never further)."""

    id: str
    billing_account_id: str
    callback_secret: str = field(repr=False)


async def read_account(conn: AsyncConnection[Any], account_id: str) -> Account | None:
    async with conn.cursor(row_factory=args_row(Account)) as cursor:
        await cursor.execute(SQL.account, {"id": account_id})
        return await cursor.fetchone()
