"""A database in which messages have been through everything that may happen to them, by the product's own statements.

It breaks no promise. `live` makes it; the tests of schema `audit` read it, and break it on purpose.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from uuid_utils.compat import uuid7

from carteiro.domain.capacity import bucket_of
from carteiro.domain.outcomes import (
    Accepted,
    Ambiguous,
    Fact,
    FactKind,
    Kind,
    NotSent,
    Outcome,
    Outgoing,
    Parsed,
    Rejected,
)
from carteiro.services.dispatch.clock import Reading, to_us
from carteiro.services.dispatch.model import Due, Result, Slice
from carteiro.services.dispatch.record import record
from carteiro.services.finalise import finalise_due
from carteiro.services.receive import apply_payloads
from carteiro.settings import Settings
from carteiro.storage import batches, capacity, claims, ledger, outcomes, unknowns
from carteiro.storage.batches import Draft
from carteiro.storage.capacity import Unit
from carteiro.storage.claims import Assigned
from carteiro.storage.facts import merge_facts
from carteiro.storage.pool import Connection, Pool, transact
from tests.support.posting import store_payload

ACCOUNT, RIVAL = "acme", "rival"
SERVICE, RIVAL_SERVICE = "acme-utility", "rival-utility"
BM, SENDER, RIVAL_SENDER = "bm1", "5511400010001", "5511400010002"
KEY, RIVAL_KEY = "k1", "k2"
WORKER = "worker-1"
TOKEN = "token-of-acme"
ADDRESS = "55119876500"
"""Of every contact; two more digits tell them apart."""

SETTINGS = Settings()
KEEP_S = SETTINGS.window_s + SETTINGS.bucket_s


@dataclass(slots=True)
class World:
    """The batches, by what they show."""

    settled: UUID
    """1 delivered, 2 seen, 3 refused, 4 sent and failed later, 5 guarded, 6 assumed, 7 given up, then found sent."""
    running: UUID
    """1 delivered, 2 sent, 3 in flight, 4 unknown, 5 sent at the second attempt, 6 sent after it was proven absent,
    7 given back, 8 delivered although given back, 9 not claimed."""
    cancelled: UUID
    """1 delivered, 2 unsent; settled."""
    paused: UUID
    """1 sent, 2 pending; rescheduled before it began, paused, resumed, paused again."""
    open_claim: int
    """Of the message of `running` that is in flight."""


@dataclass(slots=True)
class Life:
    """Posts, claims and records on one pool, one statement of time after the other."""

    pool: Pool
    slot_at: datetime
    flushes: dict[int, int] = field(default_factory=dict)

    async def post(self, n: int, *, reference: str, callback_url: str | None = None) -> UUID:
        """A batch of `n` messages, paid for and open."""
        draft = Draft(
            id=uuid7(),
            account_id=ACCOUNT,
            billing_account_id=ACCOUNT,
            service_id=SERVICE,
            total=n,
            charge_rule="sent_only",
            template_name="order_update",
            template_language="pt_BR",
            template_signature=b"",
            template_content={},
            request_signature=reference.encode(),
            reference=reference,
            callback_url=callback_url,
        )
        async with transact(self.pool) as conn:
            await batches.set_actor(conn, f"key:{KEY}")
            await batches.add_draft(conn, draft)
            await conn.execute(
                "INSERT INTO message (batch_id, seq, phone_key)"
                " SELECT %s, seq, 551187650000 + seq FROM generate_series(1, %s) AS seq",
                (draft.id, n),
            )
            await conn.execute(
                "INSERT INTO message_content (batch_id, seq, address, placeholders)"
                " SELECT %s, seq, %s || to_char(seq, 'FM00'), '{}' FROM generate_series(1, %s) AS seq",
                (draft.id, ADDRESS, n),
            )
            await conn.execute(
                "INSERT INTO batch_signature VALUES (%s, %s, %s, clock_timestamp() + interval '5 minutes')",
                (ACCOUNT, reference.encode(), draft.id),
            )
            await conn.execute("INSERT INTO idempotency_key VALUES (%s, %s, '', %s)", (ACCOUNT, reference, draft.id))
            await ledger.debit(conn, ACCOUNT, n, batch_id=draft.id, cause="created", actor=f"key:{KEY}")
            await capacity.lock_meters(conn, {("bm", BM)}, keep_s=KEEP_S)
            await capacity.hold(conn, draft.id, {BM: n}, {BM: 1000})
            await batches.open_draft(conn, draft.id, event="opened", debited=n)
        return draft.id

    async def claim(self, batch_id: UUID, seqs: Sequence[int], *, lease_s: float = 60.0) -> Slice:
        """Claim the messages, a fifth of a second apart, out of the batch's hold."""
        async with transact(self.pool) as conn:
            await capacity.lock_meters(conn, {("bm", BM), ("sender", SENDER)}, keep_s=KEEP_S)
            locked = await claims.lock_batch(conn, batch_id)
            assert locked is not None
            await claims.start_batch(conn, batch_id)
            rows = []
            for seq in seqs:
                self.slot_at += timedelta(seconds=0.2)
                rows.append(Assigned(seq, self.slot_at, Unit(BM, SENDER, bucket_of(self.slot_at, SETTINGS.bucket_s))))
            limits = {("bm", BM): 1000, ("sender", SENDER): 100}
            await capacity.charge(conn, batch_id, [row.unit for row in rows], {BM: len(rows)}, limits)
            await claims.note_gaps(conn, batch_id, locked[1], max(locked[1], *seqs), seqs)
            await claims.advance_batch(conn, batch_id, max(locked[1], *seqs))
            claim_id, lease_until = await claims.open_claim(
                conn, batch_id=batch_id, service_id=SERVICE, worker_id=WORKER, rows=rows, lease_s=lease_s
            )
        due = [
            Due(
                Outgoing(batch_id, row.seq, SENDER, "", "order_update", "pt_BR"),
                to_us(row.slot_at),
                row.unit,
                0,
                SENDER,
            )
            for row in rows
        ]
        return Slice(claim_id, batch_id, SERVICE, due, Reading(0, 0.0, 0.0), lease_until, 0.0, filled=False)

    async def record(self, piece: Slice, outcomes_by_seq: dict[int, Outcome | None]) -> None:
        """Record what these messages' calls came to; None: the call was not started."""
        results = [
            Result(due, outcomes_by_seq[due.outgoing.seq], 0.05, self.slot_at)
            for due in piece.due
            if due.outgoing.seq in outcomes_by_seq
        ]
        flush = self.flushes.get(piece.claim_id, 0)
        await record(self.pool, piece, results, flush, SETTINGS)
        self.flushes[piece.claim_id] = flush + 1

    async def receive(self, facts: Sequence[Fact], *, orphans: Sequence[str] = ()) -> None:
        """One payload with these receipts, merged."""
        assert await store_payload(self.pool, "infobip", TOKEN, b"{}")
        await apply_payloads(self.pool, lambda _: lambda _: Parsed(tuple(facts), tuple(orphans)))

    async def go(self, batch_id: UUID, event: str) -> None:
        async with transact(self.pool) as conn:
            await batches.set_actor(conn, f"key:{KEY}")
            await conn.execute(
                "UPDATE batch b SET status = e.target, event = e.event, reason = 'asked to',"
                " ended_at = CASE WHEN e.event = 'cancelled' THEN clock_timestamp() END FROM lifecycle_edge e"
                " WHERE b.id = %s AND e.machine = 'batch' AND e.event = %s AND e.source = b.status",
                (batch_id, event),
            )

    async def move(self, batch_id: UUID, seq: int, event: str, also: str = "") -> None:
        async with transact(self.pool) as conn:
            await conn.execute(
                f"UPDATE message m SET status = e.target, event = e.event{also} FROM lifecycle_edge e"
                " WHERE m.batch_id = %s AND m.seq = %s AND e.machine = 'message' AND e.event = %s"
                " AND e.source = m.status".encode(),
                (batch_id, seq, event),
            )

    def fact(self, batch_id: UUID, seq: int, kind: FactKind, code: str | None = None) -> Fact:
        return Fact(batch_id, seq, kind, self.slot_at + timedelta(seconds=1), code=code)


async def found(conn: Connection) -> None:
    """Two accounts with a service, a sender and a key each; one business manager."""
    for account, service, token, sender, key in (
        (ACCOUNT, SERVICE, TOKEN, SENDER, KEY),
        (RIVAL, RIVAL_SERVICE, "token-of-rival", RIVAL_SENDER, RIVAL_KEY),
    ):
        await conn.execute("INSERT INTO account (id, callback_secret) VALUES (%s, 'whsec_c2VjcmV0')", (account,))
        await conn.execute(
            "INSERT INTO service (id, account_id, provider, base_url, api_key_env, webhook_token, messages_per_second)"
            " VALUES (%s, %s, 'infobip', 'http://127.0.0.1:1', 'KEY', %s, 20)",
            (service, account, token),
        )
        await conn.execute("INSERT INTO service_health (service_id) VALUES (%s)", (service,))
        await conn.execute(
            "INSERT INTO business_manager (id, daily_limit_override, messages_per_minute) VALUES (%s, 1000, 600)"
            " ON CONFLICT DO NOTHING",
            (BM,),
        )
        await conn.execute(
            "INSERT INTO sender (id, business_manager_id, daily_limit, messages_per_second) VALUES (%s, %s, 100, 10)",
            (sender, BM),
        )
        await conn.execute("INSERT INTO sender_account VALUES (%s, %s)", (account, sender))
        await conn.execute(
            "INSERT INTO api_key (id, account_id, secret_hash, scopes) VALUES (%s, %s, '', '{batches:write}')",
            (key, account),
        )
        await ledger.grant(conn, account, 500, "invoice 1", "operator:ana")
    await conn.execute("INSERT INTO worker (id) VALUES (%s)", (WORKER,))


async def live(pool: Pool) -> World:
    """Let it all happen. The database is fresh."""
    async with transact(pool) as conn:
        await found(conn)
        cursor = await conn.execute("SELECT clock_timestamp()")
        row = await cursor.fetchone()
    assert row is not None
    life = Life(pool, row[0])
    settled = await _settled(life)
    running, open_claim = await _running(life)
    return World(settled, running, await _cancelled(life), await _paused(life), open_claim)


async def _settled(life: Life) -> UUID:
    batch = await life.post(7, reference="settled", callback_url="https://ana:secret@client.example/hook?token=1")
    piece = await life.claim(batch, [1, 2, 3, 4, 6, 7])
    taken: dict[int, Any] = {seq: Accepted("") for seq in (1, 2, 4, 6)}
    await life.record(piece, taken | {3: Rejected("EC_7", Kind.CONTACT), 7: Ambiguous("TIMEOUT")})
    async with transact(life.pool) as conn:
        await claims.fail_guarded(conn, batch, {5: "MISSING_PLACEHOLDER"})
    await life.move(batch, 6, "assumed", ", assumed_at = clock_timestamp()")
    await life.move(batch, 7, "gave_up", ", gave_up_at = clock_timestamp(), code = 'OUTCOME_UNKNOWN'")
    async with transact(life.pool) as conn:
        await conn.execute("DELETE FROM message_unknown")
    facts = [life.fact(batch, seq, FactKind.DELIVERED) for seq in (1, 2)]
    facts += [life.fact(batch, 2, FactKind.SEEN), life.fact(batch, 4, FactKind.FAILED, "EC_9")]
    await life.receive([*facts, facts[0]], orphans=["foreign-id"])
    assert await finalise_due(life.pool, SETTINGS) == [batch]
    # What becomes known after the settlement moves the message, never the money.
    await life.receive([life.fact(batch, 4, FactKind.DELIVERED), life.fact(batch, 7, FactKind.SENT)])
    return batch


async def _running(life: Life) -> tuple[UUID, int]:
    batch = await life.post(9, reference="running")
    piece = await life.claim(batch, [1, 2, 4, 5, 6, 7, 8])
    taken: dict[int, Any] = {1: Accepted(""), 2: Accepted(""), 4: Ambiguous("TIMEOUT"), 6: Ambiguous("TIMEOUT")}
    await life.record(piece, taken)
    await life.record(piece, {5: NotSent("ECONNREFUSED"), 7: None, 8: None})
    await life.receive([life.fact(batch, 1, FactKind.DELIVERED)])
    async with transact(life.pool) as conn:
        for _ in range(2):
            proven = await unknowns.note_absent(conn, batch, [6], proof=2)
        units = await unknowns.read_units(conn, batch, proven)
        await capacity.lock_meters(conn, {("bm", BM), ("sender", SENDER)}, keep_s=KEEP_S)
        await outcomes.share_batch(conn, batch)
        moved = await unknowns.return_absent(conn, batch, proven, event="absent")
        assert moved == [6]
        await capacity.give_back(conn, batch, list(units.values()), restore_holds=True)
    again = await life.claim(batch, [5, 6])
    await life.record(again, {5: Accepted(""), 6: Accepted("")})
    # Given back, and gone after all: its unit is charged again.
    async with transact(life.pool) as conn:
        await outcomes.share_batch(conn, batch)
        await merge_facts(conn, batch, [life.fact(batch, 8, FactKind.DELIVERED)])
    in_flight = await life.claim(batch, [3], lease_s=3600.0)
    return batch, in_flight.claim_id


async def _cancelled(life: Life) -> UUID:
    batch = await life.post(2, reference="cancelled")
    await life.record(await life.claim(batch, [1]), {1: Accepted("")})
    await life.go(batch, "cancelled")
    await life.move(batch, 2, "withdrawn", ", code = 'BATCH_ENDED'")
    await life.receive([life.fact(batch, 1, FactKind.DELIVERED)])
    assert await finalise_due(life.pool, SETTINGS) == [batch]
    await life.receive([life.fact(batch, 2, FactKind.DELIVERED)])
    return batch


async def _paused(life: Life) -> UUID:
    batch = await life.post(2, reference="paused")
    async with transact(life.pool) as conn:
        await conn.execute(
            "INSERT INTO batch_event (batch_id, event, from_status, to_status, actor)"
            " VALUES (%s, 'rescheduled', 'pending', 'pending', %s)",
            (batch, f"key:{KEY}"),
        )
    piece = await life.claim(batch, [1])
    await life.go(batch, "paused")
    await life.record(piece, {1: None})
    await life.go(batch, "resumed")
    await life.record(await life.claim(batch, [1]), {1: Accepted("")})
    await life.go(batch, "paused")
    return batch
