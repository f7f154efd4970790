"""`/api/v1/broadcasts`: a template to everybody in a group, and what came of it."""

from typing import Any

import msgspec
from litestar import Controller, Response, get, post
from litestar.params import FromPath, FromQuery

from carteiro.api import pagination
from carteiro.api.answers import answer_created
from carteiro.api.batches import IDEMPOTENCY_KEY, one_of
from carteiro.api.bodies import decode, read_json, read_key
from carteiro.api.broadcast_schemas import Broadcast, PostedBroadcast, Recipient
from carteiro.api.context import ApiRequest, context_of
from carteiro.api.operations import CURSOR, LIMIT, LimitQuery, Operation, Parameter
from carteiro.api.schemas import Page
from carteiro.domain.broadcasts import BroadcastRequest, RecipientStatus
from carteiro.domain.errors import Conflict, Gone, IdempotencyKeyReused, InsufficientCredits
from carteiro.services import broadcast
from carteiro.services.create.refusals import TemplateNotApproved, UnknownTemplate

SEND, READ = "broadcast:send", "broadcast:read"
BROADCAST_ID = Parameter("broadcast_id", "path", "The broadcast's `broadcast_id` or `public_id`.")
EXAMPLE = {
    "group_id": "group-1",
    "template_name": "group_notice",
    "language": "pt_BR",
    "variables": {"1": "Saturday, 9 h"},
}

_decoder = msgspec.json.Decoder(BroadcastRequest)


class BroadcastController(Controller):
    path = "/broadcasts"

    @post(
        "/",
        status_code=202,
        opt={
            "operation": Operation(
                id="postBroadcast",
                summary="Send a template to everybody in a group",
                description="The API key's owner must be an active leader of the group's team, or own the group. "
                "Recipients are the active members of this moment with a usable phone, each phone once. What the daily "
                "capacity does not take at once waits for it. An Idempotency-Key belongs to the key's owner.",
                scope=SEND,
                body=BroadcastRequest,
                example=EXAMPLE,
                parameters=(IDEMPOTENCY_KEY,),
                answers={202: (PostedBroadcast, "Accepted: every recipient will end in exactly one state.")},
                headers={
                    "Location": "Where the broadcast can be read.",
                    "Idempotent-Replayed": "`true` when the broadcast was there already.",
                },
                problems=(UnknownTemplate, TemplateNotApproved, InsufficientCredits, Conflict, IdempotencyKeyReused),
            )
        },
    )
    async def post_broadcast(self, request: ApiRequest) -> Response[PostedBroadcast]:
        context, caller = context_of(request), request.auth
        body = await read_json(request)
        posted = await broadcast.post_broadcast(
            context.pool,
            context.settings,
            context.directory,
            caller,
            decode(body, _decoder),
            key=read_key(request, body, scope=f"broadcast:{caller.owner_id or ''}"),
        )
        path = f"/api/v1/broadcasts/{posted.batch_id}"
        return answer_created(PostedBroadcast.of(posted), path, replayed=posted.replayed)

    @get(
        "/{broadcast_id:str}",
        opt={
            "operation": Operation(
                id="getBroadcast",
                summary="How far a broadcast is",
                description="A key with `broadcast:send` may read as well. Each owner sees its own broadcasts.",
                scope=READ,
                parameters=(BROADCAST_ID,),
                answers={200: (Broadcast, "The broadcast; its counts are of one instant.")},
            )
        },
    )
    async def get_broadcast(self, request: ApiRequest, broadcast_id: FromPath[str]) -> Broadcast:
        return Broadcast.of(await broadcast.read_broadcast(context_of(request).pool, request.auth, broadcast_id))

    @get(
        "/{broadcast_id:str}/recipients",
        opt={
            "operation": Operation(
                id="listRecipients",
                summary="A broadcast's recipients in order",
                description="By how far each is now: one that was read is not among the `delivered`.",
                scope=READ,
                parameters=(
                    BROADCAST_ID,
                    Parameter("status", "query", "Only those.", one_of(RecipientStatus)),
                    LIMIT,
                    CURSOR,
                ),
                answers={200: (Page[Recipient], "A page of recipients.")},
                problems=(Gone,),
            )
        },
    )
    async def list_recipients(
        self,
        request: ApiRequest,
        broadcast_id: FromPath[str],
        status: FromQuery[RecipientStatus | None] = None,
        limit: LimitQuery = 50,
        cursor: FromQuery[str | None] = None,
    ) -> Page[Any]:
        found = await broadcast.read_recipients(
            context_of(request).pool,
            request.auth,
            broadcast_id,
            after_seq=pagination.decode(cursor, int) or 0,
            status=status,
            limit=limit + 1,
        )
        rows, following = pagination.next_cursor(found, limit, lambda listed: listed.seq)
        return Page([Recipient.of(listed) for listed in rows], following)
