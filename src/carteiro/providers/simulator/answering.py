"""Answers, and the ways of not giving one."""

import asyncio
import socket
import struct
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

from aiohttp import web

from carteiro.providers.simulator.plan import Plan
from carteiro.providers.simulator.wire import encode, error_body

HANG_MAX_S = 600.0
_UNAUTHORIZED = Plan(answer="http", http_status=401, error="UNAUTHORIZED", text="Invalid login details")
_LINGER_OFF = struct.pack("ii", 1, 0)


def json_response(value: object, status: int = 200) -> web.Response:
    return web.Response(body=encode(value), status=status, content_type="application/json")


def is_authorized(request: web.Request, api_key: str | None, scheme: str = "App") -> bool:
    return api_key is None or request.headers.get("Authorization") == f"{scheme} {api_key}"


def unauthorized() -> web.Response:
    return refuse(_UNAUTHORIZED)


def refuse(plan: Plan) -> web.Response:
    """The plan's HTTP error."""
    body, content_type = error_body(plan)
    return web.Response(
        body=body, status=plan.http_status, content_type=content_type, headers=retry_headers(plan.retry_after)
    )


def retry_headers(retry_after: str | None) -> dict[str, str]:
    return {} if retry_after is None else {"Retry-After": _retry_after(retry_after)}


async def break_off(request: web.Request, plan: Plan) -> web.Response:
    """End or keep the connection without an answer. What it returns goes nowhere."""
    if plan.answer == "hang":
        # Cancelled when the caller leaves.
        await asyncio.sleep(HANG_MAX_S)
    transport = request.transport
    if transport is not None:
        if plan.answer == "reset":
            connection: socket.socket | None = transport.get_extra_info("socket")
            if connection is not None:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_OFF)
        transport.abort()
    return web.Response()


def _retry_after(value: str) -> str:
    if not value.startswith("date+"):
        return value
    return format_datetime(datetime.now(UTC) + timedelta(seconds=float(value[5:])), usegmt=True)
