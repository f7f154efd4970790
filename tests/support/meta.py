"""An account that sends by Meta, for tests of what Meta tells."""

from uuid import UUID

from carteiro.storage.pool import Pool, transact
from tests.support import batches

NUMBERS = ("109000000000001", "109000000000002")
"""Of the account; the first one sent everything."""
STRANGER = "109000000000009"
"""Of another account."""


async def add_meta_batch(pool: Pool, pasts: list[str]) -> UUID:
    """A batch of an account with two numbers at Meta, beside another account with a number of its own."""
    async with transact(pool) as conn:
        await batches.add_service(conn)
        await conn.execute("UPDATE service SET provider = 'meta'")
        await conn.execute("UPDATE sender SET provider_ref = %s, waba_id = '208000000000001'", (NUMBERS[0],))
        await conn.execute("INSERT INTO account (id, callback_secret) VALUES ('other', 'whsec_MfKQ')")
        for sender, number, account in (("2", NUMBERS[1], batches.ACCOUNT), ("3", STRANGER, "other")):
            await conn.execute(
                "INSERT INTO sender (id, business_manager_id, provider_ref) VALUES (%s, %s, %s)",
                (sender, batches.BM, number),
            )
            await conn.execute("INSERT INTO sender_account (account_id, sender_id) VALUES (%s, %s)", (account, sender))
        return await batches.add_batch(conn, pasts)


async def results(pool: Pool) -> dict[str, int]:
    async with pool.connection() as conn:
        cursor = await conn.execute("SELECT result, count(*)::int FROM receipt GROUP BY result")
        return dict(await cursor.fetchall())
