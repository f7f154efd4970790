"""`/api/v1/batches`: creating batches and reading them."""

import re
from collections.abc import Iterable
from enum import StrEnum
from hashlib import sha256
from typing import Any, TypeVar
from uuid import UUID

import msgspec
from litestar import Controller, Response, get, post
from litestar.params import FromPath, FromQuery

from carteiro.api import pagination
from carteiro.api.context import ApiRequest, context_of
from carteiro.api.operations import CURSOR, LIMIT, LimitQuery, Operation, Parameter
from carteiro.api.problems import UnsupportedMediaType, decoding_error
from carteiro.api.schemas import Batch, Message, Page
from carteiro.domain.errors import (
    CapacityExhausted,
    Conflict,
    Gone,
    IdempotencyKeyReused,
    InsufficientCredits,
    InvalidRequest,
    NotFound,
)
from carteiro.domain.lifecycle import BatchState, MessageState
from carteiro.domain.requests import BatchRequest
from carteiro.services import reading
from carteiro.services.api_keys import Caller
from carteiro.services.create import Creation, Key, create_batch
from carteiro.services.create.refusals import TemplateNotApproved, UnknownTemplate
from carteiro.services.database import Pool

VISIBLE = tuple(state for state in BatchState if state is not BatchState.DRAFT)
BATCH_ID = Parameter("batch_id", "path", "The batch.", {"type": "string", "format": "uuid"})


def one_of(states: Iterable[StrEnum]) -> dict[str, Any]:
    return {"type": "string", "enum": [str(state) for state in states]}


EXAMPLE = {
    "service": "acme-utility",
    "template": {"name": "order_update", "language": "pt_BR"},
    "contacts": [
        {"phone": "+5511987654321", "placeholders": ["Ana", "1042"]},
        {"phone": "+5521987654322", "placeholders": ["Rui", "1043"]},
    ],
    "reference": "orders of Monday",
    "callback_url": "https://example.com/carteiro",
}
KEY_MAX = 255
IDEMPOTENCY_KEY = Parameter(
    "Idempotency-Key",
    "header",
    "Any printable ASCII. The same key with the same body gets the same answer, for as long as the messages are kept.",
    {"type": "string", "minLength": 1, "maxLength": KEY_MAX},
)

_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
"""An escaped NUL, and not an escaped backslash before the letters: Postgres has no such character."""
Body = TypeVar("Body")
_decoder = msgspec.json.Decoder(BatchRequest)


class BatchController(Controller):
    path = "/batches"

    @post(
        "/",
        status_code=202,
        opt={
            "operation": Operation(
                id="createBatch",
                summary="Send a template to many contacts",
                description="Credits for all messages, and today's capacity, are taken at once or the batch is refused "
                "and nothing is taken. A request equal to one of the last minutes, or with the same Idempotency-Key, "
                "is answered with the batch that there is.",
                scope="batches:write",
                body=BatchRequest,
                example=EXAMPLE,
                parameters=(IDEMPOTENCY_KEY,),
                answers={202: (Batch, "Accepted: every contact will end in exactly one state.")},
                headers={
                    "Location": "Where the batch can be read.",
                    "Idempotent-Replayed": "`true` when the batch was there already.",
                },
                problems=(
                    UnknownTemplate,
                    TemplateNotApproved,
                    InsufficientCredits,
                    CapacityExhausted,
                    Conflict,
                    IdempotencyKeyReused,
                ),
            )
        },
    )
    async def create(self, request: ApiRequest) -> Response[Batch]:
        context, caller = context_of(request), request.auth
        body = await read_json(request)
        created = await create_batch(
            context.pool, context.settings, caller, decode(body, _decoder), key=read_key(request, body)
        )
        return await answer_created(context.pool, caller, created)

    @get(
        "/",
        opt={
            "operation": Operation(
                id="listBatches",
                summary="The account's batches, newest first",
                scope="batches:read",
                parameters=(Parameter("status", "query", "Only those.", one_of(VISIBLE)), LIMIT, CURSOR),
                answers={200: (Page[Batch], "A page of batches.")},
            )
        },
    )
    async def list_batches(
        self,
        request: ApiRequest,
        status: FromQuery[BatchState | None] = None,
        limit: LimitQuery = 50,
        cursor: FromQuery[str | None] = None,
    ) -> Page[Any]:
        found = await reading.read_batches(
            context_of(request).pool,
            request.auth.account_id,
            status=status,
            before_id=pagination.decode(cursor, UUID),
            limit=limit + 1,
        )
        rows, following = pagination.next_cursor(found, limit, lambda seen: seen.report.id)
        return Page([Batch.of(seen) for seen in rows], following)

    @get(
        "/{batch_id:str}",
        opt={
            "operation": Operation(
                id="getBatch",
                summary="A batch with its counts, its money and its forecast",
                description="The counts are of one instant and sum to `total`.",
                scope="batches:read",
                parameters=(BATCH_ID,),
                answers={200: (Batch, "The batch.")},
            )
        },
    )
    async def get_batch(self, request: ApiRequest, batch_id: FromPath[str]) -> Batch:
        return Batch.of(
            await reading.read_batch(context_of(request).pool, request.auth.account_id, parse_batch_id(batch_id))
        )

    @get(
        "/{batch_id:str}/messages",
        opt={
            "operation": Operation(
                id="listMessages",
                summary="A batch's messages in order",
                scope="batches:read",
                parameters=(
                    BATCH_ID,
                    Parameter("status", "query", "Only those.", one_of(MessageState)),
                    LIMIT,
                    CURSOR,
                ),
                answers={200: (Page[Message], "A page of messages.")},
                problems=(Gone,),
            )
        },
    )
    async def list_messages(
        self,
        request: ApiRequest,
        batch_id: FromPath[str],
        status: FromQuery[MessageState | None] = None,
        limit: LimitQuery = 50,
        cursor: FromQuery[str | None] = None,
    ) -> Page[Any]:
        id = parse_batch_id(batch_id)
        found = await reading.read_messages(
            context_of(request).pool,
            request.auth.account_id,
            id,
            after_seq=pagination.decode(cursor, int) or 0,
            status=status,
            limit=limit + 1,
        )
        rows, following = pagination.next_cursor(found, limit, lambda listed: listed.seq)
        return Page([Message.of(id, listed) for listed in rows], following)


async def answer_created(pool: Pool, caller: Caller, created: Creation) -> Response[Batch]:
    """The batch, where it can be read, and whether it was there already."""
    seen = await reading.read_batch(pool, caller.account_id, created.batch_id)
    headers = {"Location": f"/api/v1/batches/{created.batch_id}"}
    if created.replayed:
        headers["Idempotent-Replayed"] = "true"
    return Response(Batch.of(seen), headers=headers)


def parse_batch_id(text: str) -> UUID:
    """Raises NotFound: what is no id names no batch."""
    try:
        return UUID(text)
    except ValueError:
        raise NotFound("There is no such batch in this account.") from None


async def read_json(request: ApiRequest) -> bytes:
    """The body, if it says that it is JSON or says nothing. Raises UnsupportedMediaType."""
    media_type = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise UnsupportedMediaType(f"Send application/json, not {media_type}.")
    return await request.body()


def read_key(request: ApiRequest, body: bytes, scope: str = "") -> Key | None:
    """The Idempotency-Key that came with a body. Raises InvalidRequest."""
    key = request.headers.get("idempotency-key")
    if key is None:
        return None
    if not (0 < len(key) <= KEY_MAX and key.isascii() and key.isprintable()):
        raise InvalidRequest(f"Idempotency-Key is 1 to {KEY_MAX} printable ASCII characters.")
    return Key(key, sha256(body).digest(), scope)


def decode(body: bytes, decoder: msgspec.json.Decoder[Body]) -> Body:
    """Straight into its types. Raises InvalidRequest."""
    if b"\\u0000" in body and _NUL.search(body):
        raise InvalidRequest("The NUL character may not stand in any text.")
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise InvalidRequest("The body does not have the right form.", errors=[decoding_error(error)]) from None
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"The body is not JSON: {error}.") from None
