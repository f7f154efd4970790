"""A process that is killed while it creates a batch leaves nothing, or everything, or a draft that nobody sees."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial

import pytest

from carteiro.domain.requests import BatchTerms, TemplateName
from carteiro.services.create import Lines, Upload, collect_abandoned_drafts, create_batch, create_streamed
from carteiro.settings import Settings
from carteiro.storage.pool import Pool, open_pool
from tests.support.factories import SERVICE, TEMPLATE, add_account, batch_request, caller, contacts, value
from tests.support.killing import VICTIM, Killed, kill_before_exchange, no_victim_is_left
from tests.support.waiting import until

CREDITS = 5_000


async def whole(pool: Pool, n: int) -> None:
    await create_batch(pool, Settings(), caller(), batch_request(n))


async def streamed(pool: Pool, n: int) -> None:
    """In two pieces."""
    listed = contacts(n)

    async def parts() -> AsyncIterator[Callable[[], Lines]]:
        for half in (listed[: n // 2], listed[n // 2 :]):
            yield partial(Lines, half, range(len(half)), [])

    terms = BatchTerms(service=SERVICE, template=TemplateName(TEMPLATE))
    await create_streamed(pool, Settings(), caller(), Upload(terms, parts(), "key", lambda: b"digest"))


@pytest.mark.parametrize(
    ("create", "n", "least_exchanges"),
    [(whole, 3, 20), (whole, 1_001, 35), (streamed, 4, 45)],
    ids=["in one transaction", "loaded before", "streamed"],
)
async def test_nothing_or_everything(
    pool: Pool,
    postgres_dsn: str,
    monkeypatch: pytest.MonkeyPatch,
    create: Callable[[Pool, int], Awaitable[None]],
    n: int,
    least_exchanges: int,
) -> None:
    await add_account(pool, credits=CREDITS, bms=2, bm_limit=2_000)
    drafts = 0
    number = 0
    while True:
        number += 1
        async with open_pool(postgres_dsn, min_size=1, max_size=2, application_name=VICTIM) as victims:
            with monkeypatch.context() as patched:
                was_killed = kill_before_exchange(patched, number)
                with contextlib.suppress(Killed):
                    await create(victims, n)
        await until(lambda: no_victim_is_left(pool), 5, "the server has ended the killed sessions")
        drafts += await collect_abandoned_drafts(pool, older_than_s=0)
        if await value(pool, "SELECT count(*) FROM batch"):
            break
        await assert_nothing_is_left(pool)
        assert was_killed()
    assert number > least_exchanges
    assert (drafts > 0) == (n != 3)
    assert await value(pool, "SELECT (status, total)::text FROM batch") == f"(pending,{n})"
    assert await value(pool, "SELECT sum(pending) FROM batch_tally") == n
    assert await value(pool, "SELECT balance FROM account") == CREDITS - n
    assert await value(pool, "SELECT sum(held) FROM capacity_meter") == n


async def assert_nothing_is_left(pool: Pool) -> None:
    for table in (
        "message",
        "message_content",
        "batch_tally",
        "batch_signature",
        "idempotency_key",
        "capacity_hold",
        "procrastinate_jobs",
    ):
        assert await value(pool, f"SELECT count(*) FROM {table}") == 0, table
    assert await value(pool, "SELECT balance FROM account") == CREDITS
    assert await value(pool, "SELECT count(*) FROM ledger_entry") == 1
    assert await value(pool, "SELECT sum(held) FROM capacity_meter") == 0


async def test_an_opened_batch_is_not_collected(pool: Pool) -> None:
    await add_account(pool, credits=CREDITS, bm_limit=2_000)
    await create_batch(pool, Settings(), caller(), batch_request(1_001))
    assert await collect_abandoned_drafts(pool, older_than_s=0) == 0
    assert await value(pool, "SELECT count(*) FROM message") == 1_001


async def test_a_young_draft_is_left_alone(pool: Pool, postgres_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    await add_account(pool, credits=CREDITS, bm_limit=2_000)
    async with open_pool(postgres_dsn, min_size=1, max_size=2, application_name=VICTIM) as victims:
        with monkeypatch.context() as patched:
            kill_before_exchange(patched, 16)
            with pytest.raises(Killed):
                await create_batch(victims, Settings(), caller(), batch_request(1_001))
    assert await collect_abandoned_drafts(pool, older_than_s=3_600) == 0
    assert await value(pool, "SELECT status FROM batch") == "draft"
