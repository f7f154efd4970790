"""A request's body as it comes: decompressed, bounded in size and time, and hashed."""

import asyncio
import re
import time
import zlib
from collections.abc import AsyncIterator, Iterator
from hashlib import sha256
from typing import TypeVar

import msgspec
from litestar.exceptions import HTTPException

from carteiro.api.context import ApiRequest
from carteiro.api.problems import RequestTimeout, UnsupportedMediaType, decoding_error
from carteiro.domain.errors import InvalidRequest, PayloadTooLarge
from carteiro.services.create import Key

JSON = "application/json"
KEY_MAX = 255
SILENCE_MAX_S = 30.0
"""Without a byte from the client."""
UPLOAD_MAX_S = 1_800.0
"""From the first byte to the last. Well below the age at which drafts count as abandoned."""
INFLATED_AT_ONCE = 256 * 1024
"""Bytes that are decompressed before the event loop gets its turn."""
RATIO_MAX = 100
RATIO_FROM = 8 * 1024 * 1024
"""Decompressed bytes from which on the ratio counts: short texts may be as uniform as they like."""
_GZIP = zlib.MAX_WBITS | 16

_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
"""An escaped NUL, and not an escaped backslash before the letters."""
Type = TypeVar("Type")


class Body:
    """Reads a request's body once. `digest` is of the decompressed bytes: a client that compresses them anew for a
    repeat sends the same request.
    """

    def __init__(self, request: ApiRequest, bytes_max: int, *, elsewhere: bytes = b"") -> None:
        """`elsewhere`: what belongs to the request and does not stand in its body. Raises UnsupportedMediaType."""
        self._request = request
        self._bytes_max = bytes_max
        self._hash = sha256(elsewhere)
        self._gzipped = _is_gzipped(request)

    def digest(self) -> bytes:
        return self._hash.digest()

    async def read(self) -> bytes:
        """All of it."""
        return b"".join([piece async for piece in self.pieces()])

    async def pieces(self) -> AsyncIterator[bytes]:
        """Piece by piece. Raises PayloadTooLarge, RequestTimeout, or InvalidRequest where it cannot be decompressed."""
        given = self._request.content_length
        if given is not None and given > self._bytes_max:
            raise self._too_large()
        inflated = _Gunzip() if self._gzipped else None
        came, told = 0, 0
        async for raw in self._arriving():
            came += len(raw)
            for piece in inflated.feed(raw) if inflated else (raw,):
                told += len(piece)
                if max(came, told) > self._bytes_max:
                    raise self._too_large()
                if told > RATIO_FROM and told > came * RATIO_MAX:
                    raise PayloadTooLarge(f"The body decompresses to more than {RATIO_MAX} times its size.")
                if piece:
                    self._hash.update(piece)
                    yield piece
                if inflated:
                    await asyncio.sleep(0)
        if inflated is not None:
            inflated.finish()

    async def _arriving(self) -> AsyncIterator[bytes]:
        arriving = self._request.stream()
        ends_s = time.monotonic() + UPLOAD_MAX_S
        while (raw := await self._next(arriving, min(SILENCE_MAX_S, ends_s - time.monotonic()))) is not None:
            yield raw

    async def _next(self, arriving: AsyncIterator[bytes], patience_s: float) -> bytes | None:
        try:
            async with asyncio.timeout(patience_s):
                return await anext(arriving, None)
        except TimeoutError:
            raise RequestTimeout(
                f"Send all of it within {UPLOAD_MAX_S / 60:.0f} minutes, without a silence of {SILENCE_MAX_S:.0f} s."
            ) from None
        except HTTPException as error:
            if error.status_code != 500:
                raise
            # What the framework says when the connection ends before the body does. Nobody is left to read this.
            raise InvalidRequest("The connection ended before the body did.") from None

    def _too_large(self) -> PayloadTooLarge:
        return PayloadTooLarge(f"The body has more than {self._bytes_max // 2**20} MiB.")


class _Gunzip:
    """A gzip stream of any number of members, decompressed in bounded pieces.

    A piece may be empty: the event loop gets its turn after a member that holds nothing, too.
    """

    def __init__(self) -> None:
        self._member = zlib.decompressobj(_GZIP)
        self._begun = False

    def feed(self, raw: bytes) -> Iterator[bytes]:
        while raw:
            if self._member.eof:
                self._member = zlib.decompressobj(_GZIP)
            self._begun = True
            try:
                piece = self._member.decompress(raw, INFLATED_AT_ONCE)
            except zlib.error:
                raise InvalidRequest("The body is not gzip, whatever its Content-Encoding says.") from None
            raw = self._member.unused_data if self._member.eof else self._member.unconsumed_tail
            yield piece

    def finish(self) -> None:
        """Raises InvalidRequest for a stream that was cut short."""
        if self._begun and not self._member.eof:
            raise InvalidRequest("The gzip stream ends too early.")


def _is_gzipped(request: ApiRequest) -> bool:
    match request.headers.get("content-encoding", "identity").strip().lower():
        case "identity" | "":
            return False
        case "gzip" | "x-gzip":
            return True
        case other:
            raise UnsupportedMediaType(
                f"Send the body as it is or with Content-Encoding gzip, not {other}.",
                headers={"Accept-Encoding": "gzip"},
            )


def media_type_of(request: ApiRequest) -> str:
    """What the body says that it is; JSON when it says nothing."""
    return str(request.headers.get("content-type", JSON)).partition(";")[0].strip().lower()


async def read_json(request: ApiRequest) -> bytes:
    """A body that says that it is JSON or says nothing. Raises UnsupportedMediaType."""
    if (media_type := media_type_of(request)) != JSON:
        raise UnsupportedMediaType(f"Send {JSON}, not {media_type}.")
    return await request.body()


def read_key(request: ApiRequest, body: bytes, scope: str = "") -> Key | None:
    """The Idempotency-Key that came with a body. Raises InvalidRequest."""
    name = read_key_name(request)
    return None if name is None else Key(name, sha256(body).digest(), scope)


def read_key_name(request: ApiRequest) -> str | None:
    """Raises InvalidRequest."""
    name: str | None = request.headers.get("idempotency-key")
    if name is not None and not (0 < len(name) <= KEY_MAX and name.isascii() and name.isprintable()):
        raise InvalidRequest(f"Idempotency-Key is 1 to {KEY_MAX} printable ASCII characters.")
    return name


def decode(body: bytes, decoder: msgspec.json.Decoder[Type]) -> Type:
    """Straight into its types. Raises InvalidRequest."""
    refuse_nul(body)
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise InvalidRequest("The body does not have the right form.", errors=[decoding_error(error)]) from None
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"The body is not JSON: {error}.") from None


def refuse_nul(text: bytes) -> None:
    """JSON that would put a NUL into Postgres, which has no such character. Raises InvalidRequest."""
    if b"\\u0000" in text and _NUL.search(text):
        raise InvalidRequest("The NUL character may not stand in any text.")
