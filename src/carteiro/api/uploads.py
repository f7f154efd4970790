"""The three forms in which a batch is posted: whole as JSON, or with its contacts streamed as NDJSON or CSV."""

from collections.abc import AsyncIterator, Callable
from functools import partial

import msgspec

from carteiro.api.bodies import JSON, Body, decode, media_type_of, read_key_name, refuse_nul
from carteiro.api.context import UPLOADS_OF_ACCOUNT, ApiRequest, context_of
from carteiro.api.lines import Block, CsvReader, LineReader, read_ndjson
from carteiro.api.problems import UnsupportedMediaType, decoding_error
from carteiro.domain.errors import FieldError, InvalidRequest, Unavailable
from carteiro.domain.requests import BatchRequest, BatchTerms
from carteiro.services.create import Creation, Key, Lines, Upload, create_batch, create_streamed

NDJSON, CSV = "application/x-ndjson", "text/csv"
WHOLE_MAX = 64 * 2**20
"""Bytes, decompressed: a hundred thousand contacts take about a tenth of it."""
STREAM_MAX = 2**30
"""Bytes, decompressed: a million contacts take about a tenth of it."""

_decoder = msgspec.json.Decoder(BatchRequest)
_decode_terms = msgspec.json.Decoder(BatchTerms).decode


async def receive_batch(request: ApiRequest) -> Creation:
    """Read the body in the form that its Content-Type names, and create its batch. Raises a Problem."""
    key, media_type = read_key_name(request), media_type_of(request)
    receive = {JSON: _receive_whole, NDJSON: _receive_ndjson, CSV: _receive_csv}.get(media_type)
    if receive is None:
        raise UnsupportedMediaType(f"Send {JSON}, {NDJSON} or {CSV}, not {media_type}.")
    return await receive(request, key)


async def _receive_whole(request: ApiRequest, key: str | None) -> Creation:
    context, body = context_of(request), Body(request, WHOLE_MAX)
    asked = decode(await body.read(), _decoder)
    hashed = Key(key, body.digest()) if key is not None else None
    return await create_batch(context.pool, context.settings, request.auth, asked, key=hashed)


async def _receive_ndjson(request: ApiRequest, key: str | None) -> Creation:
    body = Body(request, STREAM_MAX)
    lines = LineReader(body.pieces())
    first = await lines.first()
    told = "The first line is the request without its contacts; each line after it is one contact."
    if not first:
        raise InvalidRequest(told, errors=[FieldError("", "terms-missing", told, 1)])
    terms = _read_terms(first, told, line=1)
    return await _create(request, key, body, terms, lines, read_ndjson)


async def _receive_csv(request: ApiRequest, key: str | None) -> Creation:
    given = request.query_params.get("request")
    told = "The request without its contacts goes into the query parameter `request`, as JSON."
    if given is None:
        raise InvalidRequest(told)
    body = Body(request, STREAM_MAX, elsewhere=given.encode())
    terms = _read_terms(given.encode(), told, line=None)
    lines = LineReader(body.pieces())
    return await _create(request, key, body, terms, lines, CsvReader(await lines.first()))


async def _create(
    request: ApiRequest,
    key: str | None,
    body: Body,
    terms: BatchTerms,
    lines: LineReader,
    read: Callable[[Block], Lines],
) -> Creation:
    context, account_id = context_of(request), request.auth.account_id
    if context.uploads.locked() or context.uploading[account_id] >= UPLOADS_OF_ACCOUNT:
        raise Unavailable("Enough batches are being streamed to this process.", retry_after_s=5)

    async def parts() -> AsyncIterator[Callable[[], Lines]]:
        async for block in lines.blocks():
            yield partial(read, block)

    async with context.uploads:
        context.uploading[account_id] += 1
        try:
            upload = Upload(terms, parts(), key, body.digest)
            return await create_streamed(context.pool, context.settings, request.auth, upload)
        finally:
            context.uploading[account_id] -= 1


def _read_terms(text: bytes, told: str, *, line: int | None) -> BatchTerms:
    """Raises InvalidRequest; `told` says what belongs here."""
    refuse_nul(text)
    try:
        return _decode_terms(text)
    except msgspec.ValidationError as error:
        wrong = decoding_error(error)
        raise InvalidRequest(told, errors=[FieldError(wrong.pointer, wrong.code, wrong.detail, line)]) from None
    except msgspec.DecodeError as error:
        raise InvalidRequest(told, errors=[FieldError("", "line-malformed", f"{error}.", line)]) from None
