"""What a provider like Meta asks of dispatch: senders with ids of its own, waits of one sender or one contact."""

from typing import Any

import pytest

from carteiro.domain.outcomes import Accepted, Fact, FactKind, NotSent, Outcome, Scope, Throttled
from carteiro.services.catalog import apply_catalog
from carteiro.services.dispatch.model import Nothing, Slice
from carteiro.storage.facts import merge_facts
from carteiro.storage.pool import Pool, transact
from tests.support.dispatching import LIFTED, TAKEN_AT, Bench, FakeProvider, counts, meter
from tests.support.factories import add_account, add_batch, bm_id, catalog_text, number_id, sender_id, value

META: dict[str, Any] = {"provider": "meta", "base_url": "http://127.0.0.1:9100", "api_key_env": "META_TOKEN"}
WAMID = "wamid.HBgMNTUz"


async def begun(pool: Pool, n: int = 1, **options: Any) -> tuple[Bench, Slice]:
    await add_account(pool, credits=100, messages_per_second=10_000, **{**META, **options})
    await add_batch(pool, n)
    bench = Bench(pool, LIFTED, FakeProvider(name="meta", has_log=False))
    bench.spacing.rate_per_s = 20_000.0
    return bench, await bench.claimed()


async def available(pool: Pool) -> None:
    async with transact(pool) as conn:
        await conn.execute("UPDATE message_return SET available_at = clock_timestamp()")
        await conn.execute("UPDATE batch SET next_attempt_at = NULL")


async def delay_s(pool: Pool, seq: int = 1) -> float:
    seconds: float = await value(
        pool,
        "SELECT extract(epoch FROM available_at - clock_timestamp())::float FROM message_return WHERE seq = %s",
        seq,
    )
    return seconds


async def test_a_sender_goes_by_the_providers_name_and_is_metered_by_ours(pool: Pool) -> None:
    bench, piece = await begun(pool)
    (due,) = piece.due
    assert (due.outgoing.sender, due.unit.sender) == (number_id(sender_id(1)), sender_id(1))
    await bench.record(piece, Accepted(WAMID))
    assert await meter(pool, "sender", sender_id(1)) == (1, 0)
    assert await value(pool, "SELECT (provider_id, seq, followup)::text FROM message_alias") == f"({WAMID},1,f)"


@pytest.mark.parametrize("provider", ["infobip", "meta"])
async def test_a_sender_of_the_other_provider_is_not_used(pool: Pool, provider: str) -> None:
    await add_account(pool, credits=1, **{**META, "provider": provider})
    refs = {"infobip": "'1'", "meta": "NULL"}
    await add_batch(pool, 1, on_capacity="spill")
    async with transact(pool) as conn:
        await conn.execute(f"UPDATE sender SET provider_ref = {refs[provider]}".encode())
    claimed = await Bench(pool, LIFTED, FakeProvider()).claim()
    assert isinstance(claimed, Nothing)
    assert claimed.reason == "no_active_senders"


async def test_a_wait_of_one_sender_leaves_the_others_their_work(pool: Pool) -> None:
    bench, piece = await begun(pool, 4, senders_per_bm=2)
    slow = piece.due[0].unit.sender
    answers: list[Outcome] = [
        Throttled(30.0, "131057", Scope.SENDER) if due.unit.sender == slow else Accepted(f"wamid.{due.outgoing.seq}")
        for due in piece.due
    ]
    await bench.record(piece, *answers)
    assert await counts(pool) == {"sent": 2, "pending": 2}
    assert (
        await value(pool, "SELECT (status, wait_reason)::text FROM sender WHERE id = %s", slow) == "(ACTIVE,throttled)"
    )
    assert await value(pool, "SELECT max(attempt) FROM message") == 0
    assert await value(pool, "SELECT wait_until IS NULL FROM service_health")
    assert await meter(pool, "bm", bm_id(1)) == (2, 2)

    await available(pool)
    again = await bench.claimed()
    assert {due.unit.sender for due in again.due} == {sender_id(1, 1), sender_id(1, 2)} - {slow}


async def test_a_batch_whose_senders_all_wait_says_until_when_and_keeps_its_holds(pool: Pool) -> None:
    bench, piece = await begun(pool, 2, senders_per_bm=2)
    first, second = (due.unit.sender for due in piece.due)
    await bench.record(piece, Throttled(60.0, "131048", Scope.SENDER), Throttled(20.0, "130429", Scope.SENDER))
    await available(pool)
    claimed = await bench.claim()
    assert isinstance(claimed, Nothing)
    assert claimed.reason == "throttled"
    assert await value(pool, "SELECT (status, blocked_by, error_code IS NULL)::text FROM batch") == (
        "(processing,throttled,t)"
    )
    assert await value(
        pool, "SELECT next_attempt_at = (SELECT wait_until FROM sender WHERE id = %s) FROM batch", second
    )
    assert await meter(pool, "bm", bm_id(1)) == (0, 2)

    async with transact(pool) as conn:
        await conn.execute("UPDATE sender SET wait_until = clock_timestamp() WHERE id = %s", (second,))
    await available(pool)
    again = await bench.claimed()
    assert {due.unit.sender for due in again.due} == {second}
    assert first != second


async def test_nothing_is_an_error_before_the_first_send_while_senders_wait(pool: Pool) -> None:
    await add_account(pool, credits=100, **META)
    async with transact(pool) as conn:
        await conn.execute("UPDATE sender SET wait_until = clock_timestamp() + interval '1 minute'")
    await add_batch(pool, 1)
    claimed = await Bench(pool, LIFTED, FakeProvider()).claim()
    assert isinstance(claimed, Nothing)
    assert await value(pool, "SELECT (status, blocked_by)::text FROM batch") == "(pending,throttled)"


async def test_a_contact_who_gets_too_many_waits_alone_and_longer_each_time(pool: Pool) -> None:
    bench, piece = await begun(pool, 2)
    pair = Throttled(None, "131056", Scope.CONTACT)
    await bench.record(piece, pair, Accepted(WAMID))
    assert await counts(pool) == {"sent": 1, "pending": 1}
    assert await value(pool, "SELECT wait_until IS NULL FROM sender")
    waits = [await delay_s(pool)]
    for _ in range(6):
        await available(pool)
        piece = await bench.claimed()
        await bench.record(piece, pair)
        waits.append(await delay_s(pool))
    for waited, wanted in zip(waits, [1, 4, 16, 64, 256, 900, 900], strict=True):
        assert wanted - 1 < waited <= wanted
    assert await value(pool, "SELECT (status, attempt, code)::text FROM message WHERE seq = 1") == "(pending,0,131056)"


async def test_what_nobody_has_listed_is_tried_twice(pool: Pool) -> None:
    bench, piece = await begun(pool)
    await bench.record(piece, NotSent("139999", tries_max=2))
    await available(pool)
    await bench.record(await bench.claimed(), NotSent("139999", tries_max=2))
    assert await value(pool, "SELECT (status, attempt, code)::text FROM message") == "(failed,2,139999)"


@pytest.mark.parametrize("order", ["answer first", "receipt first"])
async def test_a_message_kept_back_shows_so_until_it_is_delivered(pool: Pool, order: str) -> None:
    bench, piece = await begun(pool)

    async def deliver() -> None:
        async with transact(pool) as conn:
            await merge_facts(conn, piece.batch_id, [Fact(piece.batch_id, 1, FactKind.DELIVERED, TAKEN_AT, WAMID)])

    if order == "receipt first":
        await deliver()
    await bench.record(piece, Accepted(WAMID, "HELD_FOR_QUALITY"))
    if order == "answer first":
        assert await value(pool, "SELECT (status, code)::text FROM message") == "(sent,HELD_FOR_QUALITY)"
        await deliver()
    assert await value(pool, "SELECT (status, code)::text FROM message") == "(delivered,)"


async def test_placeholders_go_by_the_names_that_the_copy_gives_them(pool: Pool) -> None:
    await add_account(pool, credits=1, **META)
    named = catalog_text(**META).replace(
        'physical_name = "order_update_v1"',
        'physical_name = "order_update_v1"\nbody = "Ola {{nome}}, pedido {{pedido}} saiu."',
    )
    changes = [line for change in await apply_catalog(pool, named) for line in change.lines()]
    assert changes == ["~ submission order_update pt_BR acme-bm1", "    parameter_names: [] -> ['nome', 'pedido']"]
    assert await apply_catalog(pool, named) == []
    await add_batch(pool, 1)
    (due,) = (await Bench(pool, LIFTED, FakeProvider()).claimed()).due
    assert due.outgoing.parameter_names == ("nome", "pedido")
    assert due.outgoing.placeholders == ("Ana", "0")
