"""Receipts: stored before the answer, merged in any order, and never lost."""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable
from datetime import datetime, timedelta
from uuid import UUID

import pytest

from carteiro.domain.outcomes import Accepted, Fact, FactKind, Parsed, parse_message_key
from carteiro.services import receive
from carteiro.services.receive import apply_all, apply_payloads
from carteiro.storage.pool import Pool
from tests.support import factories
from tests.support.batches import (
    ACCOUNT,
    BM,
    SENDER,
    SENT_AT,
    TOKEN,
    Connection,
    add_batch,
    add_service,
    one,
    status_of,
)
from tests.support.dispatching import LIFTED, Bench, FakeProvider, counts, tallied
from tests.support.posting import store_payload

LATER = SENT_AT + timedelta(minutes=1)


def parse(body: bytes) -> Parsed:
    """A wire format of the tests: a JSON list of {"id", "kind", "at", ...}; anything else in the list is malformed."""
    facts, orphans, malformed, ignored = [], [], 0, 0
    for item in json.loads(body):
        if not isinstance(item, dict):
            malformed += 1
        elif item["kind"] == "typing":
            ignored += 1
        elif (key := parse_message_key(item["id"])) is None:
            orphans.append(item["id"])
        else:
            at = datetime.fromisoformat(item["at"])
            facts.append(Fact(*key, FactKind(item["kind"]), at, item.get("provider_id"), item.get("code")))
    return Parsed(tuple(facts), tuple(orphans), malformed, ignored)


def parser_of(provider: str) -> Callable[[bytes], Parsed]:
    return {"infobip": parse}[provider]


def item(batch_id: UUID, kind: str, at: datetime = LATER, *, seq: int = 1, **more: str) -> dict[str, str]:
    return {"id": f"{batch_id.hex}-{seq}", "kind": kind, "at": at.isoformat(), **more}


def body(*items: object) -> bytes:
    return json.dumps(items).encode()


async def post(pool: Pool, *items: object) -> None:
    assert await store_payload(pool, "infobip", TOKEN, body(*items))


async def results(conn: Connection) -> list[str]:
    cursor = await conn.execute("SELECT result FROM receipt ORDER BY ctid")
    return [result for (result,) in await cursor.fetchall()]


@pytest.fixture
async def db(pool: Pool) -> AsyncIterator[Connection]:
    """An autocommit connection to a database with one service."""
    async with pool.connection() as conn:
        await add_service(conn)
        yield conn


# Storing


async def test_a_body_is_kept_as_it_came_and_waits_in_the_inbox(pool: Pool, db: Connection) -> None:
    assert await store_payload(pool, "infobip", TOKEN, b"\x00not json\xff")
    stored = await one(
        db,
        "SELECT p.body, p.service_id, i.received_at = p.received_at"
        " FROM receipt_payload p JOIN receipt_inbox i ON i.payload_id = p.id",
    )
    assert stored == (b"\x00not json\xff", "acme-utility", True)


@pytest.mark.parametrize(("provider", "token"), [("infobip", "another"), ("meta", TOKEN), ("infobip", "")])
async def test_an_unknown_token_stores_nothing(pool: Pool, db: Connection, provider: str, token: str) -> None:
    assert not await store_payload(pool, provider, token, b"[]")
    assert await one(db, "SELECT (SELECT count(*) FROM receipt_payload) + (SELECT count(*) FROM receipt_inbox)") == 0


# Applying


async def test_an_applied_payload_leaves_the_inbox_and_a_row_for_each_item(pool: Pool, db: Connection) -> None:
    batch = await add_batch(db, ["sent", "sent"])
    await post(pool, item(batch, "delivered"), item(batch, "failed", seq=2, code="EC_7"))
    assert (await apply_payloads(pool, parser_of)).taken == 1
    assert (await apply_payloads(pool, parser_of)).taken == 0
    assert [await status_of(db, batch, 1), await status_of(db, batch, 2)] == ["delivered", "failed"]
    cursor = await db.execute(
        "SELECT seq, kind, at, code, result FROM receipt WHERE batch_id = %s ORDER BY seq", [batch]
    )
    assert await cursor.fetchall() == [
        (1, "delivered", LATER, None, "applied"),
        (2, "failed", LATER, "EC_7", "applied"),
    ]
    assert await one(db, "SELECT code FROM message WHERE seq = 2") == "EC_7"


async def test_a_repeated_payload_changes_nothing(pool: Pool, db: Connection) -> None:
    batch = await add_batch(db, ["sent"])
    await post(pool, item(batch, "delivered"))
    await apply_all(pool, parser_of)
    before = await one(db, "SELECT message::text FROM message")
    await post(pool, item(batch, "delivered"))
    await post(pool, item(batch, "delivered", LATER + timedelta(seconds=9)))
    await apply_all(pool, parser_of)
    assert await one(db, "SELECT message::text FROM message") == before
    assert await results(db) == ["applied", "repeated", "repeated"]
    assert await one(db, "SELECT count(*) FROM message_event WHERE event = 'delivered'") == 1


async def test_each_item_is_judged_by_itself(pool: Pool, db: Connection) -> None:
    """A repeated fact beside a new one of the same message, in one payload and in one transaction."""
    batch = await add_batch(db, ["delivered"])
    await post(pool, item(batch, "delivered"), item(batch, "seen"))
    await post(pool, item(batch, "seen"))
    await apply_all(pool, parser_of)
    assert await results(db) == ["repeated", "applied", "repeated"]
    assert await status_of(db, batch) == "seen"


async def test_an_earlier_time_of_a_known_fact_is_news(pool: Pool, db: Connection) -> None:
    batch = await add_batch(db, ["delivered"])
    await post(pool, item(batch, "delivered", SENT_AT - timedelta(seconds=1)))
    await apply_all(pool, parser_of)
    assert await results(db) == ["applied"]
    assert await one(db, "SELECT delivered_at FROM message") == SENT_AT - timedelta(seconds=1)


@pytest.mark.parametrize("past", ["given_back", "pending_send", "unknown"])
@pytest.mark.parametrize("kind", ["delivered", "seen", "failed", "sent"])
async def test_a_receipt_may_come_before_our_own_record(pool: Pool, db: Connection, past: str, kind: str) -> None:
    batch = await add_batch(db, [past])
    await post(pool, item(batch, kind))
    await apply_all(pool, parser_of)
    assert await status_of(db, batch) == kind
    assert await results(db) == ["applied"]
    assert await one(db, "SELECT count(*) FROM message_unknown") == 0
    assert await one(db, "SELECT count(*) FROM message_return") == 0


async def test_a_thousand_receipts_before_our_own_record_are_all_applied(pool: Pool) -> None:
    """In payloads of fifty, of three kinds, shuffled; then our own record comes, and changes nothing."""
    await factories.add_account(pool, credits=1_000, bm_limit=1_000, messages_per_second=10_000)
    batch_id = await factories.add_batch(pool, 1_000)
    station = Bench(pool, LIFTED, FakeProvider())
    station.spacing.rate_per_s = 20_000.0
    pieces = await station.claim_all()
    kinds = ["delivered", "seen", "failed"]
    told = [item(batch_id, kinds[seq % 3], seq=seq, code="EC_7") for seq in range(1, 1_001)]
    random.Random(5).shuffle(told)
    token = await factories.value(pool, "SELECT webhook_token FROM service")
    for first in range(0, 1_000, 50):
        assert await store_payload(pool, "infobip", token, body(*told[first : first + 50]))
    assert await apply_all(pool, parser_of) == 20
    expected = {"delivered": 333, "seen": 334, "failed": 333}
    assert await counts(pool) == await tallied(pool) == expected
    for piece in pieces:
        await station.record_all(piece, Accepted("theirs"))
    assert await counts(pool) == await tallied(pool) == expected
    assert await factories.value(pool, "SELECT count(*) FROM receipt WHERE result = 'applied'") == 1_000
    assert await factories.value(pool, "SELECT count(*) FROM message WHERE sent_at IS NOT NULL") == 1_000
    assert await factories.value(pool, "SELECT count(*) FROM claim WHERE closed_at IS NULL") == 0


async def test_a_row_that_had_been_given_back_is_charged_its_capacity_again(pool: Pool, db: Connection) -> None:
    batch = await add_batch(db, ["given_back"])
    await post(pool, item(batch, "delivered"))
    await apply_all(pool, parser_of)
    cursor = await db.execute("SELECT owner, used FROM capacity_meter ORDER BY owner")
    assert await cursor.fetchall() == [(SENDER, 1), (BM, 1)]


@pytest.mark.parametrize("past", ["unsent", "dropped"])
@pytest.mark.parametrize("kind", ["delivered", "failed"])
async def test_a_receipt_of_an_unsent_message_is_flagged_and_moves_nothing(
    pool: Pool, db: Connection, past: str, kind: str
) -> None:
    batch = await add_batch(db, [past], events=["opened", "started", "cancelled"])
    before = await one(db, "SELECT message::text FROM message")
    await post(pool, item(batch, kind))
    await apply_all(pool, parser_of)
    assert await one(db, "SELECT message::text FROM message") == before
    assert await results(db) == ["late"]
    assert await one(db, "SELECT balance FROM account WHERE id = %s", ACCOUNT) == 0


async def test_what_names_no_message_of_ours_is_an_orphan_and_stays_visible(pool: Pool, db: Connection) -> None:
    batch = await add_batch(db, ["pending"])
    stranger = UUID(int=7)
    await post(
        pool,
        item(batch, "delivered", seq=1),
        item(batch, "delivered", seq=2),
        item(batch, "delivered", seq=0),
        item(batch, "delivered", seq=2**31),
        item(stranger, "delivered"),
        {"id": "someone else's \x00 id", "kind": "delivered"},
    )
    await apply_all(pool, parser_of)
    cursor = await db.execute("SELECT batch_id, seq, detail FROM receipt WHERE result = 'orphan' ORDER BY detail")
    assert await cursor.fetchall() == [
        (batch, None, f"{batch.hex}-0"),
        (batch, None, f"{batch.hex}-{2**31}"),
        (batch, 1, "never claimed"),
        (stranger, 1, "no such batch"),
        (batch, 2, "no such message"),
        (None, None, "someone else's \N{REPLACEMENT CHARACTER} id"),
    ]
    assert await status_of(db, batch) == "pending"


async def test_bad_items_and_bad_bodies_spoil_nothing_else(pool: Pool, db: Connection) -> None:
    batch = await add_batch(db, ["sent", "sent"])
    await store_payload(pool, "infobip", TOKEN, b"{ this is not JSON")
    await post(pool, 42, item(batch, "delivered"), {"kind": "typing"}, "nonsense")
    await post(pool, item(batch, "seen", seq=2))
    assert (await apply_payloads(pool, parser_of)).taken == 3
    assert [await status_of(db, batch, 1), await status_of(db, batch, 2)] == ["delivered", "seen"]
    cursor = await db.execute("SELECT kind, result, count(*) FROM receipt GROUP BY 1, 2 ORDER BY 1, 2")
    assert await cursor.fetchall() == [
        ("delivered", "applied", 1),
        ("item", "ignored", 1),
        ("item", "malformed", 2),
        ("payload", "malformed", 1),
        ("seen", "applied", 1),
    ]
    assert await one(db, "SELECT count(*) FROM receipt_inbox") == 0


async def test_what_cannot_be_written_fails_alone(pool: Pool, db: Connection) -> None:
    """A time without an offset cannot be compared with the known ones; everything around it counts."""
    batch = await add_batch(db, ["delivered"] * 9)
    for seq in range(1, 10):
        at = SENT_AT - timedelta(hours=1)
        await post(pool, item(batch, "delivered", at.replace(tzinfo=None) if seq == 5 else at, seq=seq))
    await apply_all(pool, parser_of)
    cursor = await db.execute("SELECT seq, result FROM receipt ORDER BY seq")
    assert dict(await cursor.fetchall()) == {seq: "malformed" if seq == 5 else "applied" for seq in range(1, 10)}
    assert await one(db, "SELECT count(*) FROM message WHERE delivered_at < %s", SENT_AT) == 8


async def test_foreign_text_is_made_fit_to_be_kept(pool: Pool, db: Connection) -> None:
    batch = await add_batch(db, ["sent"])
    await post(pool, item(batch, "failed", code="E\x00C", provider_id="x" * 500))
    await apply_all(pool, parser_of)
    code, provider_id = await one(db, "SELECT code, provider_id FROM message")
    assert (code, len(provider_id)) == ("E\N{REPLACEMENT CHARACTER}C", 200)


async def test_a_provider_that_nobody_can_read_is_noted_as_malformed(pool: Pool, db: Connection) -> None:
    await db.execute("UPDATE service SET provider = 'pigeon'")
    assert await store_payload(pool, "pigeon", TOKEN, b"[]")
    await apply_all(pool, parser_of)
    assert await one(db, "SELECT result, detail FROM receipt") == ("malformed", "KeyError")


async def test_payloads_are_taken_oldest_first_and_up_to_the_limit(pool: Pool, db: Connection) -> None:
    batch = await add_batch(db, ["sent"] * 3)
    for seq in (1, 2, 3):
        await post(pool, item(batch, "delivered", seq=seq))
    assert (await apply_payloads(pool, parser_of, limit=2)).taken == 2
    assert [await status_of(db, batch, seq) for seq in (1, 2, 3)] == ["delivered", "delivered", "sent"]


async def test_appliers_at_once_do_each_payload_once(pool: Pool, db: Connection) -> None:
    """Batches and messages crossed over in every payload: without one order of locks these would deadlock."""
    batches = [await add_batch(db, ["sent"] * 10) for _ in range(3)]
    for turn in range(30):
        kind = ["delivered", "seen", "failed"][turn % 3]
        items = [item(batch, kind, seq=seq) for batch in batches for seq in range(1, 11)]
        await post(pool, *(items if turn % 2 else reversed(items)))

    async def drain() -> int:
        taken = 0
        while got := (await apply_payloads(pool, parser_of, limit=3)).taken:
            taken += got
        return taken

    assert sum(await asyncio.gather(*(drain() for _ in range(6)))) == 30
    assert await one(db, "SELECT count(*) FROM message WHERE status = 'seen'") == 30
    assert await one(db, "SELECT count(*) FROM receipt") == 900
    assert await one(db, "SELECT count(*) FROM receipt WHERE result = 'applied'") == 90


async def test_an_applier_that_dies_leaves_the_payload_in_the_inbox(
    pool: Pool, db: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = await add_batch(db, ["sent"])
    await post(pool, item(batch, "delivered"))

    async def die(*_: object) -> None:
        raise asyncio.CancelledError

    with monkeypatch.context() as patch:
        patch.setattr(receive.receipts, "clear_inbox", die)
        with pytest.raises(asyncio.CancelledError):
            await apply_payloads(pool, parser_of)
    assert await status_of(db, batch) == "sent"
    await apply_all(pool, parser_of)
    assert await status_of(db, batch) == "delivered"
    assert await results(db) == ["applied"]
