"""Bearer API keys and their scopes."""

from typing import Any

from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler
from litestar.middleware import AbstractAuthenticationMiddleware, AuthenticationResult

from carteiro.api.context import context_of
from carteiro.domain.errors import Forbidden, Unauthorized
from carteiro.services.api_keys import Caller, authenticate


class KeyAuthentication(AbstractAuthenticationMiddleware):
    """Checks the key before anything of the body is read. Raises Unauthorized."""

    async def authenticate_request(self, connection: ASGIConnection[Any, Any, Any, Any]) -> AuthenticationResult:
        scheme, _, key = connection.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not key:
            raise Unauthorized("Send the API key as `Authorization: Bearer carteiro_live_...`.")
        caller = await authenticate(context_of(connection).pool, key.strip())
        return AuthenticationResult(user=caller, auth=caller)


def require_scope(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
    """Guard of every authenticated route: the key must have the scope that the route's operation names."""
    caller: Caller = connection.auth
    scope = handler.opt["operation"].scope
    if not caller.may(scope):
        raise Forbidden(f"This API key lacks the scope {scope}.", extra={"required_scope": scope})
