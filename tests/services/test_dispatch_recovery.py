"""Recovery: lapsed claims, and outcomes that only the provider's log can tell. Nothing is sent twice on a guess."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from carteiro.domain.outcomes import Accepted, Ambiguous, FactKind, Outcome
from carteiro.services.dispatch.lapse import close_lapsed_claims
from carteiro.services.dispatch.model import Nothing, Slice
from carteiro.services.dispatch.reconcile import reconcile_unknown
from carteiro.storage import outcomes
from carteiro.storage.pool import Pool, transact
from tests.support.dispatching import LIFTED, Bench, FakeProvider, counts, meter, tallied
from tests.support.factories import add_account, add_batch, bm_id, value

FAST = {"messages_per_second": 10_000}
TAKEN = Accepted("theirs")
LOST = Ambiguous("TIMEOUT")
SETTINGS = replace(LIFTED, lease_grace_s=0.0)


async def begun(pool: Pool, n: int = 1, **batch: Any) -> tuple[Bench, Slice]:
    await add_account(pool, credits=100, bm_limit=50, **FAST)
    await add_batch(pool, n, **batch)
    station = Bench(pool, SETTINGS, FakeProvider())
    station.spacing.rate_per_s = 20_000.0
    return station, await station.claimed()


async def lost(pool: Pool, n: int = 1, outcome: Outcome = LOST, **batch: Any) -> tuple[Bench, UUID]:
    """A batch whose messages have all come to an unknown outcome, due for look-up."""
    station, piece = await begun(pool, n, **batch)
    await station.record_all(piece, outcome)
    await look_now(pool)
    return station, piece.batch_id


async def look_now(pool: Pool, *, unknown_for: str = "0 s") -> None:
    async with pool.connection() as conn:
        await conn.execute(
            "UPDATE message_unknown SET look_at = clock_timestamp(), since_at = clock_timestamp() - %s::interval",
            (unknown_for,),
        )


async def end_blackout(pool: Pool) -> None:
    """So many lost answers in a row suspend the service."""
    async with pool.connection() as conn:
        await conn.execute("UPDATE service_health SET wait_until = NULL, failures_in_a_row = 0")


async def lapse(pool: Pool) -> None:
    async with pool.connection() as conn:
        await conn.execute("UPDATE claim SET lease_until = clock_timestamp() - interval '1 ms'")


async def reconcile(station: Bench) -> int:
    return await reconcile_unknown(station.pool, station.settings, station.provider_for)


async def test_rows_of_a_lapsed_claim_may_have_gone(pool: Pool) -> None:
    station, piece = await begun(pool, 4)
    await station.record(piece, TAKEN, None)
    await lapse(pool)
    assert await close_lapsed_claims(pool, SETTINGS) == 2
    assert await counts(pool) == await tallied(pool) == {"sent": 1, "pending": 1, "unknown": 2}
    assert await value(pool, "SELECT array_agg(DISTINCT code) FROM message WHERE status = 'unknown'") == [
        "LEASE_LAPSED"
    ]
    assert await meter(pool, "bm", bm_id(1)) == (3, 1)
    assert await value(pool, "SELECT closed_at IS NOT NULL FROM claim")
    assert await close_lapsed_claims(pool, SETTINGS) == 0


async def test_a_lease_in_time_is_left_alone(pool: Pool) -> None:
    await begun(pool, 4)
    assert await close_lapsed_claims(pool, SETTINGS) == 0


async def test_a_lapsed_lease_is_not_renewed(pool: Pool) -> None:
    _, piece = await begun(pool, 4)
    await lapse(pool)
    async with transact(pool) as conn:
        assert await outcomes.renew_leases(conn, [piece.claim_id], lease_s=60) == {}


async def test_no_lease_lapses_while_the_database_is_back_for_a_short_time_only(pool: Pool) -> None:
    await begun(pool, 4)
    await lapse(pool)
    assert await close_lapsed_claims(pool, replace(SETTINGS, lease_grace_s=86_400.0)) == 0


async def test_a_lapsed_claim_of_an_ended_batch_keeps_its_unknowns(pool: Pool) -> None:
    await begun(pool, 4)
    async with transact(pool) as conn:
        await conn.execute("UPDATE batch SET status = 'cancelled', event = 'cancelled'")
    await lapse(pool)
    await close_lapsed_claims(pool, SETTINGS)
    assert await counts(pool) == {"unknown": 4}


@pytest.mark.parametrize("kind", [FactKind.SENT, FactKind.DELIVERED, FactKind.SEEN, FactKind.FAILED])
async def test_what_the_log_knows_is_what_became_of_it(pool: Pool, kind: FactKind) -> None:
    station, batch_id = await lost(pool)
    station.provider.taken[batch_id, 1] = kind
    assert await reconcile(station) == 1
    assert await counts(pool) == await tallied(pool) == {str(kind): 1}
    assert await value(pool, "SELECT count(*) FROM message_unknown") == 0
    assert await meter(pool, "bm", bm_id(1)) == (1, 0)


async def test_absent_once_proves_nothing(pool: Pool) -> None:
    station, _ = await lost(pool)
    await reconcile(station)
    assert await counts(pool) == {"unknown": 1}
    assert await value(pool, "SELECT look_at > clock_timestamp() + interval '2 min' FROM message_unknown")
    assert isinstance(await station.claim(), Nothing)


async def test_absent_twice_goes_again_with_the_same_id_and_its_hold(pool: Pool) -> None:
    station, batch_id = await lost(pool, 3)
    station.provider.taken[batch_id, 2] = FactKind.SENT
    for _ in range(2):
        await look_now(pool)
        await reconcile(station)
    assert await counts(pool) == await tallied(pool) == {"sent": 1, "pending": 2}
    assert await meter(pool, "bm", bm_id(1)) == (1, 2)
    again = await station.claimed()
    assert [(due.outgoing.batch_id, due.outgoing.seq, due.attempt) for due in again.due] == [
        (batch_id, 1, 0),
        (batch_id, 3, 0),
    ]


async def test_an_unreachable_log_changes_nothing(pool: Pool) -> None:
    station, _ = await lost(pool)
    station.provider.log_reachable = False
    for _ in range(3):
        await look_now(pool)
        await reconcile(station)
    assert await counts(pool) == {"unknown": 1}
    assert await value(pool, "SELECT absent FROM message_unknown") == 0


async def test_without_a_log_nothing_is_ever_proven_absent(pool: Pool) -> None:
    station, _ = await lost(pool)
    station.provider.has_log = False
    for _ in range(3):
        await look_now(pool)
        await reconcile(station)
    assert await counts(pool) == {"unknown": 1}


async def test_an_id_that_the_provider_called_a_duplicate_is_never_absent(pool: Pool) -> None:
    station, _ = await lost(pool, outcome=Ambiguous("STATUS_23", duplicate=True))
    for _ in range(4):
        await look_now(pool)
        await reconcile(station)
    assert await counts(pool) == {"unknown": 1}


@pytest.mark.parametrize("log_reachable", [True, False])
async def test_unknown_for_too_long_is_given_up_visibly(pool: Pool, log_reachable: bool) -> None:
    station, _ = await lost(pool)
    station.provider.log_reachable = log_reachable
    await look_now(pool, unknown_for="47 h")
    await reconcile(station)
    assert await value(pool, "SELECT (status, code, gave_up_at IS NULL)::text FROM message") == (
        "(failed,OUTCOME_UNKNOWN,f)"
    )
    assert await meter(pool, "bm", bm_id(1)) == (1, 0)
    assert await value(pool, "SELECT count(*) FROM message_unknown") == 0


async def test_found_at_the_last_moment_is_not_given_up(pool: Pool) -> None:
    station, batch_id = await lost(pool)
    station.provider.taken[batch_id, 1] = FactKind.DELIVERED
    await look_now(pool, unknown_for="47 h")
    await reconcile(station)
    assert await counts(pool) == {"delivered": 1}


async def test_proven_absent_of_an_ended_batch_is_unsent_and_frees_its_capacity(pool: Pool) -> None:
    station, _ = await lost(pool, 2)
    async with transact(pool) as conn:
        await conn.execute("UPDATE batch SET status = 'cancelled', event = 'cancelled'")
    for _ in range(2):
        await look_now(pool)
        await reconcile(station)
    assert await counts(pool) == await tallied(pool) == {"unsent": 2}
    assert await meter(pool, "bm", bm_id(1)) == (0, 0)
    assert await value(pool, "SELECT count(*) FROM message_return") == 0


async def test_capacity_of_a_proven_absent_row_wakes_the_batch_that_waits(pool: Pool) -> None:
    station, _ = await lost(pool, 50)
    await end_blackout(pool)
    await add_batch(pool, 5, start=50, on_capacity="spill")
    assert await station.claim_all() == []
    assert await value(pool, "SELECT max(blocked_by) FROM batch") == "capacity"
    async with transact(pool) as conn:
        await conn.execute("UPDATE batch SET status = 'cancelled', event = 'cancelled' WHERE total = 50")
    for _ in range(2):
        await look_now(pool)
        await reconcile(station)
    assert len((await station.claimed()).due) == 5


async def test_a_receipt_before_the_look_up_settles_it(pool: Pool) -> None:
    station, batch_id = await lost(pool)
    station.provider.taken[batch_id, 1] = FactKind.SENT
    async with transact(pool) as conn:
        await conn.execute(
            "UPDATE message SET status = 'delivered', event = 'delivered', delivered_at = clock_timestamp()"
        )
    await reconcile(station)
    assert await counts(pool) == {"delivered": 1}


async def test_many_unknowns_are_looked_up_in_several_runs(pool: Pool) -> None:
    await add_account(pool, credits=700, bm_limit=700, **FAST)
    batch_id = await add_batch(pool, 600)
    station = Bench(pool, SETTINGS, FakeProvider())
    station.spacing.rate_per_s = 20_000.0
    await station.work_off(LOST)
    await end_blackout(pool)
    await station.work_off(LOST)
    await look_now(pool)
    station.provider.taken = {(batch_id, seq): FactKind.DELIVERED for seq in range(1, 601)}
    assert [await reconcile(station) for _ in range(3)] == [500, 100, 0]
    assert await counts(pool) == {"delivered": 600}
