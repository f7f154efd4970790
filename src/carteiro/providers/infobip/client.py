"""Infobip over HTTP. The only module that knows httpx and what its transport raises."""

import asyncio
from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

import aiohttp
import httpx
from httpx_aiohttp import AiohttpTransport

from carteiro.domain.outcomes import Ambiguous, Fact, NotSent, Outcome, Outgoing, Parsed, message_key, parse_message_key
from carteiro.domain.standing import SenderState, TemplateState
from carteiro.providers.contract import LogUnreachable, LookUp, MessageId, StatesUnreadable
from carteiro.providers.infobip import codec, states
from carteiro.providers.infobip.answers import read_answer
from carteiro.providers.infobip.foreign import decode_json, rows_of

LOG_PAGE = 50
"""Ids that one call to the log asks for."""
SENDERS_PAGE = 100
"""Senders that one call asks about."""

# Below the idle time of common servers and balancers (5 s and up): a connection that the other side closes while we
# write looks like a lost answer, and makes its message's outcome unknown for no reason.
_KEEPALIVE_S = 4.0
_CONNECT_MAX_S = 10.0

# The errors that aiohttp raises before it has a connection to write on; its other ones come after.
_BEFORE_THE_WRITE = (
    aiohttp.ClientConnectorError,  # refused, unreachable, DNS, TLS, certificate
    aiohttp.ClientConnectorCertificateError,
    aiohttp.ClientConnectorSSLError,
    aiohttp.ConnectionTimeoutError,  # includes the wait for a free connection
    aiohttp.ServerFingerprintMismatch,
    aiohttp.InvalidURL,
)


class InfobipProvider:
    """One Infobip account: its address and key. Connections are opened when first needed and kept for a few seconds."""

    name = "infobip"
    has_log = True

    def __init__(self, *, base_url: str, api_key: str, timeout_s: float, max_connections: int) -> None:
        """`timeout_s` is the total deadline of a call, connecting included. Raises ValueError for an unusable address.

        A connection is given up early enough for that to be told apart from a call that got no answer.
        """
        base = _normalise(base_url)
        self._send_url = httpx.URL(f"{base}/whatsapp/1/message/template")
        self._log_url = httpx.URL(f"{base}/whatsapp/2/logs")
        self._quality_url = httpx.URL(f"{base}/whatsapp/1/senders/quality")
        self._senders_url = f"{base}/whatsapp/2/senders"
        self._timeout_s = timeout_s
        connect_s = min(_CONNECT_MAX_S, timeout_s / 2)
        self._extensions = {"timeout": {"connect": connect_s, "pool": connect_s, "read": None, "write": None}}
        self._headers = httpx.Headers(
            {
                "Authorization": f"App {api_key}",
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

    async def submit(self, messages: Sequence[Outgoing]) -> list[Outcome]:
        if len(messages) == 1:
            return [await self._submit_one(messages[0])]
        return list(await asyncio.gather(*map(self._submit_one, messages)))

    async def _submit_one(self, message: Outgoing) -> Outcome:
        request = httpx.Request(
            "POST",
            self._send_url,
            headers=self._headers,
            content=codec.encode_send([message]),
            extensions=self._extensions,
        )
        try:
            response = await self._exchange(request)
        except Exception as error:
            return _read_failure(error)
        key = message_key(message.batch_id, message.seq)
        return read_answer(response.status_code, response.content, response.headers.get("retry-after"), [key])[0]

    async def _exchange(self, request: httpx.Request) -> httpx.Response:
        """The whole answer, within the deadline. The transport's own timeouts are none for the total."""
        async with asyncio.timeout(self._timeout_s):
            response = await self._transport.handle_async_request(request)
            try:
                await response.aread()
            finally:
                await response.aclose()
        return response

    async def look_up(self, ids: Sequence[MessageId]) -> LookUp:
        facts: list[Fact] = []
        absent: list[MessageId] = []
        for start in range(0, len(ids), LOG_PAGE):
            page = set(ids[start : start + LOG_PAGE])
            while page:
                rows = await self._read_log(page)
                known = {row_id for row_id, _ in rows}
                facts += (fact for row_id, found in rows if row_id in page for fact in found)
                # Ids with several rows may have pushed others out of the answer: ask for those alone.
                if len(rows) < LOG_PAGE or not known & page:
                    absent += page - known
                    break
                page -= known
        return LookUp(tuple(facts), tuple(absent))

    async def _read_log(self, ids: set[MessageId]) -> list[tuple[MessageId, tuple[Fact, ...]]]:
        """The rows of one page, each with its facts. Raises LogUnreachable."""
        params: list[tuple[str, str]] = [("messageId", message_key(*key)) for key in sorted(ids)]
        url = self._log_url.copy_with(params=[*params, ("limit", str(LOG_PAGE))])
        request = httpx.Request("GET", url, headers=self._headers, extensions=self._extensions)
        try:
            response = await self._exchange(request)
        except Exception as error:
            raise LogUnreachable(type(error.__cause__ or error).__name__) from error
        if response.status_code != 200:
            raise LogUnreachable(f"HTTP {response.status_code}")
        rows = rows_of(decode_json(response.content), "results")
        if rows is None:
            raise LogUnreachable("an answer without a list of results")
        try:
            return list(_read_rows(rows))
        except ValueError as error:
            # Whose row it was cannot be told: nothing on this page is proven absent.
            raise LogUnreachable(str(error)) from error

    async def read_senders(self, senders: Sequence[str]) -> list[SenderState]:
        found: list[SenderState] = []
        for start in range(0, len(senders), SENDERS_PAGE):
            found += await self._read_senders(senders[start : start + SENDERS_PAGE])
        return found

    async def _read_senders(self, senders: Sequence[str]) -> list[SenderState]:
        """One page. A sender that the call is refused for is found by halving, and left out."""
        response = await self._ask(self._quality_url.copy_with(params={"senders": ",".join(senders)}))
        if response.status_code in {400, 404}:
            if len(senders) == 1:
                return []
            middle = len(senders) // 2
            return await self._read_senders(senders[:middle]) + await self._read_senders(senders[middle:])
        rows = states.read_senders(response.content) if response.status_code == 200 else None
        if rows is None:
            raise StatesUnreadable(f"HTTP {response.status_code}")
        return rows

    async def read_templates(self, sender: str) -> list[TemplateState]:
        response = await self._ask(httpx.URL(f"{self._senders_url}/{sender}/templates"))
        rows = states.read_templates(response.content) if response.status_code == 200 else None
        if rows is None:
            raise StatesUnreadable(f"HTTP {response.status_code}")
        return rows

    async def _ask(self, url: httpx.URL) -> httpx.Response:
        """GET. Raises StatesUnreadable when there is no answer."""
        try:
            return await self._exchange(httpx.Request("GET", url, headers=self._headers, extensions=self._extensions))
        except Exception as error:
            raise StatesUnreadable(type(error.__cause__ or error).__name__) from error

    def parse_webhook(self, body: bytes) -> Parsed:
        return codec.parse_webhook(body)

    async def close(self) -> None:
        await self._transport.aclose()


def _read_rows(rows: Sequence[object]) -> Iterator[tuple[MessageId, tuple[Fact, ...]]]:
    for row in rows:
        if not isinstance(row, dict) or (row_id := parse_message_key(str(row.get("messageId")))) is None:
            raise ValueError("a row without an id of ours")
        yield row_id, tuple(codec.parse_log_row(row))


def _read_failure(error: Exception) -> Outcome:
    """What a call that brought no answer means. The transport calls nearly everything a ConnectTimeout, also a lost
    answer, so the error underneath decides; what is not known for certain to precede the write is ambiguous.
    """
    if isinstance(error, TimeoutError):
        return Ambiguous("TIMEOUT", "no answer within the deadline")
    cause = error.__cause__ or error
    name = type(cause).__name__
    if isinstance(cause, _BEFORE_THE_WRITE):
        return NotSent("CONNECT_FAILED", name)
    return Ambiguous("CONNECTION_LOST", name)


def _normalise(base_url: str) -> str:
    """With a scheme (https if it has none) and without a slash at the end. Raises ValueError."""
    url = base_url.strip()
    if "://" not in url:
        url = f"https://{url}"
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment or parts.username:
        raise ValueError("the provider's address must be like https://xyz12.api.infobip.com")
    return url.rstrip("/")
