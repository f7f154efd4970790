"""Infobip's endpoints for reading: the log, sender quality, templates."""

import asyncio
import time

from aiohttp import web

from carteiro.providers.simulator import wire
from carteiro.providers.simulator.answering import break_off, is_authorized, json_response, refuse, unauthorized
from carteiro.providers.simulator.faults import Door
from carteiro.providers.simulator.state import State

_LIMIT_DEFAULT, _LIMIT_MAX = 50, 1000


class Reading:
    def __init__(self, state: State) -> None:
        self._state = state

    async def logs(self, request: web.Request) -> web.StreamResponse:
        """`GET /whatsapp/2/logs?messageId=..&messageId=..&limit=..`: accepted messages, in the order asked for."""
        state = self._state
        state.requests["log"] += 1
        if not is_authorized(request, state.options.api_key):
            return unauthorized()
        if (fault := await self._fault("log", request)) is not None:
            return fault
        limit = min(_read_limit(request.query.get("limit")), _LIMIT_MAX)
        now_ns, lag_ns = time.time_ns(), int(state.options.log_lag_ms * 1e6)
        found = []
        for message_id in request.query.getall("messageId", []):
            row = state.ledger.find(message_id)
            if row is not None and state.ledger.visible_in_log(row, now_ns, lag_ns):
                found.append(wire.log_item(state.ledger, row))
        return json_response({"results": found[:limit]})

    async def quality(self, request: web.Request) -> web.StreamResponse:
        """`GET /whatsapp/1/senders/quality?senders=a,b`."""
        self._state.requests["quality"] += 1
        if not is_authorized(request, self._state.options.api_key):
            return unauthorized()
        if (fault := await self._fault("states", request)) is not None:
            return fault
        updated_at = wire.clock_text(time.time_ns()).replace("+0000", "Z")
        senders = [sender for sender in request.query.get("senders", "").split(",") if sender]
        return json_response({"results": [self._quality(sender, updated_at) for sender in senders]})

    async def templates(self, request: web.Request) -> web.StreamResponse:
        """`GET /whatsapp/2/senders/{sender}/templates`."""
        self._state.requests["templates"] += 1
        if not is_authorized(request, self._state.options.api_key):
            return unauthorized()
        if (fault := await self._fault("states", request)) is not None:
            return fault
        sender = request.match_info["sender"]
        found = self._state.standings.templates_of(sender, self._state.ledger.templates_of(sender))
        return json_response({"templates": [_template(*told) for told in found]})

    def _quality(self, sender: str, updated_at: str) -> dict[str, object]:
        standing = self._state.standings.of_sender(sender)
        return {
            "sender": sender,
            "qualityRating": standing.quality,
            "status": standing.status,
            "currentLimit": standing.limit,
            "lastUpdated": updated_at,
        }

    async def _fault(self, door: Door, request: web.Request) -> web.StreamResponse | None:
        """What goes wrong with this call; None: nothing."""
        plan = self._state.faults.pick(door)
        if plan is None:
            return None
        await asyncio.sleep(plan.delay_ms / 1000)
        match plan.answer:
            case "http":
                return refuse(plan)
            case "reset" | "close" | "hang":
                return await break_off(request, plan)
            case "garbage":
                return web.Response(body=b"<html></html>", content_type="text/html")
            case _:
                return None


def _read_limit(value: str | None) -> int:
    return int(value) if value is not None and value.isascii() and value.isdigit() else _LIMIT_DEFAULT


def _template(name: str, language: str, status: str) -> dict[str, object]:
    return {
        "id": wire.template_id(name, language),
        "businessAccountId": 1,
        "name": name,
        "language": language,
        "status": status,
        "category": "UTILITY",
        "structure": {"body": {"text": ""}, "type": "TEXT"},
        "quality": "HIGH",
        "createdAt": "2026-01-01T00:00:00.000+0000",
        "lastUpdatedAt": "2026-01-01T00:00:00.000+0000",
    }
