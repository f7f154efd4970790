"""For whoever runs the process: is it alive, can it serve."""

from litestar import Controller, get

from carteiro.api.context import AnyRequest, context_of
from carteiro.api.operations import Operation
from carteiro.api.problems import RETRY_AFTER_S
from carteiro.api.schemas import Alive
from carteiro.domain.errors import Unavailable
from carteiro.services.database import find_obstacle


def _liveness(id: str) -> Operation:
    return Operation(
        id=id,
        summary="The process is alive",
        description="Says nothing about the database: a restart would not mend that.",
        answers={200: (Alive, "It is.")},
    )


class HealthController(Controller):
    @get("/health", opt={"operation": _liveness("getHealth")})
    async def health(self) -> Alive:
        return Alive()

    @get("/livez", opt={"operation": _liveness("getLiveness")})
    async def alive(self) -> Alive:
        return Alive()

    @get(
        "/readyz",
        opt={
            "operation": Operation(
                id="getReadiness",
                summary="Requests can be served",
                description="The database is reachable and at this release's schema.",
                answers={200: (Alive, "They can.")},
            )
        },
    )
    async def ready(self, request: AnyRequest) -> Alive:
        context = context_of(request)
        obstacle = await find_obstacle(context.pool, context.revision)
        if obstacle:
            raise Unavailable(obstacle, retry_after_s=RETRY_AFTER_S)
        return Alive()
