"""Two-step batches: whoever answers is followed up once, inside the window, and nothing uncertain is tried again."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any, LiteralString
from uuid import UUID

import pytest

from carteiro.domain.follow_ups import FollowUp, Media, MediaType
from carteiro.domain.outcomes import (
    Accepted,
    Ambiguous,
    Fact,
    FactKind,
    Kind,
    NotSent,
    Outcome,
    Rejected,
    Throttled,
    followup_key,
    message_key,
)
from carteiro.domain.phones import Phone, parse
from carteiro.domain.suppression import Scope
from carteiro.services.audit import violations
from carteiro.services.control import cancel_batch, pause_batch, resume_batch
from carteiro.services.dispatch.follow_up_reconcile import reconcile_follow_ups
from carteiro.services.dispatch.lapse import close_lapsed_claims
from carteiro.services.dispatch.model import Nothing, Slice
from carteiro.services.erasure import erase_contact
from carteiro.services.reading import read_batch
from carteiro.services.suppression import suppress
from carteiro.services.withdraw import withdraw_follow_ups
from carteiro.storage.follow_ups import merge_facts
from carteiro.storage.pool import Pool, transact
from tests.support import factories
from tests.support.answers import answer, apply, inbound, post, report
from tests.support.dispatching import Bench, FakeProvider, running_bench
from tests.support.factories import add_account, add_batch, caller, phone, sender_id, value
from tests.support.posting import store_posted
from tests.support.waiting import until

TEXT = FollowUp(text="Aqui estão os detalhes.")
TAKEN = Accepted("")


async def start(pool: Pool, bench: Bench, n: int = 1, follow_up: FollowUp = TEXT, **fields: Any) -> UUID:
    """A batch of which every message was sent."""
    await add_account(pool, credits=100)
    return await send(pool, bench, n, follow_up, **fields)


async def send(pool: Pool, bench: Bench, n: int = 1, follow_up: FollowUp | None = TEXT, **fields: Any) -> UUID:
    batch_id = await add_batch(pool, n, follow_up=follow_up, **fields)
    await bench.pump()
    assert await value(pool, "SELECT count(*) FROM message WHERE batch_id = %s AND status = 'sent'", batch_id) == n
    return batch_id


async def rows(pool: Pool, columns: str = "seq, status, code") -> list[tuple[Any, ...]]:
    async with pool.connection() as conn:
        cursor = await conn.execute(f"SELECT {columns} FROM follow_up ORDER BY batch_id, seq".encode())
        return await cursor.fetchall()


async def history(pool: Pool) -> list[str]:
    async with pool.connection() as conn:
        cursor = await conn.execute("SELECT event FROM follow_up_event ORDER BY id")
        return [event for (event,) in await cursor.fetchall()]


async def is_cancelled(pool: Pool, batch_id: UUID) -> bool:
    return await value(pool, "SELECT status FROM batch WHERE id = %s", batch_id) == "cancelled"


async def claimed(bench: Bench) -> Slice:
    piece = await bench.claim_follow_ups()
    assert isinstance(piece, Slice), piece
    return piece


async def test_ten_answers_told_at_once_in_any_order_and_again_are_followed_up_once(pool: Pool) -> None:
    async with running_bench(pool) as bench:
        batch_id = await start(pool, bench, 3)
        who = phone(0)
        told = [inbound(who, number=n, button=n % 2 == 0, text=f"resposta {n}") for n in range(10)]
        for one in (*told, *reversed(told)):
            await post(pool, one)
        await asyncio.gather(*(apply(pool) for _ in range(5)))
        await asyncio.gather(bench.pump(), bench.pump())
        await post(pool, *told)
        await apply(pool)
        await bench.pump()

        (sent,) = bench.provider.free_calls
        assert (sent.batch_id, sent.seq, sent.text, sent.media) == (batch_id, 1, TEXT.text, None)
        assert (sent.to, sent.sender) == (who.removeprefix("+"), sender_id(1))
        assert "/webhooks/infobip/" in str(sent.notify_url)
        assert await rows(pool) == [(1, "sent", None)]
        assert await history(pool) == ["answered", "claimed", "sent"]
        # Outside totals, counts, money and capacity.
        seen = await read_batch(pool, factories.ACCOUNT, batch_id)
        assert sum(seen.counts.values()) == 3
        assert await value(pool, "SELECT used FROM capacity_meter WHERE kind = 'sender'") == 3
        assert await value(pool, "SELECT sum(cardinality(slots_us)) FROM pace_meter WHERE kind = 'service'") == 4
        results = "SELECT array_agg(result ORDER BY result) FROM receipt WHERE kind = 'inbound'"
        assert await value(pool, results) == ["applied", *["repeated"] * 29]
        assert not await violations(pool)


async def test_an_answer_belongs_to_the_message_it_names_else_to_the_latest_of_its_contact(pool: Pool) -> None:
    async with running_bench(pool) as bench:
        first = await start(pool, bench, 2)
        second = await send(pool, bench, 2, allow_duplicate=True)
        await send(pool, bench, 2, None, allow_duplicate=True)
        short = phone(0).replace("+55119", "+5511")
        # A message with nothing to follow, or whose own follow-up is meant, calls for none.
        await answer(pool, inbound(phone(0), context_id=followup_key(first, 1)))
        assert await rows(pool) == []
        await answer(pool, inbound(phone(1), context_id=message_key(first, 2)))
        await answer(pool, inbound(short, context_id="wamid.of.somebody"))
        assert await rows(pool, "batch_id, seq, answered_by") == [(first, 2, "context"), (second, 1, "phone")]
        # Told again, it belongs to the same one.
        await answer(pool, inbound(short), inbound(phone(0)))
        assert len(await rows(pool)) == 2

        # By the provider's own id.
        async with transact(pool) as conn:
            await conn.execute("INSERT INTO message_alias VALUES ('wamid.ours', %s, 1)", (first,))
            await conn.execute("INSERT INTO message_alias VALUES ('wamid.follow', %s, 2, true)", (second,))
        await answer(pool, inbound("999", context_id="wamid.ours"), inbound(phone(1), context_id="wamid.follow"))
        assert await rows(pool, "batch_id, seq") == [(first, 1), (first, 2), (second, 1)]


async def test_what_is_no_answer_calls_for_nothing(pool: Pool) -> None:
    async with running_bench(pool) as bench:
        batch_id = await start(pool, bench, 4)
        now = datetime.now(UTC)
        await answer(
            pool,
            inbound(phone(0), text="PARAR!"),
            inbound(phone(1), at=now - timedelta(minutes=1)),
            inbound(phone(2), sender="5511999990000"),
            inbound(phone(77)),
            {**inbound(phone(3)), "message": {"type": "REACTION", "emoji": "x"}},
        )
        await answer(pool, inbound(phone(0)), account=factories.ACCOUNT)
        # Who said stop before is suppressed: what was written after it changes nothing.
        await bench.pump()
        assert await rows(pool) == [(1, "unsent", "SUPPRESSED")]
        assert bench.provider.free_calls == []

        # A day after the message nothing counts as its answer.
        async with transact(pool) as conn:
            await conn.execute(
                "UPDATE message SET slot_at = slot_at - interval '1 day 1 minute' WHERE batch_id = %s", (batch_id,)
            )
        await answer(pool, inbound(phone(1)), inbound(phone(2), context_id=message_key(batch_id, 3)))
        assert len(await rows(pool)) == 1


async def test_media_follow_as_given(pool: Pool) -> None:
    media = Media(MediaType.DOCUMENT, "https://example.com/a.pdf", "leia", "a.pdf")
    async with running_bench(pool) as bench:
        await start(pool, bench, follow_up=FollowUp(media=media))
        await answer(pool, inbound(phone(0)))
        await bench.pump()
        (sent,) = bench.provider.free_calls
        assert sent.text is None
        assert sent.media == {
            "type": "DOCUMENT",
            "mediaUrl": "https://example.com/a.pdf",
            "caption": "leia",
            "filename": "a.pdf",
        }


async def test_it_goes_on_after_the_end_waits_while_paused_and_is_dropped_with_its_batch(pool: Pool) -> None:
    async with running_bench(pool) as bench:
        await start(pool, bench, 1, start=10)
        batch_id = await value(pool, "SELECT id FROM batch")
        async with transact(pool) as conn:
            await conn.execute(
                "UPDATE batch SET status = 'completed', event = 'completed', settled_at = clock_timestamp()"
            )
        await answer(pool, inbound(phone(10)))
        await bench.pump()
        assert await rows(pool, "batch_id, status") == [(batch_id, "sent")]

        paused = await send(pool, bench, 3, start=20)
        await answer(pool, inbound(phone(20)), inbound(phone(21)))
        piece = await claimed(bench)
        # Claimed before the pause: it is waited for, and what has not started does not.
        pausing = asyncio.create_task(pause_batch(pool, bench.settings, caller(), paused))
        await bench.record_all(piece, None)
        await pausing
        assert isinstance(await bench.claim_follow_ups(), Nothing)
        await withdraw_follow_ups(pool)
        assert [status for (status,) in await rows(pool, "status")] == ["sent", "pending", "pending"]
        async with transact(pool) as conn:
            await conn.execute(
                "UPDATE follow_up SET window_until = clock_timestamp() WHERE seq = 1 AND status = 'pending'"
            )
        await withdraw_follow_ups(pool)
        await resume_batch(pool, caller(), paused)
        await bench.pump()
        told = [("sent", None), ("unsent", "WINDOW_CLOSED"), ("sent", None)]
        assert await rows(pool, "status, code") == told

        # In hand when its batch is cancelled: given back, it ends; answered later, it never begins.
        await answer(pool, inbound(phone(22)))
        piece = await claimed(bench)
        cancelling = asyncio.create_task(cancel_batch(pool, bench.settings, caller(), paused))
        await until(lambda: is_cancelled(pool, paused), 5, "the batch to be cancelled")
        await bench.record_all(piece, None)
        await cancelling
        assert await rows(pool, "status, code") == [*told, ("unsent", "BATCH_CANCELLED")]
        cancelled = await send(pool, bench, 1, start=30)
        await cancel_batch(pool, bench.settings, caller(), cancelled)
        await answer(pool, inbound(phone(30)))
        await bench.pump()
        await withdraw_follow_ups(pool)
        assert (await rows(pool, "status, code"))[-1] == ("unsent", "BATCH_CANCELLED")
        assert len(bench.provider.free_calls) == 2


async def test_suppressed_and_erased_contacts_are_not_followed_up(pool: Pool) -> None:
    async with running_bench(pool) as bench:
        batch_id = await start(pool, bench, 3)
        await answer(pool, *(inbound(phone(n)) for n in range(3)))
        await suppress(pool, caller(), [phone(0)], scope=Scope.ALL)
        erased = parse(phone(1))
        assert isinstance(erased, Phone)
        await erase_contact(pool, erased, actor="test")
        await bench.pump()
        assert await rows(pool) == [(1, "unsent", "SUPPRESSED"), (2, "unsent", "ERASED"), (3, "sent", None)]
        # Of one that had gone, too, nothing is left that says to whom.
        async with transact(pool) as conn:
            await conn.execute("UPDATE follow_up SET provider_id = 'wamid.x' WHERE seq = 3")
        gone = parse(phone(2))
        assert isinstance(gone, Phone)
        await erase_contact(pool, gone, actor="test")
        assert await rows(pool, "provider_id") == [(None,), (None,), (None,)]
        late = Fact(batch_id, 3, FactKind.SEEN, datetime.now(UTC), "wamid.y", followup=True)
        async with transact(pool) as conn:
            await merge_facts(conn, batch_id, [late])
        assert (await rows(pool, "status, provider_id"))[-1] == ("seen", None)
        assert await value(pool, "SELECT count(*) FROM message_alias WHERE followup") == 0
        masked = "SELECT array_agg(phone ORDER BY seq) FROM audit.follow_ups WHERE batch_id = %s"
        assert await value(pool, masked, batch_id) == ["***0000", None, None]


@pytest.mark.parametrize(
    ("outcome", "status", "code", "again"),
    [
        (TAKEN, "sent", None, False),
        (Rejected("EC_7010", Kind.CONTACT), "failed", "EC_7010", False),
        (Rejected("EC_7016", Kind.SENDER), "pending", "EC_7016", False),
        (NotSent("CONNECT_FAILED"), "pending", "CONNECT_FAILED", True),
        (NotSent("1", tries_max=1), "failed", "1", False),
        (Throttled(0.0), "pending", "429", True),
        (None, "pending", None, True),
        (Ambiguous("TIMEOUT"), "unknown", "TIMEOUT", False),
        (Ambiguous("EC_7280", duplicate=True), "unknown", "EC_7280", False),
    ],
)
async def test_what_each_outcome_does(
    pool: Pool, outcome: Outcome | None, status: str, code: str | None, again: bool
) -> None:
    async with running_bench(pool) as bench:
        await start(pool, bench)
        await answer(pool, inbound(phone(0)))
        piece = await claimed(bench)
        await bench.record_all(piece, outcome)
        assert await rows(pool) == [(1, status, code)]
        async with transact(pool) as conn:
            await conn.execute("UPDATE follow_up SET available_at = clock_timestamp()")
            await conn.execute("UPDATE service_health SET wait_until = NULL")
        assert isinstance(await bench.claim_follow_ups(), Slice) is again
        # With its window closed before its next try it ends.
        if again:
            async with transact(pool) as conn:
                await conn.execute("UPDATE follow_up SET window_until = clock_timestamp() + interval '0.2 seconds'")
                await conn.execute("UPDATE follow_up SET claim_id = %s", (piece.claim_id,))
                await conn.execute("UPDATE claim SET flushes = 0, open = 1, closed_at = NULL")
            piece.flushes = 0
            await bench.record_all(piece, NotSent("CONNECT_FAILED"))
            assert await rows(pool) == [(1, "unsent", "WINDOW_CLOSED")]


async def test_a_lapsed_lease_leaves_it_unknown_and_only_evidence_settles_it(pool: Pool) -> None:
    provider = FakeProvider()
    async with running_bench(pool, provider, reconcile_after_s=30.0, lease_grace_s=0.0) as bench:
        batch_id = await start(pool, bench, 4)
        await answer(pool, *(inbound(phone(n)) for n in range(4)))
        piece = await claimed(bench)
        async with transact(pool) as conn:
            await conn.execute("UPDATE claim SET lease_until = clock_timestamp() - interval '1 second'")
        assert await close_lapsed_claims(pool, bench.settings) == 4
        assert await rows(pool) == [(seq, "unknown", "LEASE_LAPSED") for seq in (1, 2, 3, 4)]
        assert isinstance(await bench.claim_follow_ups(), Nothing)
        # The worker was alive after all: its evidence counts, its wish to try again does not.
        await bench.record(piece, Accepted("wamid.1"), NotSent("CONNECT_FAILED"))
        assert [status for (status,) in await rows(pool, "status")] == ["sent", "unknown", "unknown", "unknown"]

        async def look(*, over: bool = False) -> list[str]:
            async with transact(pool) as conn:
                await conn.execute("UPDATE follow_up SET look_at = clock_timestamp() WHERE look_at IS NOT NULL")
                if over:
                    await conn.execute("UPDATE follow_up SET unknown_at = unknown_at - interval '3 days'")
            await reconcile_follow_ups(pool, bench.settings, bench.provider_for)
            return [status for (status,) in await rows(pool, "status")]

        # That the log does not have it proves nothing, however often.
        for _ in range(3):
            assert await look() == ["sent", "unknown", "unknown", "unknown"]
        provider.taken_free[batch_id, 3] = FactKind.DELIVERED
        assert await look() == ["sent", "unknown", "delivered", "unknown"]
        provider.log_reachable = False
        assert await look(over=True) == ["sent", "failed", "delivered", "failed"]
        assert (await rows(pool))[1] == (2, "failed", "OUTCOME_UNKNOWN")
        # Given up, and delivered all the same.
        await answer(pool, report(batch_id, 2, at=datetime.now(UTC)))
        assert (await rows(pool))[1] == (2, "delivered", None)
        await bench.pump()
        assert provider.free_calls == []
        assert not await violations(pool)


async def test_receipts_in_any_order_come_to_the_same_and_leave_the_message_alone(pool: Pool) -> None:
    now = datetime.now(UTC)
    async with running_bench(pool) as bench:
        batch_id = await start(pool, bench, 3)
        await answer(pool, *(inbound(phone(n)) for n in range(2)))
        # Of what was never sent nothing can be told.
        await answer(pool, report(batch_id, 1, at=now), report(batch_id, 3, at=now))
        piece = await claimed(bench)
        told = [report(batch_id, 1, at=now), report(batch_id, 1, at=now + timedelta(seconds=2), seen=True)]
        await answer(pool, told[1], told[1])
        await answer(pool, told[0])
        # Before our own record.
        await bench.record_all(piece, Accepted(""))
        await answer(pool, report(batch_id, 2, at=now, status_id=9))
        known = "status, code IS NOT NULL, num_nulls(delivered_at, seen_at, sent_at)"
        assert await rows(pool, known) == [("seen", False, 0), ("failed", True, 2)]
        messages = "SELECT array_agg(DISTINCT status) FROM message WHERE batch_id = %s"
        assert await value(pool, messages, batch_id) == ["sent"]
        results = (
            "SELECT array_agg(kind || ' ' || result ORDER BY kind, result) FROM receipt WHERE kind LIKE 'follow_up%%'"
        )
        assert await value(pool, results) == [
            "follow_up_delivered applied",
            "follow_up_delivered orphan",
            "follow_up_delivered orphan",
            "follow_up_failed applied",
            "follow_up_seen applied",
            "follow_up_seen repeated",
        ]
        assert not await violations(pool)


async def test_only_the_senders_own_number_and_pace_carry_it(pool: Pool) -> None:
    """A stopped sender waits for its window's end; a slow one holds up no other."""
    async with running_bench(pool, slice_s=0.3) as bench:
        await add_account(pool, credits=100, bms=2)
        await send(pool, bench, 8)
        slow, other = await value(pool, "SELECT array_agg(DISTINCT sender_id ORDER BY sender_id) FROM message")
        async with transact(pool) as conn:
            await conn.execute("UPDATE sender SET messages_per_second = 1 WHERE id = %s", (slow,))
            cursor = await conn.execute("SELECT seq FROM message WHERE sender_id = %s ORDER BY seq", (slow,))
            of_slow = [seq for (seq,) in await cursor.fetchall()]
        await answer(pool, *(inbound(phone(n), sender=slow if n + 1 in of_slow else other) for n in range(8)))
        piece = await claimed(bench)
        assert sorted(due.outgoing.seq for due in piece.due if due.sender_id == slow) == of_slow[:1]
        assert sum(due.sender_id == other for due in piece.due) == 4
        assert piece.due == sorted(piece.due, key=lambda due: due.slot_us)
        await bench.record_all(piece, TAKEN)
        async with transact(pool) as conn:
            await conn.execute("UPDATE sender SET status = 'STOPPED' WHERE id = %s", (slow,))
            await conn.execute("UPDATE follow_up SET available_at = clock_timestamp()")
        assert isinstance(await bench.claim_follow_ups(), Nothing)
        async with transact(pool) as conn:
            await conn.execute("UPDATE sender SET status = 'ACTIVE', messages_per_second = NULL WHERE id = %s", (slow,))
        assert {due.outgoing.sender for due in (await claimed(bench)).due} == {slow}


async def test_metas_answers_are_attributed_by_its_ids_and_numbers(pool: Pool) -> None:
    """One webhook for everybody: the account is that of the number, and receipts come by Meta's id alone."""
    number, wamid = "109000000000001", "wamid.template"
    async with running_bench(pool, FakeProvider(name="meta", has_log=False)) as bench:
        await add_account(pool, credits=100)
        async with transact(pool) as conn:
            await conn.execute("UPDATE sender SET provider_ref = %s", (number,))
            await conn.execute("UPDATE service SET provider = 'meta'")
        bench.provider.answer = lambda outgoing: Accepted(f"{wamid}.{outgoing.seq}")
        bench.provider.free_answer = lambda message: Accepted(f"wamid.free.{message.seq}")
        batch_id = await send(pool, bench, 2)

        def wrote(phone_number: str, context_id: str | None) -> dict[str, Any]:
            context = {"context": {"from": "1", "id": context_id}} if context_id else {}
            seconds = str(int(datetime.now(UTC).timestamp()))
            said = {"type": "text", "text": {"body": "oi"}, **context}
            return {"from": phone_number, "id": f"wamid.{phone_number}", "timestamp": seconds, **said}

        async def told(**value: Any) -> None:
            metadata = {"display_phone_number": "1", "phone_number_id": number}
            changes = [{"field": "messages", "value": {"metadata": metadata, **value}}]
            await store_posted(pool, "meta", json.dumps({"entry": [{"id": "208", "changes": changes}]}).encode())
            await apply(pool)

        await told(messages=[wrote("", f"{wamid}.1"), wrote(phone(1).replace("+55119", "5511"), None)])
        assert await rows(pool, "seq, answered_by") == [(1, "context"), (2, "phone")]
        await bench.pump()
        assert [(free.seq, free.sender) for free in bench.provider.free_calls] == [(1, number), (2, number)]
        seconds = str(int(datetime.now(UTC).timestamp()))
        await told(statuses=[{"id": "wamid.free.1", "status": "read", "timestamp": seconds, "recipient_id": "1"}])
        await told(messages=[wrote(phone(1).removeprefix("+"), "wamid.free.2")])
        assert await rows(pool, "seq, status") == [(1, "seen"), (2, "sent")]
        messages = "SELECT array_agg(DISTINCT status) FROM message WHERE batch_id = %s"
        assert await value(pool, messages, batch_id) == ["sent"]
        assert not await violations(pool)


async def test_the_audit_sees_what_must_not_be(pool: Pool) -> None:
    async with running_bench(pool) as bench:
        await start(pool, bench, 2)
        await answer(pool, inbound(phone(0)), inbound(phone(1)))
        await bench.pump()
        assert not await violations(pool)

        async def breaks(statement: LiteralString) -> set[str]:
            """What the view says once the row was changed behind the triggers' back; nothing is left of it."""
            async with pool.connection() as conn, conn.transaction(force_rollback=True):
                await conn.execute("SET LOCAL session_replication_role = replica")
                await conn.execute(statement)
                cursor = await conn.execute("SELECT what FROM audit.violation_follow_ups")
                return {what for (what,) in await cursor.fetchall()}

        again = (
            "INSERT INTO follow_up_event (batch_id, seq, event, from_status, to_status, actor, claim_id, attempt)"
            " SELECT batch_id, 1, 'claimed', 'sent', 'pending_send', '', claim_id, 0 FROM follow_up WHERE seq = 1"
        )
        assert "claimed again without evidence that it had not gone" in await breaks(again)
        assert await breaks("DELETE FROM receipt WHERE seq = 1") == {"sent without an answer"}
        assert await breaks("UPDATE follow_up SET slot_at = window_until + interval '1 s' WHERE seq = 1") == {
            "sent outside the service window"
        }
        assert await breaks("UPDATE follow_up SET window_until = window_until + interval '1 s'") == {
            "the window is longer than it may be"
        }
        assert await breaks("UPDATE message SET slot_at = slot_at - interval '2 days'") == {
            "the answer came too long after its message"
        }
        assert await breaks("UPDATE follow_up SET status = 'seen' WHERE seq = 2") == {"not where its history ends"}
        assert await breaks("UPDATE batch SET follow_up = NULL") == {
            "of another account, or of a batch that nothing follows"
        }
        paused = "UPDATE batch_event SET to_status = 'paused' WHERE event = 'started'"
        assert await breaks(paused) == {"claimed while the batch was paused"}
        waits = (
            "WITH e AS (UPDATE follow_up_event SET to_status = 'pending' WHERE event = 'sent')"
            " UPDATE follow_up SET status = 'pending', window_until = now() - interval '1 day',"
            " answered_at = now() - interval '2 days', slot_at = now() - interval '36 hours'"
        )
        assert "still waiting although its window has closed" in await breaks(waits)


async def test_a_follow_up_probes_a_suspended_service_only_where_no_batch_can(pool: Pool) -> None:
    async with running_bench(pool) as bench:
        await start(pool, bench)
        await answer(pool, inbound(phone(0)))
        async with transact(pool) as conn:
            await conn.execute("UPDATE service_health SET failures_in_a_row = 15")
        await add_batch(pool, 1, start=50)
        assert isinstance(await bench.claim_follow_ups(), Nothing)
        await bench.pump()
        assert [free.seq for free in bench.provider.free_calls] == [1]
        assert len(bench.provider.calls) == 2

        async with transact(pool) as conn:
            await conn.execute("UPDATE service_health SET failures_in_a_row = 15")
        await answer(pool, inbound(phone(50)))
        assert await rows(pool, "status") == [("sent",)]
        await send(pool, bench, 1, start=60)
        async with transact(pool) as conn:
            await conn.execute("UPDATE service_health SET failures_in_a_row = 15")
        await answer(pool, inbound(phone(60)))
        assert isinstance(await bench.claim_follow_ups(), Slice)
