"""`/api/v1/batches`: creating batches and reading them."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Any
from uuid import UUID

from litestar import Controller, Response, get, post
from litestar.params import FromPath, FromQuery

from carteiro.api import pagination
from carteiro.api.answers import answer_created
from carteiro.api.bodies import KEY_MAX
from carteiro.api.context import ApiRequest, context_of
from carteiro.api.operations import CURSOR, LIMIT, LimitQuery, Operation, Parameter
from carteiro.api.schemas import Batch, Message, Page
from carteiro.api.uploads import CSV, NDJSON, receive_batch
from carteiro.domain.errors import (
    CapacityExhausted,
    Conflict,
    Gone,
    IdempotencyKeyReused,
    InsufficientCredits,
    NotFound,
)
from carteiro.domain.lifecycle import BatchState, MessageState
from carteiro.domain.requests import BatchRequest
from carteiro.services import reading
from carteiro.services.api_keys import Caller
from carteiro.services.create import Creation
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
NDJSON_TOLD = (
    "The first line is the request without `contacts`, each line after it one contact. Blank lines are passed over."
)
CSV_TOLD = (
    "UTF-8, separated by commas or semicolons. The first line names the columns: `phone`, `1`, `2` ... for the "
    "placeholders, `media_url`, `filename`, `header_text`, `button_1`, `button_2` ... No line breaks inside quotes."
)
IDEMPOTENCY_KEY = Parameter(
    "Idempotency-Key",
    "header",
    "Any printable ASCII. The same key with the same body gets the same answer, for as long as the messages are kept.",
    {"type": "string", "minLength": 1, "maxLength": KEY_MAX},
)


class BatchController(Controller):
    path = "/batches"

    @post(
        "/",
        status_code=202,
        request_max_body_size=None,
        opt={
            "operation": Operation(
                id="createBatch",
                summary="Send a template to many contacts",
                description="Credits for all messages, and today's capacity, are taken at once or the batch is refused "
                "and nothing is taken. A request equal to one of the last minutes, or with the same Idempotency-Key, "
                "is answered with the batch that there is. Up to 100,000 contacts as JSON; up to 1,000,000 streamed, "
                "where `errors[].line` names the line that is wrong. Content-Encoding gzip is taken everywhere.",
                scope="batches:write",
                body=BatchRequest,
                example=EXAMPLE,
                streams={NDJSON: NDJSON_TOLD, CSV: CSV_TOLD},
                parameters=(
                    Parameter("request", "query", "Only with CSV: the request without `contacts`, as JSON."),
                    IDEMPOTENCY_KEY,
                ),
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
        created = await receive_batch(request)
        return await answer_batch(context_of(request).pool, request.auth, created)

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


async def answer_batch(pool: Pool, caller: Caller, created: Creation) -> Response[Batch]:
    """The batch, where it can be read, and whether it was there already."""
    seen = await reading.read_batch(pool, caller.account_id, created.batch_id)
    return answer_created(Batch.of(seen), f"/api/v1/batches/{created.batch_id}", replayed=created.replayed)


def parse_batch_id(text: str) -> UUID:
    """Raises NotFound: what is no id names no batch."""
    try:
        return UUID(text)
    except ValueError:
        raise NotFound("There is no such batch in this account.") from None
