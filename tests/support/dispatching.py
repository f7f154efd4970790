"""Dispatch inside the test's own process: a provider that does as it is told, on a real database."""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from carteiro.domain.outcomes import (
    Accepted,
    Ambiguous,
    Fact,
    FactKind,
    FreeForm,
    NotSent,
    Outcome,
    Outgoing,
    Parsed,
    followup_key,
    message_key,
)
from carteiro.domain.standing import SenderState, TemplateState
from carteiro.providers.contract import LogUnreachable, LookUp, MessageId, StatesUnreadable
from carteiro.services.dispatch.claim import claim_slice
from carteiro.services.dispatch.dispatcher import Dispatcher
from carteiro.services.dispatch.follow_up_claim import claim_follow_ups
from carteiro.services.dispatch.follow_up_record import record_follow_ups
from carteiro.services.dispatch.model import Nothing, Result, Slice
from carteiro.services.dispatch.record import record
from carteiro.services.dispatch.spacing import Spacing
from carteiro.services.dispatch.station import Station
from carteiro.settings import Settings
from carteiro.storage.pool import Pool
from tests.support import factories

LIFTED = Settings(lateness_s=5.0, slice_s=0.25)
"""For tests that are not about pacing: on a busy machine no slot is missed."""

TAKEN_AT = datetime(2026, 11, 2, 12, 0, tzinfo=UTC)
"""When the log says that it took a message."""

Answer = Callable[[Outgoing], Outcome]


def take(outgoing: Outgoing) -> Outcome:
    """The answer of a provider in good health."""
    return Accepted(message_key(outgoing.batch_id, outgoing.seq))


@dataclass(frozen=True, slots=True)
class Call:
    outgoing: Outgoing
    at_s: float
    """Monotonic."""

    @property
    def message_id(self) -> MessageId:
        return self.outgoing.batch_id, self.outgoing.seq


@dataclass
class FakeProvider:
    """Answers by `answer`; keeps every call and everything that it took in a log."""

    answer: Answer = take
    latency_s: float = 0.0
    has_log: bool = True
    messages_per_request_max: int = 100
    answer_whole: Callable[[Sequence[Outgoing]], Outcome | None] = lambda messages: None
    """An outcome for all messages of a request, whatever `answer` says of each."""
    requests: list[list[int]] = field(default_factory=list)
    """The seqs of each request."""
    log_reachable: bool = True
    name: str = "infobip"
    calls: list[Call] = field(default_factory=list)
    free_calls: list[FreeForm] = field(default_factory=list)
    free_answer: Callable[[FreeForm], Outcome] = lambda message: Accepted(followup_key(message.batch_id, message.seq))
    taken: dict[MessageId, FactKind] = field(default_factory=dict)
    """What the log knows."""
    taken_free: dict[MessageId, FactKind] = field(default_factory=dict)
    """The same of follow-ups."""
    states_readable: bool = True
    senders: dict[str, SenderState] = field(default_factory=dict)
    templates: dict[str, Sequence[TemplateState]] = field(default_factory=dict)
    """By a sender of their business manager."""
    in_flight: int = 0
    most_in_flight: int = 0

    async def submit(self, messages: Sequence[Outgoing]) -> list[Outcome]:
        self.requests.append([outgoing.seq for outgoing in messages])
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            whole = self.answer_whole(messages)
            outcomes = [await self._submit(outgoing) if whole is None else whole for outgoing in messages]
            if self.latency_s:
                await asyncio.sleep(self.latency_s)
            return outcomes
        finally:
            self.in_flight -= 1

    async def _submit(self, outgoing: Outgoing) -> Outcome:
        self.calls.append(Call(outgoing, time.monotonic()))
        outcome = self.answer(outgoing)
        if isinstance(outcome, Accepted):
            self.taken[outgoing.batch_id, outgoing.seq] = FactKind.SENT
        return outcome

    async def submit_free(self, message: FreeForm) -> Outcome:
        self.free_calls.append(message)
        outcome = self.free_answer(message)
        if isinstance(outcome, Accepted):
            self.taken_free[message.batch_id, message.seq] = FactKind.SENT
        if self.latency_s:
            await asyncio.sleep(self.latency_s)
        return outcome

    async def look_up(self, ids: Sequence[MessageId], *, followups: bool = False) -> LookUp:
        if not self.log_reachable:
            raise LogUnreachable("told to be away")
        taken = self.taken_free if followups else self.taken
        known = [message_id for message_id in ids if message_id in taken]
        facts = tuple(Fact(*message_id, taken[message_id], TAKEN_AT, followup=followups) for message_id in known)
        return LookUp(facts, tuple(message_id for message_id in ids if message_id not in taken))

    async def read_senders(self, senders: Sequence[str]) -> list[SenderState]:
        if not self.states_readable:
            raise StatesUnreadable("told to be away")
        return [self.senders[sender] for sender in senders if sender in self.senders]

    async def read_templates(self, account: str) -> list[TemplateState]:
        if not self.states_readable:
            raise StatesUnreadable("told to be away")
        return list(self.templates.get(account, ()))

    def parse_webhook(self, body: bytes) -> Parsed:
        return Parsed()

    async def close(self) -> None:
        pass

    @property
    def per_sender(self) -> Counter[str]:
        return Counter(call.outgoing.sender for call in self.calls)

    @property
    def most_calls_for_one_message(self) -> int:
        return max(Counter(call.message_id for call in self.calls).values(), default=0)


class Bench:
    """A dispatcher whose steps the test takes one by one, or lets run."""

    def __init__(self, pool: Pool, settings: Settings, provider: FakeProvider, worker_id: str = "w1") -> None:
        self.pool = pool
        self.settings = settings
        self.provider = provider
        self.dispatcher = Dispatcher(pool, settings, worker_id, self.provider_for)
        self.station: Station = self.dispatcher._station
        self.spacing = Spacing(settings.lateness_s)

    async def provider_for(self, _service_id: str) -> FakeProvider:
        return self.provider

    async def claim(self, service_id: str = factories.SERVICE) -> Slice | Nothing:
        return await claim_slice(self.station, service_id, self.spacing, has_log=self.provider.has_log)

    async def claimed(self, service_id: str = factories.SERVICE) -> Slice:
        claimed = await self.claim(service_id)
        assert isinstance(claimed, Slice), claimed
        return claimed

    async def claim_follow_ups(self, service_id: str = factories.SERVICE) -> Slice | Nothing:
        return await claim_follow_ups(self.station, service_id, self.spacing, has_log=self.provider.has_log)

    async def claim_all(self, service_id: str = factories.SERVICE) -> list[Slice]:
        """Claim as a pump does, until nothing is left that could be claimed now."""
        slices = []
        while True:
            claimed = await self.claim(service_id)
            if isinstance(claimed, Slice):
                slices.append(claimed)
            elif claimed.wait_s != 0:
                return slices

    async def work_off(self, outcome: Outcome, service_id: str = factories.SERVICE) -> None:
        """Claim and record, slice by slice, until nothing is left that could be claimed now."""
        while True:
            claimed = await self.claim(service_id)
            if isinstance(claimed, Slice):
                await self.record_all(claimed, outcome)
            elif claimed.wait_s != 0:
                return

    async def record(self, piece: Slice, *outcomes: Outcome | None, at: datetime | None = None) -> None:
        """Record outcomes for the first rows of a slice; `None`: its call was not started."""
        results = [
            Result(due, outcome, 0.02 if outcome else None, at or piece.lease_until)
            for due, outcome in zip(piece.due, outcomes, strict=False)
        ]
        write = record_follow_ups if piece.follow_ups else record
        await write(self.pool, piece, results, piece.flushes, self.settings)
        piece.flushes += 1

    async def record_all(self, piece: Slice, outcome: Outcome | None) -> None:
        await self.record(piece, *[outcome] * len(piece.due))

    async def pump(self, service_id: str = factories.SERVICE) -> None:
        """Pump once, and wait until every outcome is committed."""
        await self.dispatcher.pump(service_id)
        await self.dispatcher.recorder.drained()


@contextlib.asynccontextmanager
async def running_bench(
    pool: Pool, provider: FakeProvider | None = None, settings: Settings = LIFTED, worker_id: str = "w1", **changed: Any
) -> AsyncIterator[Bench]:
    """A bench with its recorder and its leases running. `changed` are settings."""
    bench = Bench(pool, replace(settings, **changed), provider or FakeProvider(), worker_id)
    parts = [asyncio.create_task(bench.dispatcher.recorder.run()), asyncio.create_task(bench.dispatcher.keep_leases())]
    try:
        yield bench
    finally:
        for part in parts:
            part.cancel()
        await asyncio.gather(*parts, return_exceptions=True)


async def counts(pool: Pool, batch_id: UUID | None = None) -> dict[str, int]:
    """Messages by state, counted one by one and not from the tallies; states without any are left out."""
    async with pool.connection() as conn:
        cursor = await conn.execute(
            "SELECT status, count(*)::int FROM message WHERE %(id)s::uuid IS NULL OR batch_id = %(id)s GROUP BY status",
            {"id": batch_id},
        )
        return dict(await cursor.fetchall())


async def tallied(pool: Pool, batch_id: UUID | None = None) -> dict[str, int]:
    """The same from the tallies."""
    states = ("pending", "pending_send", "unknown", "sent", "delivered", "seen", "failed", "unsent")
    sums = ", ".join(f"coalesce(sum({state}), 0)::int" for state in states)
    async with pool.connection() as conn:
        cursor = await conn.execute(
            f"SELECT {sums} FROM batch_tally WHERE %(id)s::uuid IS NULL OR batch_id = %(id)s".encode(), {"id": batch_id}
        )
        row = await cursor.fetchone()
    assert row is not None
    return {state: n for state, n in zip(states, row, strict=True) if n}


async def meter(pool: Pool, kind: str, owner: str) -> tuple[int, int]:
    """(used, held), after checking that they are the sums of what stands behind them."""
    async with pool.connection() as conn:
        cursor = await conn.execute(
            "SELECT m.used, m.held,"
            " (SELECT coalesce(sum(used), 0) FROM capacity_bucket b WHERE (b.kind, b.owner) = (m.kind, m.owner)),"
            " (SELECT coalesce(sum(held), 0) FROM capacity_hold h WHERE h.business_manager_id = m.owner)"
            " FROM capacity_meter m WHERE m.kind = %s AND m.owner = %s",
            (kind, owner),
        )
        row = await cursor.fetchone()
    if row is None:
        return 0, 0
    used, held, in_buckets, in_holds = row
    assert used == in_buckets, (kind, owner)
    assert kind != "bm" or held == in_holds, (kind, owner)
    return used, held


def not_sent(_outgoing: Outgoing) -> Outcome:
    return NotSent("CONNECT_FAILED")


def lost(_outgoing: Outgoing) -> Outcome:
    return Ambiguous("TIMEOUT")
