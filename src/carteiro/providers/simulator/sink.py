"""A place for callbacks: keeps what is posted there, byte for byte, so that signatures can be checked afterwards."""

import asyncio
import base64
import time
from collections import deque
from typing import Any

from aiohttp import web

from carteiro.providers.simulator.answering import break_off, json_response, refuse
from carteiro.providers.simulator.state import State

KEPT_MAX = 10_000


class Sink:
    """Keeps the latest posts, refused ones included."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._kept: deque[dict[str, Any]] = deque(maxlen=KEPT_MAX)

    def clear(self) -> None:
        self._kept.clear()

    async def take(self, request: web.Request) -> web.StreamResponse:
        """`POST /_sim/callback`, with anything after it: 200, or what a fault on `callback` says."""
        arrived_ns, wall_ns = time.monotonic_ns(), time.time_ns()
        self._state.requests["callback"] += 1
        body = await request.read()
        plan = self._state.faults.pick("callback")
        self._kept.append(
            {
                "arrived_ns": arrived_ns,
                "arrived_wall_ns": wall_ns,
                "path": request.raw_path,
                "headers": [[name.decode("latin-1"), value.decode("latin-1")] for name, value in request.raw_headers],
                "body": _text(body),
                "body_base64": base64.b64encode(body).decode(),
                "answer": "200" if plan is None or plan.answer == "ok" else plan.answer,
            }
        )
        if plan is None:
            return json_response({})
        await asyncio.sleep(plan.delay_ms / 1000)
        match plan.answer:
            case "http":
                return refuse(plan)
            case "reset" | "close" | "hang":
                return await break_off(request, plan)
            case _:
                return json_response({})

    async def kept(self, request: web.Request) -> web.StreamResponse:
        """`GET /_sim/callbacks`: oldest first."""
        return json_response({"callbacks": list(self._kept)})


def _text(body: bytes) -> str | None:
    """None when it is not UTF-8."""
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None
