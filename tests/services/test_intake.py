"""Payloads stored together: one commit, and nobody is answered before it."""

import asyncio

import pytest

from carteiro.domain.errors import Unavailable
from carteiro.services import intake
from carteiro.services.intake import Intake
from carteiro.storage.pool import Pool
from tests.support.batches import TOKEN, add_service
from tests.support.factories import value

BOTH = "SELECT (SELECT count(*) FROM receipt_payload) + (SELECT count(*) FROM receipt_inbox)"


async def test_what_comes_together_is_one_commit_and_each_is_answered_for_itself(pool: Pool) -> None:
    async with pool.connection() as conn:
        await add_service(conn)
    taking = Intake(pool)
    bodies = [str(number).encode() for number in range(40)]
    stored = await asyncio.gather(
        *(taking.store_payload("infobip", TOKEN, body) for body in bodies[:20]),
        taking.store_payload("infobip", "another", b"no such token"),
        taking.store_payload("infobip", "\x00\ud800", b"no token at all"),
        taking.store_payload("meta", TOKEN, b"another provider's"),
        *(taking.store_payload("infobip", TOKEN, body) for body in bodies[20:]),
        taking.store_posted("meta", b"everybody's"),
    )
    assert stored == [True] * 20 + [False] * 3 + [True] * 20 + [None]
    kept = await value(pool, "SELECT array_agg(body ORDER BY id) FROM receipt_payload WHERE service_id IS NOT NULL")
    assert kept == bodies
    assert await value(pool, "SELECT array_agg(body) FROM receipt_payload WHERE provider = 'meta'") == [b"everybody's"]
    assert await value(pool, "SELECT count(DISTINCT xmin::text) FROM receipt_payload") == 1
    assert await value(pool, "SELECT count(*) FROM receipt_inbox i JOIN receipt_payload p ON p.id = i.payload_id") == 41

    # One who goes before the answer takes nobody along.
    gone, *others = [asyncio.create_task(taking.store_payload("infobip", TOKEN, body)) for body in bodies]
    await asyncio.sleep(0)
    gone.cancel()
    assert await asyncio.gather(*others) == [True] * 39
    assert gone.cancelled()


async def test_a_commit_that_fails_is_told_to_all_who_wait_and_stores_nothing(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "GROUP_MAX", 3)
    async with pool.connection() as conn:
        await add_service(conn)
        await conn.execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''no space left''; END';"
            "CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON receipt_inbox INITIALLY DEFERRED"
            " FOR EACH ROW WHEN (NEW.payload_id = 3) EXECUTE FUNCTION refuse()"
        )
    taking = Intake(pool)

    async def post_all() -> list[object]:
        posting = (taking.store_payload("infobip", TOKEN, str(number).encode()) for number in range(5))
        return await asyncio.gather(*posting, return_exceptions=True)

    told = await post_all()
    assert [type(one) for one in told] == [Unavailable] * 5
    assert await value(pool, BOTH) == 0
    assert await post_all() == [True] * 5  # the next ones are stored
    assert await value(pool, BOTH) == 10


async def test_the_process_that_ends_promises_nothing(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The group under way and all who wait for the next one are refused."""
    under_way = asyncio.Event()

    async def never(*_: object) -> set[int]:
        under_way.set()
        await asyncio.Event().wait()
        return set()

    monkeypatch.setattr(intake.receipts, "store_payloads", never)
    monkeypatch.setattr(intake, "GROUP_MAX", 2)
    taking = Intake(pool)
    posting = [asyncio.create_task(taking.store_posted("meta", b"")) for _ in range(5)]
    await under_way.wait()
    storing = taking._storing
    assert storing is not None
    storing.cancel()
    told = await asyncio.gather(*posting, return_exceptions=True)
    assert [type(one) for one in told] == [Unavailable] * 5


async def test_no_more_waits_than_there_is_room_for(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "WAITING_MAX", 3)
    monkeypatch.setattr(intake, "WAITING_BYTES_MAX", 100)
    monkeypatch.setattr(intake, "GROUP_BYTES_MAX", 60)
    taking = Intake(pool)

    async def post_all(*bodies: bytes) -> list[type | None]:
        told = await asyncio.gather(*(taking.store_posted("meta", body) for body in bodies), return_exceptions=True)
        return [type(one) if one is not None else None for one in told]

    assert await post_all(b"", b"", b"", b"") == [None, None, None, Unavailable]
    assert await post_all(b"x" * 50, b"x" * 51, b"x" * 40) == [None, Unavailable, None]
    assert await value(pool, "SELECT count(*) FROM receipt_payload") == 5
    assert await value(pool, "SELECT count(DISTINCT xmin::text) FROM receipt_payload") == 3
