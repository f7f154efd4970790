"""The life of batches among millions of old messages, by the product's own services: every hot statement runs."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

from carteiro.bootstrap import _chores
from carteiro.domain.outcomes import (
    Accepted,
    Ambiguous,
    Fact,
    FactKind,
    ForeignFact,
    Kind,
    NotSent,
    Outcome,
    Parsed,
    Rejected,
    Scope,
    Throttled,
)
from carteiro.services import accounts, api_keys, callback, control, create, reading, suppression
from carteiro.services.api_keys import Caller
from carteiro.services.create import Key, create_batch
from carteiro.services.dispatch.lapse import close_lapsed_claims
from carteiro.services.dispatch.model import Slice
from carteiro.services.dispatch.reconcile import reconcile_unknown
from carteiro.services.dispatch.waking import wake_waiting
from carteiro.services.receive import apply_payloads
from carteiro.services.withdraw import withdraw_ended
from carteiro.settings import Settings
from carteiro.storage import aliases, batches, capacity, claims, outcomes
from carteiro.storage.facts import merge_facts
from carteiro.storage.pool import Pool, transact
from carteiro.worker.sweep import Sweeper
from tests.support import factories
from tests.support.dispatching import LIFTED, Bench, FakeProvider
from tests.support.factories import ACCOUNT, SERVICE, batch_request, bm_id, sender_id, value
from tests.support.posting import store_payload, store_posted

LARGE = 8_000
ACTIVE = 20
"""Small batches that wait beside the large one."""
CALLBACK = "http://127.0.0.1:9/taken"
PROMPT = replace(LIFTED, lease_grace_s=0.001, slice_s=0.1, callback_allow_private=True)

REFUSED = Rejected("EC_7", Kind.CONTACT)


class Life:
    """`start` numbers the contacts: each life of one database has its own."""

    def __init__(self, pool: Pool, start: int) -> None:
        self.pool = pool
        self.provider = FakeProvider()
        self.bench = Bench(pool, PROMPT, self.provider)
        self.bench.spacing.rate_per_s = 2_000.0
        self.start = start
        self.owner: Caller

    async def live(self) -> None:
        self.owner = await api_keys.authenticate(self.pool, await factories.add_key(self.pool))
        large = await self.post(LARGE)
        await self.send(large)
        await self.hear(large)
        await self.reconcile(large)
        await self.many()
        await self.settle()
        await self.steer(large)
        await self.keep_list()
        await self.sweep()
        await self.read(large)

    async def post(self, n: int, **fields: object) -> UUID:
        key = Key(f"live {self.start}", b"hash")
        self.start += n
        request = batch_request(n, start=self.start, **fields)
        created = await create_batch(self.pool, PROMPT, self.owner, request, key=key)
        again = await create_batch(self.pool, PROMPT, self.owner, request, key=key)
        assert again.replayed
        assert again.batch_id == created.batch_id
        return created.batch_id

    async def claim(self) -> Slice:
        return await self.bench.claimed()

    async def record(self, piece: Slice, *outcomes: Outcome | None) -> None:
        """The first rows as told, all the others accepted."""
        rest = [Accepted("theirs")] * (len(piece.due) - len(outcomes))
        await self.bench.record(piece, *outcomes, *rest, at=datetime.now(UTC))

    async def send(self, large: UUID) -> None:
        await self.record(await self.claim(), REFUSED, NotSent("CONNECT"), Ambiguous("TIMEOUT"), None)
        await self.record(await self.claim(), Ambiguous("EC_23", duplicate=True), Ambiguous("TIMEOUT"))
        piece = await self.claim()
        async with transact(self.pool) as conn:
            await outcomes.renew_leases(conn, [piece.claim_id], lease_s=60.0)
            await outcomes.stop_senders(conn, [sender_id(9)])
            await outcomes.stop_submissions(conn, large, [bm_id(9)])
            await outcomes.wait_service(conn, SERVICE, wait_s=0.0, reason="throttled")
            await outcomes.black_out(conn, SERVICE, first_s=0.0, longest_s=0.0)
            await outcomes.wait_senders(conn, {sender_id(9): 0.0}, reason="throttled")
            await outcomes.note_code(conn, large, piece.claim_id, [row.outgoing.seq for row in piece.due], "HELD")
        await self.record(piece, Throttled(0.0), Throttled(0.0, scope=Scope.CONTACT))
        # A worker dies: its slice lapses.
        piece = await self.claim()
        await self._execute(
            "UPDATE claim SET lease_until = clock_timestamp() - interval '1 s' WHERE id = %s", piece.claim_id
        )
        assert await close_lapsed_claims(self.pool, PROMPT) == len(piece.due)
        for _ in range(3):
            await self.record(await self.claim())
        await self._claim_what_stands_in_the_way(large)

    async def _claim_what_stands_in_the_way(self, large: UUID) -> None:
        """Rows that cannot be rendered, gaps, stale returns, and a batch that has to wait."""
        async with transact(self.pool) as conn:
            locked = await claims.lock_batch(conn, large)
            assert locked is not None
            cursor = locked[1]
            await claims.fail_guarded(conn, large, {cursor + 1: "MISSING_PLACEHOLDER"})
            await claims.note_gaps(conn, large, cursor, cursor + 50, [cursor + 1])
            await claims.advance_batch(conn, large, cursor + 50)
            await claims.drop_stale_returns(conn, large)
            await claims.block_service(conn, SERVICE, blocked_by="key", quiet_s=0.0, retry_s=0.0)
            await claims.block_batch(
                conn, large, blocked_by="capacity", next_attempt_at=datetime.now(UTC) + timedelta(hours=1)
            )
            await claims.fail_batch(conn, large, code="NO_ACTIVE_SENDERS", reason="none")
            await capacity.oldest_bucket_at(conn, {("bm", bm_id(n)) for n in range(1, 11)})
            await claims.next_due_s(conn, SERVICE)
            await claims.one_turn(conn, large)
            await claims.one_due_s(conn, large)
            await batches.hold_draft(conn, large)
        await wake_waiting(self.pool, [bm_id(1)])

    async def hear(self, large: UUID) -> None:
        """Receipts of this batch and of one of the past, one that was given back among them, and orphans."""
        now = datetime.now(UTC)
        sent = await self._seqs(large, "sent")
        past: UUID = await value(self.pool, "SELECT id FROM batch WHERE status = 'completed' ORDER BY id LIMIT 1")
        facts = [Fact(large, seq, FactKind.DELIVERED, now) for seq in sent[:100]]
        facts += [Fact(past, seq, FactKind.SEEN, now) for seq in range(1, 11)]
        facts.append(Fact(large, sent[100], FactKind.FAILED, now, code="EC_1", failure=Kind.BLOCKED))
        facts.append(Fact(large, sent[101], FactKind.FAILED, now, code="131049", failure=Kind.COOL_DOWN))
        await self.receive(Parsed(tuple(facts), ("foreign",)))
        # By ids of the provider's own, of which ten become known afterwards.
        ids = [f"theirs {large} {seq}" for seq in sent[:20]]
        await self.receive(Parsed(foreign=tuple(ForeignFact(known, FactKind.SEEN, now, via="1") for known in ids)))
        async with transact(self.pool) as conn:
            await aliases.note(conn, large, dict(zip(ids[:10], sent, strict=False)))
        await self.receive(Parsed())
        piece = await self.claim()
        given_back = piece.due[0].outgoing.seq
        await self.record(piece, *[None] * len(piece.due))
        async with transact(self.pool) as conn:
            await outcomes.share_batch(conn, large)
            await merge_facts(conn, large, [Fact(large, given_back, FactKind.DELIVERED, now)])

    async def receive(self, parsed: Parsed) -> None:
        token = await value(self.pool, "SELECT webhook_token FROM service WHERE id = %s", SERVICE)
        assert await store_payload(self.pool, "infobip", token, b"{}")
        await apply_payloads(self.pool, lambda _: lambda _: parsed)
        await store_posted(self.pool, "meta", b"{}")
        await apply_payloads(self.pool, lambda _: lambda _: Parsed())

    async def reconcile(self, large: UUID) -> None:
        """The log has some, misses others twice; what it never had is given up."""
        lost = await self._seqs(large, "unknown")
        for seq in lost[len(lost) // 2 :]:
            self.provider.taken[large, seq] = FactKind.SENT
        for settings in (PROMPT, PROMPT, replace(PROMPT, unknown_give_up_after_s=0.001)):
            await self._execute("UPDATE message_unknown SET look_at = clock_timestamp() - interval '1 s'")
            assert await reconcile_unknown(self.pool, settings, self.bench.provider_for)

    async def many(self) -> None:
        """Small batches beside the large one; each is claimed from once, some wait, one begins later."""
        for _ in range(ACTIVE):
            await self.post(5, callback_url=CALLBACK)
        later = datetime.now(UTC) + timedelta(hours=1)
        scheduled = await self.post(5, scheduled_at=later)
        await control.reschedule_batch(
            self.pool, PROMPT, self.owner, scheduled, scheduled_at=later + timedelta(hours=1)
        )
        for _ in range(ACTIVE):
            await self.record(await self.claim())

    async def settle(self) -> None:
        """Everything of the small batches is taken for delivered, settled, and told to the client."""
        await self.sweep(replace(PROMPT, assume_delivered_after_s=1e-6))
        await callback.send_due(self.pool, PROMPT)
        told = await value(self.pool, "SELECT id FROM callback WHERE attempts > 0 AND delivered_at IS NULL LIMIT 1")
        assert await callback.replay(self.pool, told)

    async def steer(self, large: UUID) -> None:
        await control.pause_batch(self.pool, PROMPT, self.owner, large)
        await control.resume_batch(self.pool, self.owner, large)
        await control.cancel_batch(self.pool, PROMPT, self.owner, large)
        while await withdraw_ended(self.pool):
            pass
        async with transact(self.pool) as conn:
            held = await capacity.read_holders(conn, bm_id(1))
            await capacity.cut_holds(conn, bm_id(1), dict.fromkeys(list(held)[:1], 0))

    async def keep_list(self) -> None:
        phones = [factories.phone(n) for n in range(50)]
        await suppression.suppress(self.pool, self.owner, phones, scope=suppression.Scope.ALL)
        await suppression.check(self.pool, ACCOUNT, phones[0])
        await suppression.read_list(self.pool, ACCOUNT, scope=None, before_id=None, limit=50)
        await suppression.lift(self.pool, self.owner, phones)

    async def sweep(self, settings: Settings = PROMPT) -> None:
        """As the leading worker does it, the hourly chores included."""
        await self._execute("DELETE FROM lead")
        chores = _chores(self.pool, settings)
        await Sweeper(self.pool, "w1", chores, interval_s=1.0, pumping=set, syncs=True).sweep()

    async def read(self, large: UUID) -> None:
        await reading.read_batch(self.pool, ACCOUNT, large)
        await reading.read_batches(self.pool, ACCOUNT, status=None, before_id=None, limit=50)
        await reading.read_batches(self.pool, ACCOUNT, status="processing", before_id=None, limit=50)
        await reading.read_messages(self.pool, ACCOUNT, large, after_seq=100, status=None, limit=100)
        await reading.read_messages(self.pool, ACCOUNT, large, after_seq=0, status="failed", limit=100)
        await reading.read_capacity(self.pool, ACCOUNT, PROMPT)
        await accounts.read_credits(self.pool, ACCOUNT)
        await accounts.read_entries(self.pool, account_id=ACCOUNT, billing_account_id=ACCOUNT, before_id=None, limit=50)
        async with transact(self.pool) as conn:
            abandoned = await batches.abandoned_drafts(conn, older_than_s=0.0)
        assert not abandoned
        await create.collect_abandoned_drafts(self.pool, older_than_s=0.0)

    async def _seqs(self, batch_id: UUID, status: str) -> list[int]:
        found: list[int] = await value(
            self.pool,
            "SELECT array_agg(seq ORDER BY seq) FROM message WHERE batch_id = %s AND status = %s",
            batch_id,
            status,
        )
        return found

    async def _execute(self, statement: str, *params: object) -> None:
        async with self.pool.connection() as conn:
            await conn.execute(statement.encode(), params)
