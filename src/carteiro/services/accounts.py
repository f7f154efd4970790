"""Credits of an account: granting them, and reading the balance and what moved it."""

from dataclasses import dataclass

from carteiro.domain.errors import NotFound
from carteiro.storage import accounts, ledger
from carteiro.storage.ledger import Entry
from carteiro.storage.pool import Pool, transact


@dataclass(frozen=True, slots=True)
class Credits:
    """`balance` belongs to `billing_account_id`, which may pay for several accounts."""

    account_id: str
    billing_account_id: str
    balance: int


async def grant_credits(
    pool: Pool, account_id: str, amount: int, *, cause: str, actor: str, once: bool = False
) -> int | None:
    """Add credits to the account itself; its balance after that. With `once` None when this cause was granted before.

    Raises LookupError for an unknown account, ValueError for an amount that is not above zero.
    """
    if amount <= 0:
        raise ValueError("the amount must be above 0")
    async with transact(pool) as conn:
        return await ledger.grant(conn, account_id, amount, cause, actor, once=once)


async def read_credits(pool: Pool, account_id: str) -> Credits:
    """What the account may spend. Raises NotFound."""
    async with pool.connection() as conn:
        account = await accounts.read_account(conn, account_id)
        if account is None:
            raise NotFound(f"There is no account {account_id}.")
        balance = await ledger.read_balance(conn, account.billing_account_id)
    return Credits(account.id, account.billing_account_id, balance or 0)


async def read_callback_secret(pool: Pool, account_id: str) -> str:
    """What callbacks to the account are signed with (Standard Webhooks). Raises NotFound."""
    async with pool.connection() as conn:
        account = await accounts.read_account(conn, account_id)
    if account is None:
        raise NotFound(f"There is no account {account_id}.")
    return account.callback_secret


async def read_entries(
    pool: Pool, *, account_id: str, billing_account_id: str, before_id: int | None, limit: int
) -> list[Entry]:
    """Changes of the balance, newest first; of another account's credits only what this account's batches moved."""
    async with pool.connection() as conn:
        return await ledger.read_entries(
            conn,
            account_id=account_id,
            billing_account_id=billing_account_id,
            before_id=ledger.HIGHEST_ID if before_id is None else before_id,
            limit=limit,
        )
