"""The HTTP side of callbacks: one POST to an address that a client chose, so nothing about it is trusted."""

import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from ssl import SSLError

from aiohttp import (
    AddrInfoType,
    ClientConnectorDNSError,
    ClientConnectorError,
    ClientError,
    ClientSession,
    ClientTimeout,
    DummyCookieJar,
    TCPConnector,
    ThreadedResolver,
)
from aiohttp.abc import AbstractResolver, ResolveResult

from carteiro.domain.callbacks import check_callback_url, is_public

ANSWER_MAX = 64 * 1024
"""Bytes of an answer that are taken off the socket at most. Only its status matters."""
REASON_MAX = 200


class CallbackFailed(Exception):
    """No answer to speak of; the message says why, in a few words."""


class TargetRefused(OSError):
    """The host leads to an address that is not public."""


class CheckedResolver(AbstractResolver):
    """Resolves names, and refuses those of which any address is not public.

    The connection goes to the addresses that were checked: a name cannot change its mind in between.
    """

    def __init__(self, resolver: AbstractResolver) -> None:
        self._resolver = resolver

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = await self._resolver.resolve(host, port, family)
        if not all(is_public(address["host"]) for address in found):
            raise TargetRefused("the host has an address that is not public")
        return found

    async def close(self) -> None:
        await self._resolver.close()


def _checked_socket(address: AddrInfoType) -> socket.socket:
    """The last gate: every connection passes here with the very address that it goes to, resolved or literal."""
    family, kind, protocol, _, target = address
    if not is_public(str(target[0])):
        raise TargetRefused("the address is not public")
    return socket.socket(family, kind, protocol)


@asynccontextmanager
async def open_client(
    *, allow_private: bool, timeout_s: float, resolver: AbstractResolver | None = None
) -> AsyncIterator["CallbackClient"]:
    """A client for a few callbacks. `timeout_s` bounds each of them from name to status; `resolver` is for tests."""
    names = resolver or ThreadedResolver()
    connector = TCPConnector(
        resolver=names if allow_private else CheckedResolver(names),
        socket_factory=None if allow_private else _checked_socket,
        use_dns_cache=False,
        force_close=True,
    )
    session = ClientSession(
        connector=connector,
        timeout=ClientTimeout(total=timeout_s),
        cookie_jar=DummyCookieJar(),
        trust_env=False,
        auto_decompress=False,
        read_bufsize=ANSWER_MAX // 2,
    )
    async with session:
        yield CallbackClient(session, allow_private=allow_private)


class CallbackClient:
    """Posts; follows no redirect, keeps no cookie, reads no answer."""

    def __init__(self, session: ClientSession, *, allow_private: bool) -> None:
        self._session = session
        self._allow_private = allow_private

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> int:
        """Send it once; the status of the answer. Raises CallbackFailed when there is none."""
        if problem := check_callback_url(url, self._allow_private):
            raise CallbackFailed(f"the address {problem}")
        try:
            response = await self._session.post(url, data=body, headers=headers, allow_redirects=False)
        except TimeoutError:
            raise CallbackFailed("no answer in time") from None
        except ClientConnectorError as error:
            raise CallbackFailed(_connection_reason(error)) from None
        except (ClientError, OSError, ValueError) as error:
            raise CallbackFailed(f"{type(error).__name__}: {error}"[:REASON_MAX]) from None
        # The connection is cut with whatever of the body has not been taken off it.
        response.close()
        return response.status


def _connection_reason(error: ClientConnectorError) -> str:
    cause = error.os_error
    if isinstance(cause, TargetRefused):
        return str(cause)
    if isinstance(error, ClientConnectorDNSError):
        return "the host has no address"
    if isinstance(cause, SSLError):
        return f"TLS: {cause.reason}"[:REASON_MAX]
    return f"no connection: {cause.strerror or type(cause).__name__}"[:REASON_MAX]
