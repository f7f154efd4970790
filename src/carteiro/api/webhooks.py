"""Where providers report. No key: Infobip's path has a token that says which service it is, and is as good as one; Meta
signs what it posts.
"""

from litestar import Controller, MediaType, get, post
from litestar.params import FromPath

from carteiro.api.context import AnyRequest, context_of
from carteiro.api.operations import Operation, Parameter
from carteiro.api.schemas import Alive
from carteiro.domain.errors import NotFound, NotGenuine
from carteiro.domain.signatures import is_signed, is_token

BODY_MAX = 5_000_000
"""Bytes. Meta posts 3 MB at most."""
META_PATH = "/webhooks/whatsapp-status"
SIGNATURE = "X-Hub-Signature-256"


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
        if not await context_of(request).intake.store_payload("infobip", token, await request.body()):
            raise NotFound("There is no such webhook.")
        return Alive()

    @get(
        META_PATH,
        media_type=MediaType.TEXT,
        opt={
            "operation": Operation(
                id="verifyMeta",
                summary="Meta's check when the webhook is set up",
                parameters=(
                    Parameter("hub.mode", "query", "`subscribe`."),
                    Parameter("hub.challenge", "query", "What is answered."),
                    Parameter("hub.verify_token", "query", "The token of our settings."),
                ),
                answers={200: (None, "The challenge, as it came.")},
                problems=(NotGenuine,),
            )
        },
    )
    async def verify_meta(self, request: AnyRequest) -> str:
        given = request.query_params
        token = context_of(request).settings.meta_verify_token
        if given.get("hub.mode") != "subscribe" or not is_token(given.get("hub.verify_token"), token):
            raise NotGenuine("hub.mode must be subscribe, and hub.verify_token the one of our settings.")
        return str(given.get("hub.challenge", ""))

    @post(
        META_PATH,
        status_code=200,
        request_max_body_size=BODY_MAX,
        opt={
            "operation": Operation(
                id="receiveMeta",
                summary="Receipts and notices of Meta",
                description="Stored as they come and applied afterwards; one bad item never spoils the others. Nothing "
                "is stored without the signature of a secret that we know, made of the bytes as they came.",
                parameters=(Parameter(SIGNATURE, "header", "`sha256=` and the HMAC in hex.", required=True),),
                raw_body="Entries with changes, of any number and account of the app, up to a thousand updates.",
                answers={200: (Alive, "Stored.")},
                problems=(NotGenuine,),
            )
        },
    )
    async def meta(self, request: AnyRequest) -> Alive:
        context, body = context_of(request), await request.body()
        if not is_signed(body, request.headers.get(SIGNATURE), context.settings.meta_app_secrets):
            raise NotGenuine(f"{SIGNATURE} is not the HMAC-SHA256 of the body under one of our app secrets.")
        await context.intake.store_posted("meta", body)
        return Alive()
