"""HTTP to a provider: one exchange, and what it means when none came about. The only module that knows httpx and what
its transport raises.
"""

import asyncio
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

import aiohttp
import httpx
from httpx_aiohttp import AiohttpTransport

from carteiro.domain.outcomes import Ambiguous, NotSent, Outcome

RETRY_AFTER_MAX_S = 900.0

# Below the idle time of common servers and balancers (5 s and up): a connection that the other side closes while we
# write looks like a lost answer, and makes its message's outcome unknown for no reason.
_KEEPALIVE_S = 4.0
_CONNECT_MAX_S = 10.0
_SECONDS = re.compile(r"\d{1,18}(\.\d{1,9})?", re.ASCII)

# The errors that aiohttp raises before it has a connection to write on; its other ones come after.
_BEFORE_THE_WRITE = (
    aiohttp.ClientConnectorError,  # refused, unreachable, DNS, TLS, certificate
    aiohttp.ClientConnectorCertificateError,
    aiohttp.ClientConnectorSSLError,
    aiohttp.ConnectionTimeoutError,  # includes the wait for a free connection
    aiohttp.ServerFingerprintMismatch,
    aiohttp.InvalidURL,
)


class Transport:
    """Connections to one provider account, opened when first needed and kept for a few seconds."""

    def __init__(self, *, authorization: str, timeout_s: float, max_connections: int) -> None:
        """`timeout_s` is the total deadline of a call, connecting included. A connection is given up early enough for
        that to be told apart from a call that got no answer.
        """
        self._timeout_s = timeout_s
        connect_s = min(_CONNECT_MAX_S, timeout_s / 2)
        self._extensions = {"timeout": {"connect": connect_s, "pool": connect_s, "read": None, "write": None}}
        self._headers = httpx.Headers(
            {
                "Authorization": authorization,
                "Content-Type": "application/json",
                "Accept": "application/json",
                "Accept-Encoding": "identity",
                "User-Agent": "carteiro",
            }
        )
        limits = httpx.Limits(max_connections=max_connections, keepalive_expiry=_KEEPALIVE_S)
        # Without httpx.AsyncClient above it: its cookies, redirects and hooks are not wanted, and add more than half to
        # what a call costs.
        self._transport = AiohttpTransport(limits=limits)

    async def post(self, url: httpx.URL, body: bytes) -> httpx.Response:
        """The whole answer, within the deadline. Raises what `read_failure` reads."""
        request = httpx.Request("POST", url, headers=self._headers, content=body, extensions=self._extensions)
        return await self._exchange(request)

    async def get(self, url: httpx.URL) -> httpx.Response:
        return await self._exchange(httpx.Request("GET", url, headers=self._headers, extensions=self._extensions))

    async def close(self) -> None:
        await self._transport.aclose()

    async def _exchange(self, request: httpx.Request) -> httpx.Response:
        """The transport's own timeouts are none for the total."""
        async with asyncio.timeout(self._timeout_s):
            response = await self._transport.handle_async_request(request)
            try:
                await response.aread()
            finally:
                await response.aclose()
        return response


def address(base_url: str, path: str, params: Mapping[str, str] | None = None) -> httpx.URL:
    """`path` below a base URL; https where that names no scheme. Raises ValueError for an unusable one."""
    url = base_url.strip()
    if "://" not in url:
        url = f"https://{url}"
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment or parts.username:
        raise ValueError("the provider's address must be like https://xyz12.api.infobip.com")
    return httpx.URL(f"{url.rstrip('/')}{path}", params=params)


def read_failure(error: Exception) -> Outcome:
    """What a call that brought no answer means. The transport calls nearly everything a ConnectTimeout, also a lost
    answer, so the error underneath decides; what is not known for certain to precede the write is ambiguous.
    """
    if isinstance(error, TimeoutError):
        return Ambiguous("TIMEOUT", "no answer within the deadline")
    name = name_failure(error)
    if isinstance(error.__cause__ or error, _BEFORE_THE_WRITE):
        return NotSent("CONNECT_FAILED", name)
    return Ambiguous("CONNECTION_LOST", name)


def name_failure(error: Exception) -> str:
    """The kind of error underneath, without its text: that may name addresses."""
    return type(error.__cause__ or error).__name__


def read_retry_after(value: str | None) -> float | None:
    """Seconds to wait, at most 15 minutes; None when the header says nothing useful: absent, unreadable, not ahead."""
    if value is None:
        return None
    value = value.strip()
    if _SECONDS.fullmatch(value):
        wait_s = float(value)
    else:
        try:
            until = parsedate_to_datetime(value)
        except (ValueError, OverflowError):
            return None
        if until.tzinfo is None:
            until = until.replace(tzinfo=UTC)
        wait_s = (until - datetime.now(UTC)).total_seconds()
    return min(wait_s, RETRY_AFTER_MAX_S) if wait_s > 0 else None
