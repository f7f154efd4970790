"""HTTP to a provider: one exchange, and what it means when none came about. The only module that knows httpx and what
its transport raises.
"""

import asyncio
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import NamedTuple
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


class Answer(NamedTuple):
    status_code: int
    content: bytes
    headers: Mapping[str, str]
    """Names in any case."""


class Transport:
    """Connections to one provider account, opened when first needed and kept for a few seconds."""

    def __init__(self, *, authorization: str, timeout_s: float, max_connections: int) -> None:
        """`timeout_s` is the total deadline of a call, connecting included. A connection is given up early enough for
        that to be told apart from a call that got no answer.
        """
        self._timeout_s = timeout_s
        connect_s = min(_CONNECT_MAX_S, timeout_s / 2)
        self._timeouts = aiohttp.ClientTimeout(connect=connect_s, sock_connect=connect_s)
        self._extensions = {"timeout": {"connect": connect_s, "pool": connect_s, "read": None, "write": None}}
        self._headers = {
            "Authorization": authorization,
            "Content-Type": "application/json",
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            "User-Agent": "carteiro",
        }
        self._max_connections = max_connections
        self._ssl = httpx.create_ssl_context()
        self._opened: aiohttp.ClientSession | None = None
        self._transport = AiohttpTransport(client=self._session)

    def _session(self) -> aiohttp.ClientSession:
        if self._opened is None:
            connector = aiohttp.TCPConnector(limit=self._max_connections, keepalive_timeout=_KEEPALIVE_S, ssl=self._ssl)
            self._opened = aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())
        return self._opened

    async def post(self, url: httpx.URL, body: bytes) -> Answer:
        """The whole answer, within the deadline. Raises what `read_failure` reads.

        The hot path: on the transport's own session, past httpx's requests and responses, which would cost a call two
        fifths of its CPU.
        """
        async with (
            asyncio.timeout(self._timeout_s),
            self._session().post(
                str(url),
                data=body,
                headers=self._headers,
                timeout=self._timeouts,
                allow_redirects=False,
                auto_decompress=False,
            ) as response,
        ):
            return Answer(response.status, await response.read(), response.headers)

    async def get(self, url: httpx.URL) -> Answer:
        """The same. The transport's own timeouts are none for the total."""
        request = httpx.Request("GET", url, headers=self._headers, extensions=self._extensions)
        async with asyncio.timeout(self._timeout_s):
            response = await self._transport.handle_async_request(request)
            try:
                return Answer(response.status_code, await response.aread(), response.headers)
            finally:
                await response.aclose()

    async def close(self) -> None:
        if self._opened is not None:
            await self._opened.close()


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
    """What a call that brought no answer means. What is not known for certain to precede the write is ambiguous."""
    name = name_failure(error)
    if isinstance(_underneath(error), _BEFORE_THE_WRITE):
        return NotSent("CONNECT_FAILED", name)
    if isinstance(error, TimeoutError):
        return Ambiguous("TIMEOUT", "no answer within the deadline")
    return Ambiguous("CONNECTION_LOST", name)


def name_failure(error: Exception) -> str:
    """The kind of error underneath, without its text: that may name addresses."""
    return type(_underneath(error)).__name__


def _underneath(error: Exception) -> BaseException:
    """httpx's transport calls nearly everything a ConnectTimeout, also a lost answer: the error that it got decides."""
    return (error.__cause__ or error) if isinstance(error, httpx.TransportError) else error


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
