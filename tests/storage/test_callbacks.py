"""The queue of callbacks, at the level of its statements."""

from carteiro.storage import callbacks
from carteiro.storage.pool import Pool, transact
from tests.support.batches import SECRET, Connection, add_batch, add_service, one

URL = "https://example.com/hook"


async def test_a_batch_has_one_callback_of_an_event(conn: Connection) -> None:
    await add_service(conn)
    batch = await add_batch(conn, ["delivered"])
    for body in ({"n": 1}, {"n": 2}):
        await callbacks.queue(conn, batch_id=batch, event="batch.completed", url=URL, body=body)
    assert await one(conn, "SELECT body FROM callback") == {"n": 1}


async def test_a_claimed_callback_is_its_claimers_until_the_lease_is_over(conn: Connection) -> None:
    await add_service(conn)
    batch = await add_batch(conn, ["delivered"])
    await callbacks.queue(conn, batch_id=batch, event="batch.completed", url=URL, body={"n": 1})
    (due,) = await callbacks.claim_due(conn, limit=9, lease_s=60)
    assert (due.url, due.body, due.attempt, due.secret) == (URL, {"n": 1}, 1, SECRET)
    assert await callbacks.claim_due(conn, limit=9, lease_s=0) == []
    await conn.execute("UPDATE callback SET next_attempt_at = clock_timestamp()")
    (again,) = await callbacks.claim_due(conn, limit=9, lease_s=60)
    assert (again.id, again.attempt) == (due.id, 2)


async def test_a_callback_that_is_being_claimed_is_skipped_by_others(pool: Pool) -> None:
    async with pool.connection() as conn:
        await add_service(conn)
        for _ in range(2):
            batch = await add_batch(conn, ["delivered"])
            await callbacks.queue(conn, batch_id=batch, event="batch.completed", url=URL, body={})
    async with transact(pool) as first, transact(pool) as second:
        (one_due,) = await callbacks.claim_due(first, limit=1, lease_s=60)
        (other_due,) = await callbacks.claim_due(second, limit=9, lease_s=60)
        assert one_due.id != other_due.id


async def test_what_ended_is_not_due(conn: Connection) -> None:
    await add_service(conn)
    ids = []
    for _ in range(2):
        batch = await add_batch(conn, ["delivered"])
        await callbacks.queue(conn, batch_id=batch, event="batch.completed", url=URL, body={})
        ids.append(await one(conn, "SELECT id FROM callback WHERE batch_id = %s", batch))
    assert len(await callbacks.claim_due(conn, limit=9, lease_s=0)) == 2
    await callbacks.record_delivered(conn, ids[0], status=200)
    await callbacks.record_failed(conn, ids[1], attempt=1, status=410, error="answered 410", delay_s=None)
    assert await callbacks.claim_due(conn, limit=9, lease_s=60) == []
    assert await callbacks.replay(conn, ids[1])
    assert [due.id for due in await callbacks.claim_due(conn, limit=9, lease_s=60)] == [ids[1]]
