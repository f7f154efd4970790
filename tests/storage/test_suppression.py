"""The list: which word counts, how long a cool-down is, what is kept and what is forgotten."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from itertools import permutations
from typing import Any

import pytest

from carteiro.domain.outcomes import Fact, FactKind, Kind
from carteiro.domain.suppression import Scope, Source, Word
from carteiro.storage import suppression
from carteiro.storage.facts import merge_facts
from carteiro.storage.pool import Pool
from carteiro.storage.suppression import find_among, note_words
from tests.support.batches import ACCOUNT, Connection, add_batch, add_service, one

NOW = datetime(2026, 11, 2, 12, 0, tzinfo=UTC)
PHONE = 551187654321
BOTH = [Scope.ALL, Scope.MARKETING]
DAY = timedelta(days=1)


@pytest.fixture
async def db(pool: Pool) -> AsyncIterator[Connection]:
    async with pool.connection() as conn:
        await add_service(conn)
        yield conn


def word(source: Source = Source.INBOUND, minutes: int = 0, *, stop: bool = True, phone: int = PHONE) -> Word:
    scope = Scope.ALL if source in (Source.INBOUND, Source.BLOCKLIST) else Scope.MARKETING
    return Word(ACCOUNT, phone, scope, source, NOW + timedelta(minutes=minutes), stop=stop)


async def listed(db: Connection, scopes: list[Scope] = BOTH) -> bool:
    return PHONE in await find_among(db, ACCOUNT, [PHONE, PHONE + 1], scopes)


async def test_a_word_holds_for_its_account_its_contact_and_its_scope(db: Connection) -> None:
    await note_words(db, [word(Source.PREFERENCE)])
    assert await listed(db)
    assert not await listed(db, [Scope.ALL])
    assert await find_among(db, "rival", [PHONE], BOTH) == set()
    assert await find_among(db, ACCOUNT, [PHONE + 1], BOTH) == set()


async def test_words_commute(db: Connection) -> None:
    told = [
        word(Source.PREFERENCE, 1),
        word(Source.PREFERENCE, 2, stop=False),
        word(Source.PREFERENCE, 3),
        word(Source.PREFERENCE, 4, stop=False),
    ]
    for last in (3, 4):
        for order in permutations(told[:last]):
            async with db.transaction(force_rollback=True):
                for each in order:
                    await note_words(db, [each])
                    await note_words(db, [each])
                assert await listed(db) is (last == 3)
            async with db.transaction(force_rollback=True):
                await note_words(db, order)
                assert await listed(db) is (last == 3)


async def test_a_word_taken_back_leaves_the_others_standing(db: Connection) -> None:
    await note_words(db, [word(Source.PREFERENCE), word(Source.INBOUND)])
    await note_words(db, [word(Source.PREFERENCE, 1, stop=False)])
    assert await listed(db)
    await note_words(db, [word(Source.INBOUND, 1, stop=False)])
    assert not await listed(db)


async def test_what_was_lifted_is_not_put_back_by_the_same_word_told_again(db: Connection) -> None:
    await note_words(db, [word()])
    assert await suppression.lift(db, ACCOUNT, [PHONE], BOTH) == 1
    await note_words(db, [word()])
    assert not await listed(db)
    await note_words(db, [word(minutes=1)])
    assert await listed(db)


async def test_a_word_from_the_future_can_be_taken_back(db: Connection) -> None:
    ahead = Word(ACCOUNT, PHONE, Scope.MARKETING, Source.PREFERENCE, datetime(9999, 1, 1, tzinfo=UTC))
    await note_words(db, [ahead])
    await note_words(db, [Word(ACCOUNT, PHONE, Scope.MARKETING, Source.PREFERENCE, stop=False)])
    assert not await listed(db)


async def test_lifting_counts_contacts_and_only_those_on_the_list(db: Connection) -> None:
    await note_words(db, [word(Source.PREFERENCE), word(Source.INBOUND), word(phone=PHONE + 1)])
    assert await suppression.lift(db, ACCOUNT, [PHONE, PHONE + 2], [Scope.MARKETING]) == 1
    assert await listed(db)
    assert await suppression.lift(db, ACCOUNT, [PHONE, PHONE + 1], BOTH) == 2
    assert await suppression.lift(db, ACCOUNT, [PHONE, PHONE + 1], BOTH) == 0


# Cool-downs


async def cool_down(db: Connection, minutes: int) -> tuple[timedelta, int]:
    """What is left of the cool-down after a refusal at that minute, to the hour, and how many there were."""
    await note_words(db, [word(Source.COOL_DOWN, minutes)])
    left, times = await one(
        db, "SELECT date_trunc('hour', until - clock_timestamp() + interval '30 minutes'), times FROM suppression"
    )
    return left, times


async def let_it_end(db: Connection, ago: timedelta = timedelta(seconds=1)) -> None:
    await db.execute("UPDATE suppression SET until = clock_timestamp() - %s", [ago])


async def test_each_cool_down_is_twice_as_long_up_to_thirty_days(db: Connection) -> None:
    lengths = []
    for minute in range(8):
        lengths.append(await cool_down(db, minute))
        await let_it_end(db)
    days = [1, 2, 4, 8, 16, 30, 30, 30]
    assert lengths == [(DAY * n, place) for place, n in enumerate(days, start=1)]


async def test_refusals_while_it_runs_do_not_make_it_longer(db: Connection) -> None:
    assert await cool_down(db, 0) == (DAY, 1)
    assert await cool_down(db, 5) == (DAY, 1)
    assert await listed(db)


async def test_an_old_refusal_told_late_is_no_repeat(db: Connection) -> None:
    await cool_down(db, 5)
    await let_it_end(db)
    await note_words(db, [word(Source.COOL_DOWN, 5), word(Source.COOL_DOWN, 4)])
    assert not await listed(db)


async def test_thirty_days_after_the_last_one_the_count_begins_anew(db: Connection) -> None:
    await cool_down(db, 0)
    await let_it_end(db)
    await cool_down(db, 1)
    await let_it_end(db, 31 * DAY)
    assert await cool_down(db, 2) == (DAY, 1)


async def test_very_many_cool_downs_do_no_harm(db: Connection) -> None:
    await cool_down(db, 0)
    await db.execute("UPDATE suppression SET times = 1000000")
    await let_it_end(db)
    assert await cool_down(db, 1) == (30 * DAY, 1_000_001)


async def test_a_cool_down_is_for_marketing_and_lapses(db: Connection) -> None:
    await cool_down(db, 0)
    assert await listed(db)
    assert not await listed(db, [Scope.ALL])
    await let_it_end(db)
    assert not await listed(db)


# Refusals

REFUSED: dict[Kind, tuple[str, str] | None] = {
    Kind.CONTACT_MARKETING: ("marketing", "preference"),
    Kind.BLOCKED: ("all", "blocklist"),
    Kind.COOL_DOWN: ("marketing", "cool-down"),
    Kind.CONTACT: None,
    Kind.REQUEST: None,
    Kind.TRANSIENT: None,
}


@pytest.mark.parametrize("kind", REFUSED)
async def test_a_refusal_suppresses_its_contact_if_it_speaks_of_it(db: Connection, kind: Kind) -> None:
    batch_id = await add_batch(db, ["sent", "sent"])
    await merge_facts(db, batch_id, [Fact(batch_id, 2, FactKind.FAILED, NOW, code="EC_1", failure=kind)])
    cursor = await db.execute("SELECT account_id, phone_key, scope, source, reason FROM suppression")
    expected = REFUSED[kind]
    assert await cursor.fetchall() == ([(ACCOUNT, 2, *expected, "EC_1")] if expected else [])


async def test_a_refusal_that_is_no_news_suppresses_nobody(db: Connection) -> None:
    """A receipt told again with a later time, after the cool-down is over."""
    batch_id = await add_batch(db, ["sent"])
    facts = [Fact(batch_id, 1, FactKind.FAILED, NOW, code="EC_7032", failure=Kind.COOL_DOWN)]
    await merge_facts(db, batch_id, facts)
    await let_it_end(db)
    later = [Fact(batch_id, 1, FactKind.FAILED, NOW + DAY, code="EC_7032", failure=Kind.COOL_DOWN)]
    await merge_facts(db, batch_id, later)
    assert await one(db, "SELECT until < clock_timestamp(), times FROM suppression") == (True, 1)


# Forgetting


async def test_only_what_ended_long_ago_is_forgotten(db: Connection) -> None:
    await note_words(db, [word(Source.COOL_DOWN, phone=n) for n in range(1, 6)])
    await note_words(db, [word(phone=9)])
    await let_it_end(db, 10 * DAY)
    await db.execute("UPDATE suppression SET until = NULL WHERE source = 'inbound'")
    await db.execute("UPDATE suppression SET until = clock_timestamp() - interval '70 days' WHERE phone_key < 4")
    keep_s = 60 * DAY.total_seconds()
    assert await suppression.forget_lapsed(db, keep_s=keep_s, limit=2) == 2
    assert await suppression.forget_lapsed(db, keep_s=keep_s, limit=2) == 1
    assert await suppression.forget_lapsed(db, keep_s=keep_s, limit=2) == 0
    cursor = await db.execute("SELECT phone_key FROM suppression ORDER BY phone_key")
    assert await cursor.fetchall() == [(4,), (5,), (9,)]


# Plans


async def test_looking_up_reads_the_index_only_for_whom_it_asks(db: Connection) -> None:
    """Fifty contacts in a list of twenty thousand."""
    await db.execute(
        "INSERT INTO suppression (account_id, phone_key, scope, source, said_at, actor)"
        " SELECT %s, n, 'all', 'api', now(), 'test' FROM generate_series(1, 20000) AS n",
        [ACCOUNT],
    )
    await db.execute("ANALYZE suppression")
    params = {"account_id": ACCOUNT, "phones": list(range(10_000, 10_050)), "scopes": ["all", "marketing"]}
    plan = await explain(db, suppression.SQL.among, params)
    assert "Seq Scan" not in plan
    assert "suppression_account_id_phone_key" in plan


async def explain(db: Connection, statement: str, params: dict[str, Any]) -> str:
    cursor = await db.execute(f"EXPLAIN {statement}".encode(), params)
    return "\n".join(line for (line,) in await cursor.fetchall())
