"""Sending the failed messages of a settled batch again: what goes into the child, what it takes, and that it is one."""

import asyncio
import contextlib
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from carteiro.domain.errors import (
    CapacityExhausted,
    Conflict,
    Gone,
    InsufficientCredits,
    NotFound,
    Problem,
)
from carteiro.domain.lifecycle import OUTCOME_UNKNOWN
from carteiro.domain.outcomes import Ambiguous, Fact, FactKind, Kind, Rejected
from carteiro.domain.phones import Phone, parse
from carteiro.domain.requests import Contact
from carteiro.domain.suppression import Scope
from carteiro.services import suppression
from carteiro.services.api_keys import Caller
from carteiro.services.audit import violations
from carteiro.services.create import Creation, collect_abandoned_drafts, retry_failed
from carteiro.services.create import retry as retrying
from carteiro.services.create.refusals import NothingToRetry, NotSettled, TemplateNotUsable
from carteiro.services.erasure import erase_contact
from carteiro.services.reading import read_batch
from carteiro.settings import Settings
from carteiro.storage.facts import merge_facts
from carteiro.storage.pool import Pool, open_pool, transact
from tests.support.dispatching import LIFTED
from tests.support.factories import phone, value
from tests.support.killing import VICTIM, Killed, kill_before_exchange, no_victim_is_left
from tests.support.steering import FAST, TAKEN, add_owner, bench, change, column, events, money, post, settle, status
from tests.support.waiting import until

REFUSED = Rejected("EC_7", Kind.CONTACT)


async def work_off(pool: Pool, *outcomes: Any) -> None:
    """Claim everything, and record these outcomes over and over in order of seq."""
    station = bench(pool, settings=LIFTED)
    station.spacing.rate_per_s = 20_000.0
    for piece in await station.claim_all():
        await station.record(
            piece,
            *(outcomes[(due.outgoing.seq - 1) % len(outcomes)] for due in piece.due),
            at=datetime.now(UTC),
        )


async def failed_batch(pool: Pool, owner: Caller, n: int = 3, *outcomes: Any, **fields: Any) -> UUID:
    """A settled batch of which all failed, or had these outcomes in turn."""
    batch_id = await post(pool, owner, n, **fields)
    await work_off(pool, *(outcomes or (REFUSED,)))
    assert await settle(pool, LIFTED) == [batch_id]
    return batch_id


async def retry(pool: Pool, owner: Caller, batch_id: UUID) -> Creation:
    return await retry_failed(pool, Settings(), owner, batch_id)


async def rows(pool: Pool, batch_id: UUID) -> list[str]:
    found: list[str] | None = await value(
        pool,
        "SELECT array_agg(concat_ws(' ', m.seq, m.phone_key, c.address, c.placeholders[2], m.status) ORDER BY m.seq)"
        " FROM message m JOIN message_content c USING (batch_id, seq) WHERE m.batch_id = %s",
        batch_id,
    )
    return found or []


def contact(number: int) -> Phone:
    found = parse(phone(number))
    assert isinstance(found, Phone)
    return found


async def erase(pool: Pool, number: int) -> None:
    await erase_contact(pool, contact(number), actor="operator:ana")


async def test_a_child_sends_what_failed_and_nothing_else(pool: Pool) -> None:
    """Of seven: delivered, refused, unknown for good, erased, suppressed since, failed by the guard, refused."""
    owner = await add_owner(pool, credits=100, **FAST)
    contacts = [Contact(phone=phone(number), placeholders=["Ana", str(number)]) for number in range(7)]
    contacts[5] = Contact(phone=phone(5), placeholders=["", "5"])
    parent = await post(
        pool,
        owner,
        contacts=contacts,
        on_invalid="skip",
        on_capacity="spill",
        reference="november",
        callback_url="https://example.com/hook",
        max_attempts=3,
    )
    await work_off(pool, TAKEN, REFUSED, Ambiguous("TIMEOUT"), REFUSED, REFUSED, REFUSED, REFUSED)
    with pytest.raises(NotSettled) as early:
        await retry(pool, owner, parent)
    assert early.value.extra == {"state": "processing"}
    async with transact(pool) as conn:
        gave_up = Fact(parent, 3, FactKind.GIVEN_UP, datetime.now(UTC), code=OUTCOME_UNKNOWN)
        await merge_facts(conn, parent, [gave_up])
    await erase(pool, 3)
    await suppression.suppress(pool, owner, [phone(4)], scope=Scope.ALL)
    assert await settle(pool, LIFTED) == [parent]
    balance = await value(pool, "SELECT balance FROM account")

    created = await retry(pool, owner, parent)
    assert not created.replayed
    child = created.batch_id
    assert await rows(pool, child) == [
        f"{seq} {contact(number).identity} {contact(number).address} {number} {state}"
        for seq, number, state in [(1, 1, "pending"), (2, 4, "unsent"), (3, 5, "pending"), (4, 6, "pending")]
    ]
    assert (await read_batch(pool, owner.account_id, parent)).report.retried_as == child
    seen = (await read_batch(pool, owner.account_id, child)).report
    assert (seen.parent_batch_id, seen.retried_as, seen.status, seen.total) == (parent, None, "pending", 4)
    assert (seen.reference, seen.callback_url, seen.max_attempts) == ("november", "https://example.com/hook", 3)
    assert (seen.on_capacity, seen.suppressed) == ("spill", 1)
    same = "SELECT ROW(template_content, template_signature, header, door)::text FROM batch WHERE id = %s"
    assert await value(pool, same, child) == await value(pool, same, parent)
    assert await money(pool, child) == f"4 0 0 {balance - 4}"
    # What the guard refuses and what is suppressed takes no capacity.
    assert await value(pool, "SELECT sum(held) FROM capacity_hold WHERE batch_id = %s", child) == 2
    assert await events(pool, child) == ["created", "opened"]
    kin = "SELECT concat_ws(' ', event, actor, detail) FROM audit.batch_timeline WHERE kind = 'retry' AND batch_id = %s"
    assert await value(pool, kin, parent) == f"retried {owner.actor} as batch {child}"
    assert await value(pool, kin, child) == f"retries {owner.actor} the failed messages of batch {parent}"

    await work_off(pool, TAKEN, REFUSED, REFUSED, REFUSED)
    assert await settle(pool, LIFTED) == [child]
    assert await money(pool, child) == f"4 1 3 {balance - 1}"
    assert await retry(pool, owner, parent) == Creation(child, replayed=True)
    grandchild = (await retry(pool, owner, child)).batch_id
    assert await rows(pool, grandchild) == [
        f"{seq} {contact(number).identity} {contact(number).address} {number} pending"
        for seq, number in [(1, 5), (2, 6)]
    ]
    assert await violations(pool) == {}


async def test_many_at_once_are_one(pool: Pool) -> None:
    """Also above the rows that creation loads under its locks; and what lost leaves nothing."""
    owner = await add_owner(pool, **FAST)
    parent = await failed_batch(pool, owner, 1_200)
    balance = await value(pool, "SELECT balance FROM account")
    created = await asyncio.gather(*(retry(pool, owner, parent) for _ in range(4)))
    assert len({one.batch_id for one in created}) == 1
    assert sorted(one.replayed for one in created) == [False, True, True, True]
    child = created[0].batch_id
    assert await value(pool, "SELECT balance FROM account") == balance - 1_200
    assert await value(pool, "SELECT count(*) FROM batch") == 2
    assert await value(pool, "SELECT count(*) FROM message WHERE batch_id <> %s", parent) == 1_200
    dense = "SELECT (count(*), min(seq), max(seq))::text FROM message_content WHERE batch_id = %s"
    assert await value(pool, dense, child) == "(1200,1,1200)"


async def test_what_is_in_the_way_is_said_and_nothing_is_left(pool: Pool) -> None:
    owner = await add_owner(pool, credits=6, bm_limit=6, **FAST)
    parent = await failed_batch(pool, owner, 3)
    untouched = await value(pool, "SELECT balance FROM account")

    async def refused(kind: type[Problem], of: UUID = parent, by: Caller = owner) -> Problem:
        with pytest.raises(kind) as told:
            await retry(pool, by, of)
        assert await value(pool, "SELECT count(*) FROM batch") == batches
        assert await value(pool, "SELECT balance FROM account") == untouched
        assert await value(pool, "SELECT coalesce(sum(held), 0) FROM capacity_hold") == 0
        return told.value

    batches = 1
    await refused(NotFound, uuid4())
    await refused(NotFound, by=Caller("k", "rival", "rival", frozenset()))
    await change(pool, "UPDATE service SET active = false")
    assert "acme-utility is not active" in (await refused(Conflict)).detail
    await change(pool, "UPDATE service SET active = true")
    await change(pool, "UPDATE submission SET signature = 'another'")
    assert "order_update" in (await refused(TemplateNotUsable)).detail
    await change(pool, "UPDATE submission s SET signature = t.signature, status = 'PAUSED' FROM template t")
    await refused(TemplateNotUsable)
    await change(pool, "UPDATE submission SET status = 'APPROVED'")
    await change(pool, "UPDATE business_manager SET daily_limit_override = 2")
    short = await refused(CapacityExhausted)
    assert short.extra == {"available": 2, "required": 3}
    await change(pool, "UPDATE business_manager SET daily_limit_override = 6")
    await change(pool, "UPDATE account SET balance = 2")
    untouched = 2
    assert (await refused(InsufficientCredits)).extra == {"balance": 2, "required": 3}
    await change(pool, "UPDATE batch SET door = 'broadcast'")
    await refused(Conflict)
    await change(pool, "UPDATE batch SET door = 'batch'")
    week = datetime.now(UTC) - timedelta(days=datetime.now(UTC).weekday() + 7)
    dropped = "INSERT INTO partition_drop (parent, from_at, until_at) VALUES ('message', %s, %s)"
    await change(pool, dropped, week, week + timedelta(days=21))
    await refused(Gone)
    await change(pool, "DELETE FROM partition_drop")
    for number in range(3):
        await erase(pool, number)
    await refused(NothingToRetry)


async def test_in_test_mode_it_waits_for_moderation_and_holds_nothing(pool: Pool) -> None:
    owner = await add_owner(pool, **FAST)
    parent = await failed_batch(pool, owner, 2)
    await change(pool, "UPDATE service SET test_mode = true")
    child = (await retry(pool, owner, parent)).batch_id
    assert await status(pool, child) == "pending_moderation"
    assert await column(pool, child, "debited") == 2
    assert await value(pool, "SELECT coalesce(sum(held), 0) FROM capacity_hold") == 0
    assert await retry(pool, owner, parent) == Creation(child, replayed=True)


async def test_a_contact_who_is_erased_meanwhile_is_in_no_child(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the copy and the opening: the copy is made anew. Just before its commit: the erasure looks again."""
    owner = await add_owner(pool, **FAST)
    parent = await failed_batch(pool, owner, 3)
    original, copies = retrying._load, 0

    async def load(*args: Any) -> Any:
        nonlocal copies
        copies += 1
        loaded = await original(*args)
        if copies == 1:
            await erase(pool, 1)
        return loaded

    monkeypatch.setattr(retrying, "_load", load)
    child = (await retry(pool, owner, parent)).batch_id
    assert copies == 2
    assert len(await rows(pool, child)) == 2
    assert await value(pool, "SELECT count(*) FROM message WHERE phone_key = %s", contact(1).identity) == 0
    assert await value(pool, "SELECT count(*) FROM batch WHERE status = 'draft'") == 0


async def test_killed_anywhere_it_leaves_nothing_or_everything(
    pool: Pool, postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before each exchange with the server. What is left of a draft, the sweep collects."""
    owner = await add_owner(pool, credits=100, bms=2, **FAST)
    parent = await failed_batch(pool, owner, 3)
    balance = await value(pool, "SELECT balance FROM account")
    drafts = number = 0
    while True:
        number += 1
        async with open_pool(postgres_dsn, min_size=1, max_size=2, application_name=VICTIM) as victims:
            with monkeypatch.context() as patched:
                was_killed = kill_before_exchange(patched, number)
                with contextlib.suppress(Killed):
                    await retry(victims, owner, parent)
        await until(lambda: no_victim_is_left(pool), 5, "the server has ended the killed sessions")
        drafts += await collect_abandoned_drafts(pool, older_than_s=0)
        if await value(pool, "SELECT count(*) FROM batch") == 2:
            break
        assert await value(pool, "SELECT balance FROM account") == balance
        assert await value(pool, "SELECT coalesce(sum(held), 0) FROM capacity_hold") == 0
        assert await value(pool, "SELECT count(*) FROM message WHERE batch_id <> %s", parent) == 0
        assert was_killed()
    assert number > 20
    assert drafts > 0
    replay = await retry(pool, owner, parent)
    assert replay.replayed
    assert await money(pool, replay.batch_id) == f"3 0 0 {balance - 3}"
    assert await violations(pool) == {}
