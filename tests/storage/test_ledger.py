"""The ledger: balance and entries move together, and a refund is made once."""

import pytest
from psycopg import AsyncConnection, errors
from uuid_utils.compat import uuid7

from carteiro.storage import ledger
from carteiro.storage.pool import Pool, transact
from tests.support.factories import add_account, add_batch, value


async def test_a_debit_takes_all_or_nothing(pool: Pool) -> None:
    await add_account(pool, credits=5)
    async with transact(pool) as conn:
        short = await (await ledger.debit(conn, "acme", 6, batch_id=uuid7(), cause="created", actor="test"))
        taken = await (await ledger.debit(conn, "acme", 5, batch_id=uuid7(), cause="created", actor="test"))
    assert (short, taken) == (None, 0)
    assert await value(pool, "SELECT array_agg(amount ORDER BY id) FROM ledger_entry") == [5, -5]


async def test_a_batch_is_debited_once_per_cause(pool: Pool) -> None:
    await add_account(pool, credits=5)
    batch_id = await add_batch(pool)
    async with pool.connection() as conn:
        with pytest.raises(errors.UniqueViolation):
            await (await ledger.debit(conn, "acme", 1, batch_id=batch_id, cause="created", actor="test"))
    assert await value(pool, "SELECT balance FROM account") == 4


async def test_a_refund_is_made_once_per_batch_and_cause(pool: Pool) -> None:
    await add_account(pool, credits=5)
    batch_id = await add_batch(pool, 4)
    async with transact(pool) as conn:
        assert await ledger.refund(conn, "acme", batch_id, 3, "settled", "test") == 4
        assert await ledger.refund(conn, "acme", batch_id, 3, "settled", "test") is None
        assert await ledger.refund(conn, "acme", batch_id, 1, "late", "test") == 5
    assert await value(pool, "SELECT sum(amount) FROM ledger_entry") == 5


async def test_entries_cannot_be_rewritten(pool: Pool) -> None:
    await add_account(pool, credits=5)
    for statement in ("UPDATE ledger_entry SET amount = 0", "DELETE FROM ledger_entry"):
        with pytest.raises(errors.InsufficientPrivilege):
            await value(pool, statement)


async def test_an_unknown_account_is_an_error(conn: AsyncConnection) -> None:
    with pytest.raises(LookupError):
        await ledger.refund(conn, "nobody", uuid7(), 1, "settled", "test")
    assert await ledger.read_balance(conn, "nobody") is None
