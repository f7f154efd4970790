"""`/api/v1/batches/{batch_id}/...`: pausing, resuming, cancelling, moderating, rescheduling and retrying a batch."""

from typing import TypeVar

import msgspec
from litestar import Controller, Response, post
from litestar.params import FromPath

from carteiro.api.batches import BATCH_ID, answer_batch, parse_batch_id
from carteiro.api.bodies import read_json
from carteiro.api.context import ApiRequest, context_of
from carteiro.api.operations import Operation
from carteiro.api.problems import decoding_error
from carteiro.api.schemas import Batch, HaltedBatch, Reason, Rejection, Schedule
from carteiro.domain.errors import (
    CapacityExhausted,
    Conflict,
    Gone,
    IllegalTransition,
    InsufficientCredits,
    InvalidRequest,
)
from carteiro.services import control
from carteiro.services.create import retry_failed
from carteiro.services.create.refusals import NothingToRetry, NotSettled, TemplateNotUsable

Body = TypeVar("Body", Reason, Rejection, Schedule)

SCOPE = "batches:write"
REPEATED = "A repeat is harmless: it is answered with the batch as it is."


class ControlController(Controller):
    path = "/batches/{batch_id:str}"

    @post(
        "/pause",
        status_code=200,
        opt={
            "operation": Operation(
                id="pauseBatch",
                summary="Stop sending a batch for now",
                description="Answered once no further call can start, within about a second; what had left before is "
                f"counted in `already_on_their_way`. Its capacity stays reserved for a day. {REPEATED}",
                scope=SCOPE,
                body=Reason,
                body_required=False,
                example={"reason": "wrong template"},
                parameters=(BATCH_ID,),
                answers={200: (HaltedBatch, "Paused: no call starts after this answer.")},
                problems=(IllegalTransition,),
            )
        },
    )
    async def pause(self, request: ApiRequest, batch_id: FromPath[str]) -> HaltedBatch:
        context = context_of(request)
        id, body = parse_batch_id(batch_id), await read_optional(request)
        return HaltedBatch.of_halted(
            await control.pause_batch(context.pool, context.settings, request.auth, id, reason=body.reason)
        )

    @post(
        "/resume",
        status_code=200,
        opt={
            "operation": Operation(
                id="resumeBatch",
                summary="Go on sending a paused batch",
                description=REPEATED,
                scope=SCOPE,
                body=Reason,
                body_required=False,
                parameters=(BATCH_ID,),
                answers={200: (Batch, "It is being sent again.")},
                problems=(IllegalTransition,),
            )
        },
    )
    async def resume(self, request: ApiRequest, batch_id: FromPath[str]) -> Batch:
        id, body = parse_batch_id(batch_id), await read_optional(request)
        return Batch.of(
            await control.resume_batch(context_of(request).pool, request.auth, id, reason=body.reason),
        )

    @post(
        "/cancel",
        status_code=200,
        opt={
            "operation": Operation(
                id="cancelBatch",
                summary="End a batch; what has not left is never sent",
                description="Answered once no further call can start, within about a second; what had left before is "
                "counted in `already_on_their_way`. Messages that have not left become `unsent` (of a large batch over "
                "the next minute) and are refunded when the batch is settled: once the outcome of all that had left is "
                f"known. {REPEATED}",
                scope=SCOPE,
                body=Reason,
                body_required=False,
                example={"reason": "ordered twice"},
                parameters=(BATCH_ID,),
                answers={200: (HaltedBatch, "Cancelled: no call starts after this answer.")},
                problems=(IllegalTransition,),
            )
        },
    )
    async def cancel(self, request: ApiRequest, batch_id: FromPath[str]) -> HaltedBatch:
        context = context_of(request)
        id, body = parse_batch_id(batch_id), await read_optional(request)
        return HaltedBatch.of_halted(
            await control.cancel_batch(context.pool, context.settings, request.auth, id, reason=body.reason)
        )

    @post(
        "/approve",
        status_code=200,
        opt={
            "operation": Operation(
                id="approveBatch",
                summary="Let a batch out of moderation",
                description=f"It is sent at once, or at its time if it is scheduled. {REPEATED}",
                scope=SCOPE,
                body=Reason,
                body_required=False,
                parameters=(BATCH_ID,),
                answers={200: (Batch, "Approved.")},
                problems=(IllegalTransition,),
            )
        },
    )
    async def approve(self, request: ApiRequest, batch_id: FromPath[str]) -> Batch:
        id, body = parse_batch_id(batch_id), await read_optional(request)
        return Batch.of(
            await control.approve_batch(context_of(request).pool, request.auth, id, reason=body.reason),
        )

    @post(
        "/reject",
        status_code=200,
        opt={
            "operation": Operation(
                id="rejectBatch",
                summary="End a batch that waits for moderation",
                description=f"All of it is refunded. {REPEATED}",
                scope=SCOPE,
                body=Rejection,
                example={"reason": "the text promises a discount"},
                parameters=(BATCH_ID,),
                answers={200: (Batch, "Rejected: its status is `cancelled`.")},
                problems=(IllegalTransition,),
            )
        },
    )
    async def reject(self, request: ApiRequest, batch_id: FromPath[str]) -> Batch:
        context = context_of(request)
        id, body = parse_batch_id(batch_id), decode(await read_json(request), Rejection)
        return Batch.of(
            await control.reject_batch(context.pool, context.settings, request.auth, id, reason=body.reason)
        )

    @post(
        "/reschedule",
        status_code=200,
        opt={
            "operation": Operation(
                id="rescheduleBatch",
                summary="Set when a batch that has not begun is sent",
                description=f"Capacity that it had reserved is released if it is to wait. {REPEATED}",
                scope=SCOPE,
                body=Schedule,
                example={"scheduled_at": "2027-03-01T09:00:00-03:00"},
                parameters=(BATCH_ID,),
                answers={200: (Batch, "Scheduled.")},
                problems=(IllegalTransition,),
            )
        },
    )
    async def reschedule(self, request: ApiRequest, batch_id: FromPath[str]) -> Batch:
        context = context_of(request)
        id, body = parse_batch_id(batch_id), decode(await read_json(request), Schedule)
        return Batch.of(
            await control.reschedule_batch(
                context.pool, context.settings, request.auth, id, scheduled_at=body.scheduled_at
            )
        )

    @post(
        "/retry-failed",
        status_code=202,
        opt={
            "operation": Operation(
                id="retryFailedBatch",
                summary="Send the failed messages of a settled batch again",
                description="As a batch of its own, with its own credits and capacity: template, header, reference, "
                "`callback_url`, `on_capacity`, `max_attempts` and `follow_up` are the parent's, and an equal request "
                "does not stand in its way. Left out are messages whose outcome is unknown (`OUTCOME_UNKNOWN`) and "
                "contacts who were erased; suppressed contacts are not sent to. A batch is retried once: a repeat is "
                "answered with the same batch, and what fails of that is retried on it.",
                scope=SCOPE,
                parameters=(BATCH_ID,),
                answers={202: (Batch, "Accepted: `parent_batch_id` names the batch that it retries.")},
                headers={
                    "Location": "Where the new batch can be read.",
                    "Idempotent-Replayed": "`true` when the batch had been retried already.",
                },
                problems=(
                    NotSettled,
                    NothingToRetry,
                    TemplateNotUsable,
                    Conflict,
                    Gone,
                    InsufficientCredits,
                    CapacityExhausted,
                ),
            )
        },
    )
    async def retry(self, request: ApiRequest, batch_id: FromPath[str]) -> Response[Batch]:
        context, caller = context_of(request), request.auth
        created = await retry_failed(context.pool, context.settings, caller, parse_batch_id(batch_id))
        return await answer_batch(context.pool, caller, created)


async def read_optional(request: ApiRequest) -> Reason:
    """The body, or its defaults where there is none."""
    body = await read_json(request)
    return decode(body, Reason) if body else Reason()


def decode(body: bytes, kind: type[Body]) -> Body:
    """Raises InvalidRequest."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise InvalidRequest("The body does not have the right form.", errors=[decoding_error(error)]) from None
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"The body is not JSON: {error}.") from None
