"""Payloads, the inbox and the append-only record of items."""

from datetime import timedelta

import psycopg
import pytest

from carteiro.domain.outcomes import FactKind
from carteiro.storage import receipts
from carteiro.storage.pool import Pool, transact
from carteiro.storage.receipts import Posted, Receipt, Result
from tests.support.batches import SENT_AT, TOKEN, Connection, add_batch, add_service, one


async def test_a_taken_payload_is_skipped_by_others_until_it_is_let_go(pool: Pool) -> None:
    async with pool.connection() as conn:
        await add_service(conn)
        for body in (b"1", b"2", b"3"):
            await receipts.store_payloads(conn, [Posted("infobip", TOKEN, body)])
    async with transact(pool) as first:
        assert [payload.body for payload in await receipts.take_payloads(first, limit=2, bytes_max=99)] == [b"1", b"2"]
        async with transact(pool) as second:
            assert [payload.body for payload in await receipts.take_payloads(second, limit=9, bytes_max=99)] == [b"3"]
    async with transact(pool) as third:
        assert len(await receipts.take_payloads(third, limit=9, bytes_max=99)) == 3
    for most, taken in ((1, 1), (2, 2), (3, 3)):
        # Not counted by number alone: a body may have a thousand items, and what is taken is read in one transaction.
        async with transact(pool) as third:
            assert len(await receipts.take_payloads(third, limit=9, bytes_max=most)) == taken


async def test_messages_are_read_with_all_that_is_known_of_them(conn: Connection) -> None:
    await add_service(conn)
    batch = await add_batch(conn, ["pending", "assumed", "gave_up", "seen"])
    known = await receipts.lock_messages(conn, batch, [4, 3, 2, 1, 99])
    assert list(known) == [1, 2, 3, 4]
    assert (known[1].status, known[1].claimed, dict(known[1].at)) == ("pending", False, {})
    assert (known[2].claimed, set(known[2].at)) == (True, {FactKind.SENT, FactKind.ASSUMED})
    assert set(known[3].at) == {FactKind.GIVEN_UP}
    assert known[4].at == {FactKind.SENT: SENT_AT, FactKind.SEEN: SENT_AT}


async def test_batches_that_do_not_exist_are_left_out(conn: Connection) -> None:
    await add_service(conn)
    batch = await add_batch(conn, ["sent"])
    stranger = batch.__class__(int=batch.int + 1)
    assert set(await receipts.share_batches(conn, [batch, stranger])) == {batch}


async def test_the_record_of_items_is_append_only(conn: Connection) -> None:
    await add_service(conn)
    await receipts.store_payloads(conn, [Posted("infobip", TOKEN, b"")])
    (payload,) = await receipts.take_payloads(conn, limit=1, bytes_max=99)
    row = Receipt(payload, Result.APPLIED, FactKind.SENT, at=SENT_AT - timedelta(days=1))
    await receipts.record_receipts(conn, [row, Receipt(payload, Result.MALFORMED, "item", detail="x")])
    await receipts.record_receipts(conn, [])
    assert await one(conn, "SELECT count(*) FROM receipt") == 2
    for statement in (b"DELETE FROM receipt", b"UPDATE receipt SET result = 'ignored'"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            async with conn.transaction():
                await conn.execute(statement)
