"""Erasure of one person: nothing of them is left, and what their messages came to stays."""

import asyncio
import json
from typing import Any
from uuid import UUID

import psycopg
import pytest

from carteiro.domain.outcomes import Accepted, Ambiguous, Fact, FactKind, Kind, message_key
from carteiro.domain.phones import Phone, parse
from carteiro.providers.registry import parser_of
from carteiro.services import reading
from carteiro.services.audit import EVERYTHING, violations
from carteiro.services.erasure import Erasure, erase_contact
from carteiro.services.finalise import finalise_due
from carteiro.services.receive import apply_all
from carteiro.services.withdraw import withdraw_ended
from carteiro.storage import suppression
from carteiro.storage.facts import merge_facts
from carteiro.storage.pool import Pool, transact
from tests.support.dispatching import LIFTED, Bench, FakeProvider, counts, running_bench
from tests.support.factories import ACCOUNT, add_account, add_batch, phone, value
from tests.support.posting import store_payload
from tests.support.waiting import until

FAST = {"messages_per_second": 10_000, "bm_limit": 10_000}
TAKEN = Accepted("wamid.HBgNNTUxMTk4MDAwMDAwMBUC")


def contact(number: int = 0) -> Phone:
    found = parse(phone(number))
    assert isinstance(found, Phone)
    return found


def bench(pool: Pool) -> Bench:
    built = Bench(pool, LIFTED, FakeProvider())
    built.spacing.rate_per_s = 20_000.0
    return built


async def erase(pool: Pool, number: int = 0) -> Erasure:
    return await erase_contact(pool, contact(number), actor="operator:ana", reason="asked by letter")


async def row(pool: Pool, batch_id: UUID, seq: int = 1) -> dict[str, Any]:
    found: dict[str, Any] = await value(
        pool,
        "SELECT to_jsonb(m) || to_jsonb(c) FROM message m JOIN message_content c USING (batch_id, seq)"
        " WHERE m.batch_id = %s AND m.seq = %s",
        batch_id,
        seq,
    )
    return found


async def everything(pool: Pool) -> str:
    """All that the database holds, but for the suppression list and the keys of jobs."""
    async with pool.connection() as conn:
        cursor = await conn.execute(
            "SELECT n.nspname || '.' || c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE c.relkind = 'r' AND n.nspname IN ('public', 'audit') AND c.relname <> 'suppression'"
        )
        found = []
        for (name,) in await cursor.fetchall():
            rows = await conn.execute(f"SELECT to_jsonb(t)::text FROM {name} t".encode())
            found += [text for (text,) in await rows.fetchall()]
    # Bodies are shown in hexadecimal.
    bodies = [bytes.fromhex(part.split('"')[0]).decode(errors="replace") for part in "".join(found).split('"\\\\x')[1:]]
    return "\n".join([*found, *bodies])


async def test_nothing_is_left_and_what_it_came_to_stays(pool: Pool) -> None:
    await add_account(pool, credits=100, **FAST)
    batch_id, other = await add_batch(pool, 3), await add_batch(pool, 2, start=0, reference="again")
    await bench(pool).work_off(TAKEN)
    token = await value(pool, "SELECT webhook_token FROM service")
    told = [delivery(batch_id, seq, contact(seq - 1).address) for seq in (1, 2)]
    inbound = {
        "from": str(contact().identity),
        "receivedAt": "2026-12-01T10:00:00.000-0300",
        "message": {"type": "TEXT", "text": "sou Ana"},
    }
    for results in (told, [inbound]):
        assert await store_payload(pool, "infobip", token, json.dumps({"results": results}).encode())
    await apply_all(pool, parser_of)
    before = await reading.read_batch(pool, ACCOUNT, batch_id)

    assert await erase(pool) == Erasure(messages=2, payloads=2)

    left = await everything(pool)
    assert contact().address not in left
    assert str(contact().identity) not in left
    assert "sou Ana" not in left
    assert TAKEN.provider_id in left, "that of the others"
    assert contact(1).address in left
    bodies = [
        json.loads(bytes(body)) for body in await value(pool, "SELECT array_agg(body ORDER BY id) FROM receipt_payload")
    ]
    assert bodies == [{"results": [{"erased": True}, told[1]]}, {"results": [{"erased": True}]}]

    erased = await row(pool, batch_id)
    assert (erased["address"], erased["placeholders"], erased["extra"], erased["provider_id"]) == ("", [], None, None)
    assert erased["status"] == "delivered"
    assert erased["phone_key"] < 0
    assert erased["phone_key"] != (await row(pool, other))["phone_key"], "what is left cannot be put together"
    assert (await reading.read_batch(pool, ACCOUNT, batch_id)).counts == before.counts
    assert await value(pool, "SELECT phone FROM audit.message_now WHERE batch_id = %s AND seq = 1", batch_id) is None
    assert await value(pool, "SELECT count(*) FROM audit.message_history WHERE batch_id = %s AND seq = 1", batch_id) > 2
    assert await violations(pool, lookback=EVERYTHING) == {}


def delivery(batch_id: UUID, seq: int, to: str) -> dict[str, Any]:
    return {
        "messageId": message_key(batch_id, seq),
        "to": to,
        "contact": {"name": f"name of {to}"},
        "sentAt": "2026-12-01T10:00:00.120-0300",
        "doneAt": "2026-12-01T10:00:02.481-0300",
        "status": {"groupId": 3, "id": 5},
        "error": {"groupId": 0, "id": 0},
    }


async def test_the_audit_keeps_a_hash_and_that_it_was_erased(pool: Pool) -> None:
    await add_account(pool, credits=100, **FAST)
    batch_id = await add_batch(pool, 2)
    await erase(pool)
    async with pool.connection() as conn:
        cursor = await conn.execute(
            "SELECT batch_id, messages, payloads, actor, reason FROM audit.erasures WHERE phone_hash ="
            " encode(erasure_hash(%s), 'hex') ORDER BY erasure_id",
            (contact().identity,),
        )
        rows = await cursor.fetchall()
    assert rows == [
        (batch_id, 1, 0, "operator:ana", "asked by letter"),
        (None, 0, 0, "operator:ana", "asked by letter"),
    ]
    for statement in ("DELETE FROM erasure", "UPDATE erasure_salt SET salt = ''", "DELETE FROM erasure_salt"):
        async with pool.connection() as conn:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                await conn.execute(statement.encode())


async def test_a_second_time_there_is_nothing_left_to_erase(pool: Pool) -> None:
    await add_account(pool, credits=100, **FAST)
    await add_batch(pool, 2)
    assert (await erase(pool)).messages == 1
    assert await erase(pool) == Erasure()
    assert await value(pool, "SELECT count(DISTINCT phone_hash) FROM erasure") == 1


async def test_the_same_contact_is_a_new_one_afterwards(pool: Pool) -> None:
    await add_account(pool, credits=100, **FAST)
    await add_batch(pool, 2)
    await erase(pool)
    again = await add_batch(pool, 2, allow_duplicate=True)
    await bench(pool).work_off(TAKEN)
    assert (await row(pool, again))["address"] == contact().address
    assert (await erase(pool)).messages == 1


async def test_what_had_not_left_is_withdrawn_and_refunded(pool: Pool) -> None:
    await add_account(pool, credits=10, charge_rule="full", **FAST)
    batch_id = await add_batch(pool, 3)
    assert await erase(pool) == Erasure(messages=1, withdrawn=1)
    station = bench(pool)
    await station.work_off(TAKEN)
    assert contact().address not in {call.outgoing.to for call in station.provider.calls}
    assert await counts(pool, batch_id) == {"unsent": 1, "sent": 2}
    assert (await row(pool, batch_id))["code"] == "ERASED"
    await deliver(pool, batch_id, [2, 3])
    assert await finalise_due(pool, LIFTED) == [batch_id]
    view = await reading.read_batch(pool, ACCOUNT, batch_id)
    assert (view.report.charged, view.report.refunded) == (2, 1)
    assert await violations(pool, lookback=EVERYTHING) == {}


async def deliver(pool: Pool, batch_id: UUID, seqs: list[int]) -> None:
    at = await value(pool, "SELECT clock_timestamp()")
    async with transact(pool) as conn:
        await conn.execute("SELECT id FROM batch WHERE id = %s FOR KEY SHARE", (batch_id,))
        await merge_facts(conn, batch_id, [Fact(batch_id, seq, FactKind.DELIVERED, at) for seq in seqs])


async def test_a_batch_of_one_that_was_erased_is_settled(pool: Pool) -> None:
    await add_account(pool, credits=10, **FAST)
    batch_id = await add_batch(pool, 1)
    await erase(pool)
    await bench(pool).claim_all()
    await withdraw_ended(pool)
    assert await finalise_due(pool, LIFTED) == [batch_id]
    assert await value(pool, "SELECT balance FROM account") == 10


async def test_what_comes_back_after_the_erasure_is_never_called(pool: Pool) -> None:
    await add_account(pool, credits=10, **FAST)
    batch_id = await add_batch(pool, 2)
    station = bench(pool)
    piece = await station.claimed()
    assert await erase(pool) == Erasure(messages=1, on_their_way=1)
    await station.record_all(piece, None)
    assert await counts(pool, batch_id) == {"pending": 2}
    await station.work_off(TAKEN)
    assert await counts(pool, batch_id) == {"unsent": 1, "sent": 1}
    assert (await row(pool, batch_id))["code"] == "ERASED"
    assert await violations(pool, lookback=EVERYTHING) == {}


async def test_the_providers_id_is_not_kept_when_it_is_told_after_the_erasure(pool: Pool) -> None:
    """It has the phone inside, and no later erasure would find it by the phone."""
    await add_account(pool, credits=10, **FAST)
    batch_id = await add_batch(pool, 2)
    station = bench(pool)
    piece = await station.claimed()
    assert await erase(pool) == Erasure(messages=1, on_their_way=1)
    await station.record_all(piece, TAKEN)
    at = await value(pool, "SELECT clock_timestamp()")
    async with transact(pool) as conn:
        await merge_facts(conn, batch_id, [Fact(batch_id, 1, FactKind.DELIVERED, at, "wamid.again")])
    assert await counts(pool, batch_id) == {"delivered": 1, "sent": 1}
    assert (await row(pool, batch_id))["provider_id"] is None
    assert (await row(pool, batch_id, 2))["provider_id"] == TAKEN.provider_id
    assert await value(pool, "SELECT count(*) FROM message_alias WHERE seq = 1") == 0


async def test_an_unknown_outcome_is_still_looked_up(pool: Pool) -> None:
    await add_account(pool, credits=10, **FAST)
    batch_id = await add_batch(pool, 1)
    station = bench(pool)
    await station.record_all(await station.claimed(), Ambiguous("TIMEOUT"))
    assert await erase(pool) == Erasure(messages=1, on_their_way=1)
    await deliver(pool, batch_id, [1])
    assert await counts(pool, batch_id) == {"delivered": 1}


async def test_a_receipt_that_is_not_merged_is_left_for_the_next_time(pool: Pool) -> None:
    await add_account(pool, credits=10, **FAST)
    batch_id = await add_batch(pool, 1)
    await bench(pool).work_off(TAKEN)
    token = await value(pool, "SELECT webhook_token FROM service")
    body = json.dumps({"results": [delivery(batch_id, 1, contact().address)]}).encode()
    assert await store_payload(pool, "infobip", token, body)
    assert await erase(pool) == Erasure(messages=1, waiting=1)
    await apply_all(pool, parser_of)
    assert await counts(pool) == {"delivered": 1}, "by its id"
    assert await erase(pool) == Erasure(payloads=1)
    assert contact().address not in await everything(pool)


async def test_raw_receipts_are_searched_page_by_page(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("carteiro.services.erasure.PAGE", 3)
    await add_account(pool, credits=10, **FAST)
    token = await value(pool, "SELECT webhook_token FROM service")
    for number in range(11):
        await store_payload(
            pool, "infobip", token, json.dumps({"results": [{"from": contact(number % 2).address}]}).encode()
        )
    await apply_all(pool, parser_of)
    assert (await erase(pool)).payloads == 6
    assert contact(1).address in await everything(pool)


async def test_a_refusal_that_comes_after_the_erasure_suppresses_nobody(pool: Pool) -> None:
    await add_account(pool, credits=10, **FAST)
    batch_id = await add_batch(pool, 1)
    await bench(pool).work_off(TAKEN)
    await erase(pool)
    at = await value(pool, "SELECT clock_timestamp()")
    refused = Fact(batch_id, 1, FactKind.FAILED, at, None, "EC_7033", Kind.CONTACT_MARKETING)
    async with transact(pool) as conn:
        await suppression.note_refusals(conn, batch_id, [refused])
    assert await value(pool, "SELECT count(*) FROM suppression") == 0


@pytest.mark.parametrize(
    "forged",
    [
        "phone_key = 5",
        "phone_key = -5",
        "phone_key = erased_key(phone_key + 1, batch_id)",
        "seq = 9, phone_key = erased_key(phone_key, batch_id)",
    ],
)
async def test_an_identity_can_only_be_erased(pool: Pool, forged: str) -> None:
    await add_account(pool, credits=10, **FAST)
    await add_batch(pool, 1)
    async with pool.connection() as conn:
        with pytest.raises(psycopg.errors.CheckViolation):
            await conn.execute(f"UPDATE message SET {forged}".encode())
    await erase(pool)
    async with pool.connection() as conn:
        for back in (str(contact().identity), "erased_key(phone_key, batch_id)"):
            with pytest.raises(psycopg.errors.CheckViolation):
                await conn.execute(f"UPDATE message SET phone_key = {back}".encode())


async def test_contacts_are_erased_while_batches_run(pool: Pool) -> None:
    await add_account(pool, credits=10_000, **FAST)
    provider = FakeProvider(latency_s=0.005)
    async with running_bench(pool, provider, lateness_s=60.0) as station:
        batches = [await add_batch(pool, 200, allow_duplicate=True) for _ in range(3)]
        pumping = asyncio.gather(*(station.pump() for _ in range(2)))

        async def begun() -> bool:
            return len(provider.calls) > 20

        await until(begun, 20, "calls are made")
        done = await asyncio.gather(*(erase(pool, number) for number in range(100, 200, 7)))
        called_before = len(provider.calls)
        await pumping
        while await value(pool, "SELECT sum(pending)::int FROM batch_tally"):
            await station.pump()
    assert called_before < len(provider.calls)
    assert sum(one.messages for one in done) == 15 * 3
    withdrawn = sum(one.withdrawn for one in done)
    assert withdrawn > 0
    assert await counts(pool) == {"sent": 600 - withdrawn, "unsent": withdrawn}
    assert provider.most_calls_for_one_message == 1
    assert len(batches) == 3
    assert await value(pool, "SELECT count(*) FROM message WHERE phone_key < 0") == 15 * 3
    assert await violations(pool, lookback=EVERYTHING) == {}
