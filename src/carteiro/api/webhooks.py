"""Where providers report. No key: the token in the path says which service it is, and is as good as one."""

from litestar import Controller, post
from litestar.params import FromPath

from carteiro.api.context import AnyRequest, context_of
from carteiro.api.operations import Operation, Parameter
from carteiro.api.schemas import Alive
from carteiro.domain.errors import NotFound
from carteiro.services.receive import store_payload

BODY_MAX = 5_000_000
"""Bytes."""


class WebhookController(Controller):
    @post(
        "/webhooks/infobip/{token:str}",
        status_code=200,
        request_max_body_size=BODY_MAX,
        opt={
            "operation": Operation(
                id="receiveInfobip",
                summary="Delivery and seen reports of Infobip",
                description="Stored as they come and merged afterwards; one bad item never spoils the others.",
                parameters=(Parameter("token", "path", "The service's webhook token."),),
                raw_body="Infobip's delivery or seen reports.",
                answers={200: (Alive, "Stored.")},
            )
        },
    )
    async def infobip(self, request: AnyRequest, token: FromPath[str]) -> Alive:
        if not await store_payload(context_of(request).pool, "infobip", token, await request.body()):
            raise NotFound("There is no such webhook.")
        return Alive()
