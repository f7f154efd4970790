"""`/api/v1/suppressions`: the contacts that the account must not write to."""

from typing import Annotated, Any, TypeVar

import msgspec
from litestar import Controller, delete, get, post
from litestar.params import FromQuery, QueryParameter

from carteiro.api import pagination
from carteiro.api.bodies import read_json
from carteiro.api.context import ApiRequest, context_of
from carteiro.api.operations import CURSOR, LIMIT, LimitQuery, Operation, Parameter
from carteiro.api.problems import decoding_error
from carteiro.api.schemas import (
    PHONES_MAX,
    Lifting,
    Page,
    Suppressing,
    Suppression,
    SuppressionChange,
    SuppressionCheck,
)
from carteiro.domain.errors import InvalidRequest
from carteiro.domain.suppression import Scope
from carteiro.services import suppression

Body = TypeVar("Body", Suppressing, Lifting)

READ, WRITE = "suppressions:read", "suppressions:write"
# By another name in here: a handler's `scope` is the ASGI scope.
ScopeQuery = Annotated[Scope | None, QueryParameter(name="scope")]


class SuppressionController(Controller):
    path = "/suppressions"

    @post(
        "/",
        status_code=200,
        opt={
            "operation": Operation(
                id="suppressContacts",
                summary="Stop writing to contacts",
                description=f"Up to {PHONES_MAX:,} at once; all of them are put on the list, or none. Their messages, "
                "in batches that there are and in later ones, become `unsent` with code SUPPRESSED when their turn "
                "comes and are refunded; what is on its way already goes. A repeat is harmless.",
                scope=WRITE,
                body=Suppressing,
                example={"phones": ["+5511987654321"], "scope": "all", "reason": "asked at the counter"},
                answers={200: (SuppressionChange, "On the list.")},
            )
        },
    )
    async def suppress(self, request: ApiRequest) -> SuppressionChange:
        body = _decode(await read_json(request), Suppressing)
        contacts = await suppression.suppress(
            context_of(request).pool, request.auth, body.phones, scope=body.scope, reason=body.reason
        )
        return SuppressionChange(contacts)

    @delete(
        "/",
        status_code=200,
        opt={
            "operation": Operation(
                id="liftSuppressions",
                summary="Write to contacts again",
                description="Whoever put them on the list, themselves included: ask them first. Messages that became "
                "`unsent` stay so. A provider that still blocks a contact puts it back with its next refusal.",
                scope=WRITE,
                body=Lifting,
                example={"phones": ["+5511987654321"]},
                answers={200: (SuppressionChange, "Off the list; those that were not on it are not counted.")},
            )
        },
    )
    async def lift(self, request: ApiRequest) -> SuppressionChange:
        body = _decode(await read_json(request), Lifting)
        return SuppressionChange(
            await suppression.lift(context_of(request).pool, request.auth, body.phones, scope=body.scope)
        )

    @get(
        "/",
        opt={
            "operation": Operation(
                id="listSuppressions",
                summary="What is on the list, newest first",
                description="Phones show their last four digits only.",
                scope=READ,
                parameters=(
                    Parameter("scope", "query", "Only those.", {"type": "string", "enum": list(Scope)}),
                    LIMIT,
                    CURSOR,
                ),
                answers={200: (Page[Suppression], "A page of the list.")},
            )
        },
    )
    async def list_suppressions(
        self,
        request: ApiRequest,
        of_scope: ScopeQuery = None,
        limit: LimitQuery = 50,
        cursor: FromQuery[str | None] = None,
    ) -> Page[Any]:
        found = await suppression.read_list(
            context_of(request).pool,
            request.auth.account_id,
            scope=of_scope,
            before_id=pagination.decode(cursor, int),
            limit=limit + 1,
        )
        rows, following = pagination.next_cursor(found, limit, lambda entry: entry.id)
        return Page([Suppression.of(entry) for entry in rows], following)

    @get(
        "/check",
        opt={
            "operation": Operation(
                id="checkSuppression",
                summary="Whether one phone is on the list",
                scope=READ,
                parameters=(
                    Parameter(
                        "phone",
                        "query",
                        "In any usual spelling, with or without the ninth digit. A + is written %2B.",
                        required=True,
                    ),
                ),
                answers={200: (SuppressionCheck, "What is in force on it.")},
            )
        },
    )
    async def check(self, request: ApiRequest, phone: FromQuery[str]) -> SuppressionCheck:
        # A + that was not escaped arrives as a space.
        given = f"+{phone[1:]}" if phone.startswith(" ") else phone
        return SuppressionCheck.of(await suppression.check(context_of(request).pool, request.auth.account_id, given))


def _decode(body: bytes, kind: type[Body]) -> Body:
    """Raises InvalidRequest."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise InvalidRequest("The body does not have the right form.", errors=[decoding_error(error)]) from None
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"The body is not JSON: {error}.") from None
