"""`POST /whatsapp/1/message/...`."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from uuid import uuid4

import msgspec
from aiohttp import web

from carteiro.providers.simulator import wire
from carteiro.providers.simulator.answering import break_off, is_authorized, json_response, refuse, unauthorized
from carteiro.providers.simulator.desk import Desk, Judged
from carteiro.providers.simulator.ledger import Arrival
from carteiro.providers.simulator.plan import Plan
from carteiro.providers.simulator.state import State


@dataclass(frozen=True, slots=True)
class _Came:
    """When a request came, and as the how manieth."""

    request: int
    arrived_ns: int
    wall_ns: int
    caller: str

    def arrival(
        self, message: wire.Message | wire.FreeMessage, *, template: str, placeholders: tuple[str, ...]
    ) -> Arrival:
        return Arrival(
            request=self.request,
            arrived_ns=self.arrived_ns,
            arrived_wall_ns=self.wall_ns,
            caller=self.caller,
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
        self._desk = Desk(state)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """`POST /whatsapp/1/message/template`."""
        return await self._handle(request, _read_templates, _answer_rows)

    async def handle_free(self, request: web.Request) -> web.StreamResponse:
        """`POST /whatsapp/1/message/{text,image,video,document}`."""
        return await self._handle(
            request, partial(_read_free, request.match_info["type"]), lambda judged: _answer_row(judged[0])
        )

    async def _handle(
        self,
        request: web.Request,
        read: Callable[[bytes, _Came], list[Arrival]],
        answer: Callable[[list[Judged]], dict[str, object]],
    ) -> web.StreamResponse:
        arrived_ns, wall_ns = time.monotonic_ns(), time.time_ns()
        state = self._state
        state.requests["send"] += 1
        if not is_authorized(request, state.options.api_key):
            return unauthorized()
        try:
            caller = request.headers.get("User-Agent", "")
            arrivals = read(await request.read(), _Came(state.requests["send"], arrived_ns, wall_ns, caller))
        except msgspec.DecodeError as error:
            body = wire.validation_body(str(error))
            return web.Response(body=body, status=400, content_type="application/json")
        taken = await self._desk.take(arrivals)
        await self._desk.wait(taken.whole, taken.plans)
        if taken.whole is not None:
            return await _answer_whole(request, taken.whole)
        return json_response(answer(taken.judged))


def _read_templates(body: bytes, came: _Came) -> list[Arrival]:
    return [
        came.arrival(
            message,
            template=message.content.templateName,
            placeholders=message.content.templateData.body.placeholders,
        )
        for message in wire.decode_send(body).messages
    ]


def _read_free(kind: str, body: bytes, came: _Came) -> list[Arrival]:
    message = wire.decode_free(body, kind)
    said = message.content.text or message.content.mediaUrl or ""
    return [came.arrival(message, template="", placeholders=(said,))]


def _answer_rows(judged: list[Judged]) -> dict[str, object]:
    return {"messages": [_answer_row(one) for one in judged]}


def _answer_row(one: Judged) -> dict[str, object]:
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
