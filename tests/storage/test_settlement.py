"""The guards of a settlement, at the level of its statements."""

from carteiro.domain.lifecycle import MessageState
from carteiro.storage import settlement
from tests.support.batches import Connection, add_batch, add_service, one


async def test_totals_are_written_once(conn: Connection) -> None:
    await add_service(conn)
    batch = await add_batch(conn, ["delivered", "unsent"])
    written = await settlement.settle(conn, batch, charged=1, refund=1)
    assert written is not None
    assert (written.status, written.refunded) == ("completed", 1)
    assert await settlement.settle(conn, batch, charged=0, refund=1) is None
    assert await settlement.lock_unsettled(conn, batch) is None
    assert await one(conn, "SELECT charged, refunded, settled_at FROM batch") == (1, 1, written.settled_at)


async def test_counts_name_every_state(conn: Connection) -> None:
    await add_service(conn)
    batch = await add_batch(
        conn, ["pending", "pending_send", "unknown", "sent", "delivered", "assumed", "seen", "failed", "unsent"]
    )
    counts = await settlement.read_counts(conn, batch)
    assert counts == {state: 2 if state is MessageState.DELIVERED else 1 for state in MessageState}


async def test_counts_of_nothing_are_zero(conn: Connection) -> None:
    await add_service(conn)
    batch = await add_batch(conn, ["pending"], events=[])
    await conn.execute("DELETE FROM batch_tally")
    assert not any((await settlement.read_counts(conn, batch)).values())
    assert await settlement.settleable(conn, limit=9) == []


async def test_a_hold_of_nothing_is_removed_as_well(conn: Connection) -> None:
    await add_service(conn)
    batch = await add_batch(conn, ["delivered"])
    await conn.execute("INSERT INTO capacity_hold VALUES (%s, 'bm1', 0)", [batch])
    assert await settlement.release_holds(conn, batch) == []
    assert await one(conn, "SELECT count(*) FROM capacity_hold") == 0


async def test_only_batches_with_many_rows_are_tall(conn: Connection) -> None:
    await add_service(conn)
    tall = await add_batch(conn, ["sent", "seen"])
    short = await add_batch(conn, ["pending"])
    assert await settlement.tall_batches(conn, rows=1) == [tall]
    assert await settlement.tall_batches(conn, rows=1, among=[short]) == []
    assert await settlement.tall_batches(conn, rows=1, among=[short, tall]) == [tall]
    assert await settlement.tall_batches(conn, rows=0, among=[short]) == [short]
