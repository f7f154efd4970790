"""What every door for sending does with a message: decide, write down, report.

A message is in the ledger before any of the answer leaves, so what a caller learned is always on record.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from carteiro.providers.simulator.ledger import Arrival
from carteiro.providers.simulator.plan import Plan
from carteiro.providers.simulator.state import State
from carteiro.providers.simulator.witness import Sight, Witness

# These answer for the whole call; the others for one message of it.
_OF_THE_CALL = frozenset({"http", "reset", "close", "hang", "garbage", "no_row"})
_USUAL = Plan()
_DUPLICATE = Plan(answer="reject", status_id=23)


@dataclass(frozen=True, slots=True)
class Judged:
    row: int
    arrival: Arrival
    plan: Plan
    accepted: bool


@dataclass(frozen=True, slots=True)
class Taken:
    """One request. `whole`: the plan that answers for all of it, if there is one."""

    plans: list[Plan]
    whole: Plan | None
    judged: list[Judged]


class Desk:
    def __init__(self, state: State) -> None:
        self._state = state
        self._taking: set[asyncio.Task[Taken]] = set()

    async def take(self, arrivals: Sequence[Arrival]) -> Taken:
        """Decide about each message, write it down, and see to its reports."""
        witness = self._state.witness
        if witness is None:
            return await self._take(arrivals, [None] * len(arrivals))
        # A call that has arrived goes on record, also when its caller leaves during the look.
        task = asyncio.create_task(self._look_and_take(witness, arrivals))
        self._taking.add(task)
        task.add_done_callback(self._taking.discard)
        return await asyncio.shield(task)

    async def _look_and_take(self, witness: Witness, arrivals: Sequence[Arrival]) -> Taken:
        sights = await asyncio.gather(*(witness.look(arrival.message_id) for arrival in arrivals))
        return await self._take(arrivals, sights)

    async def _take(self, arrivals: Sequence[Arrival], sights: Sequence[Sight | None]) -> Taken:
        plans = [self._plan_of(arrival) for arrival in arrivals]
        whole = next((plan for plan in plans if plan.answer in _OF_THE_CALL), None)
        judged = [
            self._judge(arrival, whole or plan, sight)
            for arrival, plan, sight in zip(arrivals, plans, sights, strict=True)
        ]
        for one in judged:
            if one.accepted:
                await self._report(one)
        return Taken(plans, whole, judged)

    def _plan_of(self, arrival: Arrival) -> Plan:
        state = self._state
        plan = state.faults.pick("send", arrival.to, arrival.sender, arrival.template)
        if plan is None and state.options.magic:
            plan = state.faults.pick_magic(arrival.to, is_meta=arrival.is_meta)
        return plan or _USUAL

    def _judge(self, arrival: Arrival, plan: Plan, sight: Sight | None) -> Judged:
        """Accept the message or not, and write it down."""
        ledger = self._state.ledger
        accepted = plan.answer == "ok" or (plan.accept and plan.answer != "reject")
        if (
            accepted
            and self._state.options.dedupe
            and not arrival.is_meta
            and ledger.find(arrival.message_id) is not None
        ):
            accepted = False
            if plan.answer == "ok":
                plan = _DUPLICATE
        row = ledger.record(arrival, _name(plan), accepted=accepted, hidden_ns=int(plan.log_lag_ms * 1e6), sight=sight)
        return Judged(row, arrival, plan, accepted)

    async def _report(self, one: Judged) -> None:
        plan = one.plan
        if plan.answer == "http":
            # The code of the answer is not the code of what is reported of a message that was taken all the same.
            plan = msgspec.structs.replace(plan, error_id=0)
        if plan.receipt == "early":
            await self._state.receipts.post_now(one.row, plan)
        else:
            self._state.receipts.plan(one.row, plan)

    async def wait(self, whole: Plan | None, plans: list[Plan]) -> None:
        options = self._state.options
        wait_ms = options.latency_ms + (whole or max(plans, key=lambda plan: plan.delay_ms)).delay_ms
        if options.jitter_ms:
            wait_ms += self._state.random.random() * options.jitter_ms
        if wait_ms:
            await asyncio.sleep(wait_ms / 1000)


def _name(plan: Plan) -> str:
    """What the ledger says was answered."""
    match plan.answer:
        case "ok":
            return "200"
        case "http":
            return f"EC_{plan.error_id}" if plan.error_id else str(plan.http_status)
        case "reject":
            return f"EC_{plan.error_id}" if plan.error_id else f"STATUS_{plan.status_id}"
        case other:
            return other
