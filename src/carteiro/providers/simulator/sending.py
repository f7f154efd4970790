"""`POST /whatsapp/1/message/template`: decide, write down, then answer.

A message is in the ledger before any of the answer leaves, so what a caller learned is always on record.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from uuid import uuid4

import msgspec
from aiohttp import web

from carteiro.providers.simulator import wire
from carteiro.providers.simulator.answering import break_off, is_authorized, json_response, refuse, unauthorized
from carteiro.providers.simulator.ledger import Arrival
from carteiro.providers.simulator.plan import Plan
from carteiro.providers.simulator.state import State

_USUAL = Plan()
_DUPLICATE = Plan(answer="reject", status_id=23)
# These answer for the whole call; the others for one message of it.
_OF_THE_CALL = frozenset({"http", "reset", "close", "hang", "garbage", "no_row"})


@dataclass(frozen=True, slots=True)
class _Judged:
    row: int
    arrival: Arrival
    plan: Plan
    accepted: bool


@dataclass(frozen=True, slots=True)
class _Came:
    """When a request came, and as the how manieth."""

    request: int
    arrived_ns: int
    wall_ns: int

    def arrival(
        self, message: wire.Message | wire.FreeMessage, *, template: str, placeholders: tuple[str, ...]
    ) -> Arrival:
        return Arrival(
            request=self.request,
            arrived_ns=self.arrived_ns,
            arrived_wall_ns=self.wall_ns,
            sender=message.sender,
            to=message.to,
            message_id=message.messageId or uuid4().hex,
            template=template,
            placeholders=placeholders,
            notify_url=message.notifyUrl,
        )


class Sending:
    def __init__(self, state: State) -> None:
        self._state = state

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """`POST /whatsapp/1/message/template`."""
        return await self._handle(request, _read_templates, _answer_rows)

    async def handle_free(self, request: web.Request) -> web.StreamResponse:
        """`POST /whatsapp/1/message/{text,image,video,document}`."""
        return await self._handle(request, _read_free, lambda judged: _answer_row(judged[0]))

    async def _handle(
        self,
        request: web.Request,
        read: Callable[[bytes, _Came], list[Arrival]],
        answer: Callable[[list[_Judged]], dict[str, object]],
    ) -> web.StreamResponse:
        arrived_ns, wall_ns = time.monotonic_ns(), time.time_ns()
        state = self._state
        state.requests["send"] += 1
        if not is_authorized(request, state.options.api_key):
            return unauthorized()
        try:
            arrivals = read(await request.read(), _Came(state.requests["send"], arrived_ns, wall_ns))
        except msgspec.DecodeError as error:
            body = wire.validation_body(str(error))
            return web.Response(body=body, status=400, content_type="application/json")
        plans = [self._plan_of(arrival) for arrival in arrivals]
        whole = next((plan for plan in plans if plan.answer in _OF_THE_CALL), None)
        judged = [self._judge(arrival, whole or plan) for arrival, plan in zip(arrivals, plans, strict=True)]
        for one in judged:
            if one.accepted:
                await self._report(one)
        await self._wait(whole, plans)
        if whole is not None:
            return await _answer_whole(request, whole)
        return json_response(answer(judged))

    def _plan_of(self, arrival: Arrival) -> Plan:
        state = self._state
        plan = state.faults.pick("send", arrival.to, arrival.sender, arrival.template)
        if plan is None and state.options.magic:
            plan = state.faults.pick_magic(arrival.to)
        return plan or _USUAL

    def _judge(self, arrival: Arrival, plan: Plan) -> _Judged:
        """Accept the message or not, and write it down."""
        ledger = self._state.ledger
        accepted = plan.answer == "ok" or (plan.accept and plan.answer != "reject")
        if accepted and self._state.options.dedupe and ledger.find(arrival.message_id) is not None:
            accepted = False
            if plan.answer == "ok":
                plan = _DUPLICATE
        row = ledger.record(arrival, _name(plan), accepted=accepted, hidden_ns=int(plan.log_lag_ms * 1e6))
        return _Judged(row, arrival, plan, accepted)

    async def _report(self, one: _Judged) -> None:
        if one.plan.receipt == "early":
            await self._state.receipts.post_now(one.row, one.plan)
        else:
            self._state.receipts.plan(one.row, one.plan)

    async def _wait(self, whole: Plan | None, plans: list[Plan]) -> None:
        options = self._state.options
        wait_ms = options.latency_ms + (whole or max(plans, key=lambda plan: plan.delay_ms)).delay_ms
        if options.jitter_ms:
            wait_ms += self._state.random.random() * options.jitter_ms
        if wait_ms:
            await asyncio.sleep(wait_ms / 1000)


def _read_templates(body: bytes, came: _Came) -> list[Arrival]:
    return [
        came.arrival(
            message,
            template=message.content.templateName,
            placeholders=message.content.templateData.body.placeholders,
        )
        for message in wire.decode_send(body).messages
    ]


def _read_free(body: bytes, came: _Came) -> list[Arrival]:
    message = wire.decode_free(body)
    said = message.content.text or message.content.mediaUrl or ""
    return [came.arrival(message, template="", placeholders=(said,))]


def _answer_rows(judged: list[_Judged]) -> dict[str, object]:
    return {"messages": [_answer_row(one) for one in judged]}


def _answer_row(one: _Judged) -> dict[str, object]:
    if one.plan.answer == "reject":
        return wire.answer_row(one.arrival.to, one.arrival.message_id, one.plan.status_id, one.plan.error_id)
    return wire.answer_row(one.arrival.to, one.arrival.message_id, wire.PENDING_STATUS_ID)


async def _answer_whole(request: web.Request, plan: Plan) -> web.StreamResponse:
    match plan.answer:
        case "http":
            return refuse(plan)
        case "garbage":
            return web.Response(body=b"<html>accepted</html>", content_type="text/html")
        case "no_row":
            return json_response({"messages": []})
        case _:
            return await break_off(request, plan)


def _name(plan: Plan) -> str:
    """What the ledger says was answered."""
    match plan.answer:
        case "ok":
            return "200"
        case "http":
            return str(plan.http_status)
        case "reject":
            return f"EC_{plan.error_id}" if plan.error_id else f"STATUS_{plan.status_id}"
        case other:
            return other
