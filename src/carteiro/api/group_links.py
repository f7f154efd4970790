"""`/api/v1/group-links` and `/api/v1/sendreminder`: one template to one person."""

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

import msgspec
from litestar import Controller, Response, get, post
from litestar.params import FromPath, FromQuery, QueryParameter

from carteiro.api import pagination
from carteiro.api.answers import answer_created
from carteiro.api.batches import parse_batch_id
from carteiro.api.bodies import decode, read_json
from carteiro.api.context import ApiRequest, context_of
from carteiro.api.operations import CURSOR, LIMIT, LimitQuery, Operation, Parameter
from carteiro.api.schemas import Page, Template
from carteiro.domain.errors import Conflict, Gone, InsufficientCredits, InvalidRequest
from carteiro.domain.group_links import GroupLinkRequest, LinkState, ReminderRequest
from carteiro.services.create.refusals import TemplateNotApproved, UnknownTemplate
from carteiro.services.group_links.place import ReferenceReused, post_link
from carteiro.services.group_links.reading import LinkView, read_link, read_links
from carteiro.services.group_links.reminder import ReminderNotSent

SCOPE, READING = "group-link:send", "group-link:read"
LINK_ID = Parameter("link_id", "path", "The group link or reminder.", {"type": "string", "format": "uuid"})
REFERENCE = Parameter("reference", "query", "Only the one that has it.", {"type": "string", "minLength": 1})
ReferenceQuery = Annotated[str | None, QueryParameter(min_length=1, max_length=255)]
EXAMPLE = {
    "flow": "personal",
    "phone": "+5511987654321",
    "name": "Ana",
    "group_link": "https://example.com/AbCdEfGh",
    "template": {"name": "group_invitation", "language": "pt_BR"},
    "delay_ms": 60_000,
    "max_attempts": 5,
    "reference": "enrolment-1042",
}
_reminder_decoder = msgspec.json.Decoder(ReminderRequest)
_link_decoder = msgspec.json.Decoder(GroupLinkRequest)


class GroupLink(msgspec.Struct):
    """A group link or reminder. Its name and link are not shown again."""

    id: UUID
    """Also of its batch."""
    status: str
    """`pending`, `processing` (being sent, or its outcome is being found out), `sent` (the provider took it) or
    `failed`.
    """
    available_at: datetime | None
    """When it is next due. null while it is being sent, and once it is over."""
    door: str
    """`group_link`, or `reminder`: sent by the request that made it."""
    flow: str
    service: str
    template: Template
    reference: str | None
    attempts: int
    """Calls that certainly did not send."""
    max_attempts: int | None
    code: str | None
    """Of the last call that failed, or of what ended it."""
    detail: str | None
    created_at: datetime
    sent_at: datetime | None

    @classmethod
    def of(cls, seen: LinkView) -> "GroupLink":
        row = seen.row
        return cls(
            id=row.id,
            status=seen.state,
            available_at=row.available_at,
            door=row.door,
            flow=row.flow,
            service=row.service_id,
            template=Template(row.template_name, row.template_language),
            reference=row.reference,
            attempts=row.attempts,
            max_attempts=row.max_attempts,
            code=seen.code,
            detail=seen.detail,
            created_at=row.created_at,
            sent_at=row.sent_at,
        )


class GroupLinkController(Controller):
    path = "/group-links"

    @post(
        "/",
        status_code=202,
        opt={
            "operation": Operation(
                id="createGroupLink",
                summary="Send a group's link to one person, later or now",
                description="It goes before bulk. A call that certainly did not leave is tried again, up to "
                "`max_attempts`. The same `reference` twice is one send: the second answer is about the first.",
                scope=SCOPE,
                body=GroupLinkRequest,
                example=EXAMPLE,
                answers={202: (GroupLink, "Accepted.")},
                headers={
                    "Location": "Where it can be read.",
                    "Idempotent-Replayed": "`true` when the reference was there already.",
                },
                problems=(UnknownTemplate, TemplateNotApproved, InsufficientCredits, Conflict, Gone, ReferenceReused),
            )
        },
    )
    async def create(self, request: ApiRequest) -> Response[GroupLink]:
        context, caller = context_of(request), request.auth
        body = decode(await read_json(request), _link_decoder)
        created = await post_link(context.pool, context.settings, caller, body)
        seen = await read_link(context.pool, caller.account_id, created.batch_id)
        return answer(seen, replayed=created.replayed, status=202)

    @get(
        "/",
        opt={
            "operation": Operation(
                id="listGroupLinks",
                summary="The account's group links and reminders, newest first",
                scope=READING,
                parameters=(REFERENCE, LIMIT, CURSOR),
                answers={200: (Page[GroupLink], "A page of them.")},
            )
        },
    )
    async def list_links(
        self,
        request: ApiRequest,
        reference: ReferenceQuery = None,
        limit: LimitQuery = 50,
        cursor: FromQuery[str | None] = None,
    ) -> Page[Any]:
        if reference is not None and "\0" in reference:
            raise InvalidRequest("The NUL character may not stand in any text.")
        found = await read_links(
            context_of(request).pool,
            request.auth.account_id,
            reference=reference,
            before_id=pagination.decode(cursor, UUID),
            limit=limit + 1,
        )
        rows, following = pagination.next_cursor(found, limit, lambda seen: seen.row.id)
        return Page([GroupLink.of(seen) for seen in rows], following)

    @get(
        "/{link_id:str}",
        opt={
            "operation": Operation(
                id="getGroupLink",
                summary="A group link or reminder, and what became of it",
                scope=READING,
                parameters=(LINK_ID,),
                answers={200: (GroupLink, "The group link.")},
                problems=(Gone,),
            )
        },
    )
    async def get_link(self, request: ApiRequest, link_id: FromPath[str]) -> GroupLink:
        return GroupLink.of(await read_link(context_of(request).pool, request.auth.account_id, parse_batch_id(link_id)))


class ReminderController(Controller):
    path = "/sendreminder"

    @post(
        "/",
        status_code=200,
        opt={
            "operation": Operation(
                id="sendReminder",
                summary="Send a group's link to one person, at once",
                description="Answered with the outcome, within `CARTEIRO_REMINDER_DEADLINE_S`, under the limits of all "
                "others. After 503 nothing was sent and nothing will be: the same request, `reference` "
                "included, may be made again. After 202 it may have been sent: read it, and do not repeat it under "
                "another reference. The same `reference` twice is one send: the second answer is about the first.",
                scope=SCOPE,
                body=ReminderRequest,
                example={name: value for name, value in EXAMPLE.items() if name not in ("delay_ms", "max_attempts")},
                answers={
                    200: (GroupLink, "Its outcome: `sent`, or `failed` with a `code` when it was refused."),
                    202: (GroupLink, "Nobody knows yet whether it was sent: it is being found out."),
                },
                headers={
                    "Location": "Where it can be read.",
                    "Idempotent-Replayed": "`true` when the reference was there already.",
                },
                problems=(
                    UnknownTemplate,
                    TemplateNotApproved,
                    InsufficientCredits,
                    Conflict,
                    Gone,
                    ReferenceReused,
                    ReminderNotSent,
                ),
            )
        },
    )
    async def send(self, request: ApiRequest) -> Response[GroupLink]:
        body = decode(await read_json(request), _reminder_decoder)
        reminded = await context_of(request).reminders.send(request.auth, body)
        known = reminded.seen.state in (LinkState.SENT, LinkState.FAILED)
        return answer(reminded.seen, replayed=reminded.replayed, status=200 if known else 202)


def answer(seen: LinkView, *, replayed: bool, status: int) -> Response[GroupLink]:
    path = f"/api/v1/group-links/{seen.row.id}"
    return answer_created(GroupLink.of(seen), path, replayed=replayed, status=status)
