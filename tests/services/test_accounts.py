"""Credits: granted, shown, and never lost between balance and ledger."""

import pytest

from carteiro.domain.errors import NotFound
from carteiro.services.accounts import grant_credits, read_credits, read_entries
from carteiro.storage.pool import Pool
from tests.support import factories
from tests.support.factories import add_account, add_batch, value


async def test_a_grant_is_in_balance_and_ledger(pool: Pool) -> None:
    await add_account(pool)
    assert await grant_credits(pool, "acme", 100, cause="invoice 1", actor="operator:ana") == 100
    assert await grant_credits(pool, "acme", 20, cause="invoice 2", actor="operator:ana") == 120
    entries = await read_entries(pool, account_id="acme", billing_account_id="acme", before_id=None, limit=10)
    assert [(entry.kind, entry.amount, entry.balance_after, entry.cause) for entry in entries] == [
        ("grant", 20, 120, "invoice 2"),
        ("grant", 100, 100, "invoice 1"),
    ]


async def test_a_grant_that_is_made_once_is_not_repeated(pool: Pool) -> None:
    await add_account(pool)
    assert await grant_credits(pool, "acme", 100, cause="invoice 1", actor="test", once=True) == 100
    assert await grant_credits(pool, "acme", 100, cause="invoice 1", actor="test", once=True) is None
    assert (await read_credits(pool, "acme")).balance == 100


async def test_a_grant_needs_an_account_and_an_amount(pool: Pool) -> None:
    with pytest.raises(LookupError):
        await grant_credits(pool, "nobody", 1, cause="x", actor="test")
    with pytest.raises(ValueError, match="above 0"):
        await grant_credits(pool, "nobody", 0, cause="x", actor="test")
    with pytest.raises(NotFound):
        await read_credits(pool, "nobody")


async def test_an_account_that_bills_to_another_spends_that_ones_credits_and_sees_its_own_entries(pool: Pool) -> None:
    await add_account(pool, credits=100, bills_to="payer")
    await add_batch(pool, 3)
    credits = await read_credits(pool, "acme")
    assert (credits.billing_account_id, credits.balance) == ("payer", 97)
    own = await read_entries(pool, account_id="acme", billing_account_id="payer", before_id=None, limit=10)
    assert [entry.amount for entry in own] == [-3]
    all_of_it = await read_entries(pool, account_id="payer", billing_account_id="payer", before_id=None, limit=10)
    assert [entry.amount for entry in all_of_it] == [-3, 100]


async def test_the_ledger_sums_to_the_balance(pool: Pool) -> None:
    await add_account(pool, credits=100)
    for number in range(3):
        await add_batch(pool, 5, start=number * 10)
    assert await value(pool, "SELECT sum(amount) FROM ledger_entry") == await value(pool, "SELECT balance FROM account")


def test_phones_of_the_factories_differ() -> None:
    assert len({factories.phone(number) for number in range(1_000)}) == 1_000
