"""Reminders: sent by the request itself, once, or certainly not at all, or visibly unknown."""

import asyncio
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from carteiro.domain.errors import Conflict
from carteiro.domain.group_links import Door, LinkState
from carteiro.domain.outcomes import (
    Accepted,
    Ambiguous,
    FactKind,
    Kind,
    NotSent,
    Outcome,
    Outgoing,
    Rejected,
    Throttled,
)
from carteiro.domain.suppression import Scope
from carteiro.services import api_keys
from carteiro.services.api_keys import Caller
from carteiro.services.audit import EVERYTHING, violations
from carteiro.services.dispatch.reconcile import reconcile_unknown
from carteiro.services.finalise import finalise_due
from carteiro.services.group_links.place import ReferenceReused, draft_of, place, read_ground
from carteiro.services.group_links.reading import read_link
from carteiro.services.group_links.reminder import Reminded, ReminderNotSent, Reminders, no_provider
from carteiro.services.suppression import suppress
from carteiro.services.withdraw import withdraw_ended
from carteiro.storage import sweep
from carteiro.storage.pool import Pool
from tests.support.dispatching import LIFTED, Answer, Bench, FakeProvider, counts, take
from tests.support.factories import ACCOUNT, add_key, caller, phone, value
from tests.support.group_links import LINKS, add_links, reminder_request
from tests.support.waiting import until

QUICK = replace(LIFTED, reminder_deadline_s=2.0, call_timeout_s=20.0)


class Desk:
    """Reminders of one process, at a provider that does as it is told."""

    def __init__(self, pool: Pool, by: Caller, provider: FakeProvider, **settings: float) -> None:
        self.pool, self.by, self.provider = pool, by, provider
        self.settings = replace(QUICK, **settings)  # type: ignore[arg-type]
        self.reminders = Reminders(pool, self.settings, "api-1", self._provider_for)

    async def _provider_for(self, _service_id: str) -> FakeProvider:
        return self.provider

    async def send(self, number: int = 0, **fields: Any) -> Reminded:
        return await self.reminders.send(self.by, reminder_request(number, **fields))

    async def state(self, link_id: UUID) -> LinkState:
        return (await read_link(self.pool, ACCOUNT, link_id)).state


async def desk(pool: Pool, *answers: Outcome | Answer, latency_s: float = 0.0, **options: Any) -> Desk:
    """`answers` in order, then that of a provider in good health. `options` are the catalog's."""
    await add_links(pool, **options)
    told = iter(answers)

    def answer(outgoing: Outgoing) -> Outcome:
        following = next(told, take)
        return following(outgoing) if callable(following) else following

    by = await api_keys.authenticate(pool, await add_key(pool))
    return Desk(pool, by, FakeProvider(answer, latency_s=latency_s))


async def test_it_is_sent_at_once_and_once_for_its_reference(pool: Pool) -> None:
    at = await desk(pool, latency_s=0.05)
    made = await asyncio.gather(*(at.send(reference="enrolment-1") for _ in range(5)))
    assert len(at.provider.calls) == 1
    assert len({one.seen.row.id for one in made}) == 1
    assert sorted(one.replayed for one in made) == [False, *[True] * 4]
    first = next(one for one in made if not one.replayed)
    assert (first.seen.state, first.seen.row.door, first.seen.code) == (LinkState.SENT, "reminder", None)
    assert (await at.send(reference="enrolment-1")).seen.state is LinkState.SENT
    with pytest.raises(ReferenceReused):
        await at.send(1, reference="enrolment-1")
    assert (await at.send()).seen.state is LinkState.SENT
    assert len(at.provider.calls) == 2
    await at.reminders.drained()
    assert await value(pool, "SELECT count(*) FROM claim WHERE closed_at IS NULL OR worker_id <> 'api-1'") == 0
    assert await violations(pool, lookback=EVERYTHING) == {}


async def test_a_refusal_of_the_contact_is_its_outcome(pool: Pool) -> None:
    at = await desk(pool, Rejected("EC_7", Kind.CONTACT))
    refused = (await at.send(reference="r")).seen
    assert (refused.state, refused.code) == (LinkState.FAILED, "EC_7")
    assert (await at.send(reference="r")).seen == refused
    await suppress(pool, caller(), [phone(1)], scope=Scope.ALL)
    suppressed = (await at.send(1)).seen
    assert (suppressed.state, suppressed.code) == (LinkState.FAILED, "SUPPRESSED")
    assert len(at.provider.calls) == 1


@pytest.mark.parametrize(
    ("answer", "retry_after"), [(Throttled(7.0), "7"), (Throttled(None), "2"), (NotSent("ECONNREFUSED"), "2")]
)
async def test_what_certainly_did_not_leave_never_will_and_may_be_asked_for_again(
    pool: Pool, answer: Outcome, retry_after: str
) -> None:
    at = await desk(pool, answer)
    with pytest.raises(ReminderNotSent) as refusal:
        await at.send(reference="r")
    assert refusal.value.headers["Retry-After"] == retry_after
    unsent = UUID(refusal.value.extra["id"])
    assert await at.state(unsent) is LinkState.FAILED
    assert await counts(pool) == {"unsent": 1}
    async with pool.connection() as conn:
        await conn.execute("UPDATE service_health SET wait_until = NULL")
    again = await at.send(reference="r")
    assert (again.seen.state, again.replayed) == (LinkState.SENT, False)
    assert again.seen.row.id != unsent
    assert len(at.provider.calls) == 2
    assert await finalise_due(pool, at.settings) == [unsent]
    assert await value(pool, "SELECT (held, used)::text FROM capacity_meter WHERE kind = 'bm'") == "(0,1)"
    assert await violations(pool, lookback=EVERYTHING) == {}


async def test_an_ambiguous_one_is_found_out_and_never_sent_again(pool: Pool) -> None:
    at = await desk(pool, Ambiguous("TIMEOUT"), Ambiguous("TIMEOUT"))
    taken, lost = (await at.send(0, reference="taken")).seen, (await at.send(1)).seen
    assert taken.state is lost.state is LinkState.PROCESSING
    assert taken.code == "TIMEOUT"
    assert (await at.send(0, reference="taken")).seen.row.id == taken.row.id
    at.provider.taken[taken.row.id, 1] = FactKind.SENT
    station = Bench(pool, replace(QUICK, reconcile_after_s=21.0), at.provider)
    for _ in range(2):
        async with pool.connection() as conn:
            await conn.execute("UPDATE message_unknown SET look_at = clock_timestamp()")
        await reconcile_unknown(pool, station.settings, station.provider_for)
    assert await at.state(taken.row.id) is LinkState.SENT
    async with pool.connection() as conn:
        await conn.execute("UPDATE batch SET expires_at = clock_timestamp() WHERE id = %s", (lost.row.id,))
    await station.pump(LINKS)
    await withdraw_ended(pool)
    assert await at.state(lost.row.id) is LinkState.FAILED
    assert await counts(pool, lost.row.id) == {"unsent": 1}
    assert len(at.provider.calls) == 2


async def test_without_a_slot_in_time_it_is_not_sent(pool: Pool) -> None:
    at = await desk(pool)
    async with pool.connection() as conn:
        await conn.execute(
            "UPDATE service_health SET wait_until = clock_timestamp() + interval '1 hour', wait_reason = 'blackout'"
        )
    with pytest.raises(ReminderNotSent, match="cannot be reached") as refusal:
        await at.send(0)
    assert 3_590 <= int(refusal.value.headers["Retry-After"]) <= 3_600
    async with pool.connection() as conn:
        await conn.execute("UPDATE service_health SET wait_until = NULL, wait_reason = NULL")
        await conn.execute("UPDATE business_manager SET daily_limit_override = 0")
    with pytest.raises(ReminderNotSent, match="capacity"):
        await at.send(1)
    async with pool.connection() as conn:
        await conn.execute("UPDATE business_manager SET daily_limit_override = 10")
        await conn.execute("UPDATE service SET max_inflight = 1")
        await conn.execute(
            "INSERT INTO claim (batch_id, service_id, worker_id, seqs, size, open, last_slot_at, lease_until)"
            " SELECT id, %s, 'w', '{}', 1, 1, clock_timestamp(), 'infinity' FROM batch LIMIT 1",
            (LINKS,),
        )
    with pytest.raises(ReminderNotSent, match="in flight"):
        await Desk(pool, at.by, at.provider, reminder_deadline_s=0.4).send(2)
    assert at.provider.calls == []
    assert await counts(pool) == {"unsent": 3}


async def test_a_call_that_takes_longer_than_the_deadline_is_recorded_all_the_same(pool: Pool) -> None:
    at = await desk(pool, latency_s=1.5)
    slow = Desk(pool, at.by, at.provider, reminder_deadline_s=0.3)
    answered = (await slow.send(reference="r")).seen
    assert answered.state is LinkState.PROCESSING
    assert (await slow.send(reference="r")).seen.state is LinkState.PROCESSING
    await slow.reminders.drained()
    assert (await slow.send(reference="r")).seen.state is LinkState.SENT
    assert len(at.provider.calls) == 1


async def test_another_sender_is_tried_when_one_is_refused(pool: Pool) -> None:
    refused = Rejected("EC_7016", Kind.SENDER)
    at = await desk(pool, refused, take, refused, senders_per_bm=2)
    assert (await at.send(0)).seen.state is LinkState.SENT
    assert len(at.provider.per_sender) == 2
    with pytest.raises(ReminderNotSent, match="no sender"):
        await at.send(1)
    assert await counts(pool) == {"sent": 1, "unsent": 1}


async def test_an_abandoned_one_is_pumped_by_nobody_and_expires(pool: Pool) -> None:
    at = await desk(pool)
    request = reminder_request()
    ground = await read_ground(pool, QUICK, at.by, request)
    draft = draft_of(Door.REMINDER, request, ground, expires_at=ground.now.replace(year=ground.now.year + 1))
    await place(pool, QUICK, at.by, request, ground, draft, None)
    station = Bench(pool, QUICK, at.provider)
    async with pool.connection() as conn:
        assert await sweep.services_to_pump(conn) == set()
    await station.pump(LINKS)
    assert at.provider.calls == []
    assert await at.state(draft.id) is LinkState.PENDING
    async with pool.connection() as conn:
        await conn.execute("UPDATE batch SET expires_at = clock_timestamp()")
    await withdraw_ended(pool)
    assert await counts(pool) == {"unsent": 1}
    assert await finalise_due(pool, QUICK) == [draft.id]


async def test_what_cannot_be_sent_here_at_all_makes_no_batch(pool: Pool) -> None:
    at = await desk(pool, links={"test_mode": True})
    with pytest.raises(Conflict):
        await at.send()
    await add_links(pool)
    with pytest.raises(ReminderNotSent):
        await Reminders(pool, QUICK, "api-1", no_provider).send(at.by, reminder_request())
    assert await value(pool, "SELECT count(*) FROM batch") == 0


async def test_a_caller_that_goes_away_does_not_take_the_outcome_with_it(pool: Pool) -> None:
    at = await desk(pool, Accepted("theirs"), latency_s=0.5)
    asking = asyncio.create_task(at.send())
    await until(lambda: at.provider.calls, 5, "the call began")
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    await at.reminders.drained()
    assert await counts(pool) == {"sent": 1}
