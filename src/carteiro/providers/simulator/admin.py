"""The admin endpoints under `/_sim`; docs/simulator.md lists them."""

import asyncio
import time
from typing import Annotated, Any, Literal

import msgspec
from aiohttp import web

from carteiro.providers.simulator import wire, wire_meta
from carteiro.providers.simulator.answering import json_response
from carteiro.providers.simulator.faults import Fault
from carteiro.providers.simulator.inbound import decode_answers, infobip_document, meta_value
from carteiro.providers.simulator.ledger import pack
from carteiro.providers.simulator.magic import MAGIC
from carteiro.providers.simulator.plan import Code, ErrorCode
from carteiro.providers.simulator.receipts import SEEN, Order
from carteiro.providers.simulator.sink import Sink
from carteiro.providers.simulator.standing import SenderOrder, TemplateOrder
from carteiro.providers.simulator.state import State

CALLS_LIMIT_DEFAULT = 10_000
_CHUNK = 2_000

_decode_faults = msgspec.json.Decoder(Fault | list[Fault]).decode


class ReceiptsOrder(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `POST /_sim/receipts`."""

    action: Literal["hold", "release", "drop", "repeat", "emit", "stop", "start"]
    order: Order = "given"
    """With `release`."""
    message_ids: list[str] | None = None
    """With `repeat` (None: all messages) and `emit`."""
    seen: bool = False
    """With `emit`: report as seen, instead of the ids below."""
    status_id: Code = 5
    error_id: ErrorCode = 0
    at: Annotated[float, msgspec.Meta(ge=0)] | None = None
    """With `emit`: seconds since 1970 to report as the time; None is now."""


_decode_order = msgspec.json.Decoder(ReceiptsOrder).decode
_decode_senders = msgspec.json.Decoder(SenderOrder | list[SenderOrder]).decode
_decode_template = msgspec.json.Decoder(TemplateOrder).decode


class Admin:
    def __init__(self, state: State, sink: Sink) -> None:
        self._state = state
        self._sink = sink

    async def health(self, request: web.Request) -> web.StreamResponse:
        return json_response({"status": "ok"})

    async def calls(self, request: web.Request) -> web.StreamResponse:
        """One line of JSON per message from number `since` on; fewer than `limit` lines mean that these were all."""
        since = _read_count(request, "since", 0)
        limit = _read_count(request, "limit", CALLS_LIMIT_DEFAULT)
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        await response.prepare(request)
        end = min(since + limit, len(self._state.ledger))
        for start in range(since, end, _CHUNK):
            await response.write(b"".join(self._state.ledger.lines(start, min(_CHUNK, end - start))))
            # Sends go on being answered meanwhile.
            await asyncio.sleep(0)
        await response.write_eof()
        return response

    async def stats(self, request: web.Request) -> web.StreamResponse:
        state = self._state
        totals = state.ledger.totals()
        return json_response({"requests": state.requests, **totals, "receipts": state.receipts.state()})

    async def settings(self, request: web.Request) -> web.StreamResponse:
        """GET shows the options, POST changes some."""
        if request.method == "POST":
            self._state.options.change(await _read_json(request))
        return json_response(self._shown_options())

    async def faults(self, request: web.Request) -> web.StreamResponse:
        """GET lists them, POST adds one or a list of them, DELETE removes all."""
        book = self._state.faults
        match request.method:
            case "POST":
                given = _decode_faults(await request.read())
                return json_response({"ids": book.add(given if isinstance(given, list) else [given])}, 201)
            case "DELETE":
                return json_response({"removed": book.remove()})
            case _:
                return json_response({"faults": book.faults})

    async def fault(self, request: web.Request) -> web.StreamResponse:
        """DELETE removes one."""
        removed = self._state.faults.remove(int(request.match_info["id"]))
        return json_response({"removed": removed}, 200 if removed else 404)

    async def magic(self, request: web.Request) -> web.StreamResponse:
        return json_response({digits: magic.title for digits, magic in MAGIC.items()})

    async def receipts(self, request: web.Request) -> web.StreamResponse:
        order = _decode_order(await request.read())
        receipts, options, reports = self._state.receipts, self._state.options, 0
        match order.action:
            case "hold":
                receipts.hold()
            case "release":
                reports = receipts.release(order.order)
            case "drop":
                reports = receipts.drop()
            case "repeat":
                reports = receipts.repeat(self._rows(order.message_ids))
            case "emit":
                what = SEEN if order.seen else pack(order.status_id, order.error_id)
                at_ns = time.time_ns() if order.at is None else int(order.at * 1e9)
                for row in self._rows(order.message_ids):
                    receipts.emit(row, what, at_ns)
                    reports += 1
            case "stop" | "start":
                options.receipts = order.action == "start"
        return json_response({"reports": reports})

    async def answers(self, request: web.Request) -> web.StreamResponse:
        """The contacts of some accepted messages write back."""
        order = decode_answers(await request.read())
        ledger, wall_ns = self._state.ledger, time.time_ns()
        infobip: dict[str, list[int]] = {}
        meta: dict[str, list[dict[str, Any]]] = {}
        rows = self._rows(order.message_ids)
        for row in rows:
            if ledger.is_meta(row):
                account = self._state.standings.of_sender(ledger.sender(row)).account
                meta.setdefault(account, []).append(meta_value(ledger, row, order, wall_ns))
            else:
                infobip.setdefault(order.url or ledger.notify_url(row), []).append(row)
        for _ in range(order.posts):
            for url, own in infobip.items():
                self._state.receipts.post_notice(url, infobip_document(ledger, own, order, wall_ns))
            if meta:
                self._state.receipts.post_meta(wire_meta.values_document(meta))
        return json_response({"contacts": len(rows)})

    async def senders(self, request: web.Request) -> web.StreamResponse:
        """Set how one sender, several or all of them stand."""
        given = _decode_senders(await request.read())
        for order in given if isinstance(given, list) else [given]:
            self._state.standings.set_sender(order)
        return json_response({})

    async def templates(self, request: web.Request) -> web.StreamResponse:
        """Set how a template stands, and say so by webhook where that is wanted."""
        order = _decode_template(await request.read())
        self._state.standings.set_template(order)
        if order.account is not None:
            notice = wire_meta.template_notice(order.account, order.name, order.language, order.status, time.time())
            self._state.receipts.post_meta(notice)
        if order.notify_url is not None:
            notice = wire.template_notice(order.name, order.language, order.status, time.time_ns())
            self._state.receipts.post_notice(order.notify_url, notice)
        return json_response({})

    async def reset(self, request: web.Request) -> web.StreamResponse:
        self._state.reset()
        self._sink.clear()
        return json_response({})

    def _rows(self, message_ids: list[str] | None) -> list[int]:
        ledger = self._state.ledger
        if message_ids is None:
            return list(range(len(ledger)))
        return [row for message_id in message_ids if (row := ledger.find(message_id)) is not None]

    def _shown_options(self) -> dict[str, Any]:
        options = self._state.options
        secrets = {"api_key": options.api_key is not None, "meta_app_secret": options.meta_app_secret is not None}
        return {**msgspec.structs.asdict(options), **secrets}


@web.middleware
async def explain_bad_orders(request: web.Request, handler: Any) -> web.StreamResponse:
    """400 with the reason for a body that an admin endpoint cannot use."""
    try:
        response: web.StreamResponse = await handler(request)
    except (msgspec.DecodeError, _BadQuery) as error:
        return json_response({"error": str(error)}, 400)
    return response


class _BadQuery(Exception):
    """A parameter of the query that cannot be used."""


async def _read_json(request: web.Request) -> dict[str, Any]:
    return msgspec.json.decode(await request.read(), type=dict[str, Any])


def _read_count(request: web.Request, name: str, default: int) -> int:
    value = request.query.get(name)
    if value is None:
        return default
    if not (value.isascii() and value.isdigit()):
        raise _BadQuery(f"{name} must be a whole number")
    return int(value)
