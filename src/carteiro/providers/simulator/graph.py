"""Meta's endpoints: `/v26.0/...`, whatever the version."""

import time
from uuid import uuid4

import msgspec
from aiohttp import web

from carteiro.providers.simulator import wire_meta
from carteiro.providers.simulator.answering import break_off, is_authorized, json_response, retry_headers
from carteiro.providers.simulator.desk import Desk
from carteiro.providers.simulator.ledger import Arrival
from carteiro.providers.simulator.plan import Plan
from carteiro.providers.simulator.state import State
from carteiro.providers.simulator.wire import template_id

_UNAUTHORIZED = (190, 401)
_CODES = {400: 100, 401: 190, 403: 10, 404: 100, 429: 4, 500: 131016, 503: 2}
"""The code of an error for which none was asked, by its HTTP status."""
_PAGE_MAX = 200


class Graph:
    def __init__(self, state: State) -> None:
        self._state = state
        self._desk = Desk(state)

    async def messages(self, request: web.Request) -> web.StreamResponse:
        """`POST /{version}/{number}/messages`: one message, which is taken as often as it comes."""
        arrived_ns, wall_ns = time.monotonic_ns(), time.time_ns()
        state = self._state
        state.requests["send"] += 1
        if (refused := self._unauthorized(request)) is not None:
            return refused
        try:
            send = wire_meta.decode_send(await request.read())
        except msgspec.DecodeError as error:
            return json_response(wire_meta.error_body(100, str(error)), 400)
        arrival = Arrival(
            request=state.requests["send"],
            arrived_ns=arrived_ns,
            arrived_wall_ns=wall_ns,
            caller=request.headers.get("User-Agent", ""),
            sender=request.match_info["number"],
            to=send.to[1:],
            message_id=send.biz_opaque_callback_data or uuid4().hex,
            template=send.template_name,
            placeholders=send.said,
            notify_url=None,
            is_meta=True,
        )
        (judged,) = (await self._desk.take([arrival])).judged
        await self._desk.wait(judged.plan, [])
        if judged.plan.answer == "ok":
            return json_response(
                wire_meta.answer_body(judged.row, arrival.message_id, arrival.to, held=judged.plan.held)
            )
        return await _answer(request, judged.plan)

    async def number(self, request: web.Request) -> web.StreamResponse:
        """`GET /{version}/{number}?fields=...`."""
        self._state.requests["quality"] += 1
        if (refused := await self._refused(request)) is not None:
            return refused
        number = request.match_info["number"]
        standing = self._state.standings.of_sender(number)
        told = {
            "id": number,
            "display_phone_number": f"+{number}",
            "status": standing.status,
            "quality_rating": "NA" if standing.quality == "UNKNOWN" else standing.quality,
        }
        if standing.limit != "LIMIT_NA":
            told["whatsapp_business_manager_messaging_limit"] = standing.limit
        return json_response(told)

    async def templates(self, request: web.Request) -> web.StreamResponse:
        """`GET /{version}/{account}/message_templates`: those told of at `/_sim/templates`, page by page."""
        self._state.requests["templates"] += 1
        if (refused := await self._refused(request)) is not None:
            return refused
        found = self._state.standings.templates_of(request.match_info["account"], [])
        start, limit = int(request.query.get("after", "0")), min(int(request.query.get("limit", "25")), _PAGE_MAX)
        rows = [
            {"id": template_id(name, language), "name": name, "language": language, "status": status}
            for name, language, status in found[start : start + limit]
        ]
        paging: dict[str, object] = {"cursors": {"before": str(start), "after": str(start + limit)}}
        if start + limit < len(found):
            paging["next"] = str(request.url)
        return json_response({"data": rows, "paging": paging})

    async def _refused(self, request: web.Request) -> web.StreamResponse | None:
        if (refused := self._unauthorized(request)) is not None:
            return refused
        plan = self._state.faults.pick("states")
        return None if plan is None or plan.answer == "ok" else await _answer(request, plan)

    def _unauthorized(self, request: web.Request) -> web.StreamResponse | None:
        if is_authorized(request, self._state.options.api_key, "Bearer"):
            return None
        code, status = _UNAUTHORIZED
        return json_response(wire_meta.error_body(code, "Error validating access token"), status)


async def _answer(request: web.Request, plan: Plan) -> web.StreamResponse:
    match plan.answer:
        case "http" if plan.envelope == "none":
            return web.Response(body=b"<html></html>", status=plan.http_status, content_type="text/html")
        case "http":
            response = json_response(
                wire_meta.error_body(plan.error_id or _CODES.get(plan.http_status, 131000)), plan.http_status
            )
            response.headers.update(retry_headers(plan.retry_after))
            return response
        case "reject":
            return json_response(wire_meta.error_body(plan.error_id or 100), 400)
        case "garbage":
            return web.Response(body=b"<html>accepted</html>", content_type="text/html")
        case "no_row":
            return json_response({"messaging_product": "whatsapp", "messages": []})
        case _:
            return await break_off(request, plan)
