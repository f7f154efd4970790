"""The outermost layer: a request id for every answer, and one log line a request.

The line has the route's template and not the path, which may hold a webhook's token; no query, no bodies, no phones,
no keys.
"""

import re
import time
from typing import Any
from uuid import uuid4

import structlog
from litestar.enums import ScopeType
from litestar.types import ASGIApp, Message, Receive, Scope, Send

log = structlog.get_logger("carteiro.access")

HEADER = b"x-request-id"
_ACCEPTABLE = re.compile(rb"[0-9A-Za-z._-]{8,64}")
_KEY = "carteiro_request_id"


def request_id_of(scope: Any) -> str:
    """The id of the request: the client's own X-Request-Id where that is usable, else ours."""
    return str(scope["state"][_KEY])


class Access:
    """ASGI layer around the application."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP:
            await self._app(scope, receive, send)
            return
        given = next((value for name, value in scope["headers"] if name == HEADER), b"")
        request_id = given.decode() if _ACCEPTABLE.fullmatch(given) else uuid4().hex
        scope.setdefault("state", {})[_KEY] = request_id
        status = 500

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (HEADER, request_id.encode())]
            await send(message)

        started_s = time.perf_counter()
        with structlog.contextvars.bound_contextvars(request_id=request_id):
            try:
                await self._app(scope, receive, send_with_id)
            finally:
                caller = scope.get("auth")
                log.info(
                    "request",
                    method=scope["method"],
                    route=scope.get("path_template") or "(none)",
                    status=status,
                    duration_ms=round((time.perf_counter() - started_s) * 1000, 1),
                    account_id=getattr(caller, "account_id", None),
                    key_id=getattr(caller, "key_id", None),
                )
