"""Every error of every status as RFC 9457 `application/problem+json`."""

import re
from collections.abc import Mapping
from typing import Any

import msgspec
import structlog
from litestar import Response
from litestar.exceptions import HTTPException, ValidationException
from litestar.types import ExceptionHandlersMap

from carteiro.api.access import request_id_of
from carteiro.api.context import AnyRequest
from carteiro.domain.errors import FieldError, InvalidRequest, NotFound, PayloadTooLarge, Problem, Unavailable
from carteiro.services.database import UNREACHABLE

log = structlog.get_logger(__name__)

MEDIA_TYPE = "application/problem+json"
TYPE_BASE = "/docs#"
"""A problem's `type` is a reference to its paragraph on the documentation page."""
RETRY_AFTER_S = 5


class MethodNotAllowed(Problem):
    status = 405
    code = "method-not-allowed"
    title = "This path does not take that method"


class RequestTimeout(Problem):
    status = 408
    code = "request-timeout"
    title = "The body did not come in time"


class UnsupportedMediaType(Problem):
    status = 415
    code = "unsupported-media-type"
    title = "The body has a form that this path does not take"


FOUND_BY_THE_FRAMEWORK: dict[int, tuple[type[Problem], str]] = {
    400: (InvalidRequest, "A parameter is not valid."),
    404: (NotFound, "There is nothing at this path."),
    405: (MethodNotAllowed, "See the Allow header for those it takes."),
    413: (PayloadTooLarge, "The body has more bytes than this path takes."),
}
"""Our problem and our words for what ends a request before a handler is called, by status."""


def problem_response(
    request: AnyRequest,
    *,
    status: int,
    code: str,
    title: str,
    detail: str,
    errors: list[dict[str, Any]] | None = None,
    extra: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response[bytes]:
    body: dict[str, Any] = {
        **(extra or {}),
        "type": TYPE_BASE + code,
        "title": title,
        "status": status,
        "detail": detail,
        "code": code,
        "request_id": request_id_of(request.scope),
    }
    if errors:
        body["errors"] = errors
    return Response(msgspec.json.encode(body), media_type=MEDIA_TYPE, status_code=status, headers=dict(headers or {}))


def _on_problem(request: AnyRequest, problem: Problem) -> Response[bytes]:
    return problem_response(
        request,
        status=problem.status,
        code=problem.code,
        title=problem.title,
        detail=problem.detail,
        errors=[_shown(error) for error in problem.errors],
        extra=problem.extra,
        headers=problem.headers,
    )


def _on_http_exception(request: AnyRequest, exception: HTTPException) -> Response[bytes]:
    if exception.status_code not in FOUND_BY_THE_FRAMEWORK:
        return _on_exception(request, exception)
    problem, detail = FOUND_BY_THE_FRAMEWORK[exception.status_code]
    return problem_response(
        request,
        status=problem.status,
        code=problem.code,
        title=problem.title,
        detail=detail,
        errors=_parameter_errors(exception) if isinstance(exception, ValidationException) else [],
        headers=exception.headers,
    )


def _on_unreachable(request: AnyRequest, exception: Exception) -> Response[bytes]:
    log.warning("database_unreachable", error=type(exception).__name__)
    return _on_problem(request, Unavailable("The database cannot be reached.", retry_after_s=RETRY_AFTER_S))


def _on_exception(request: AnyRequest, exception: Exception) -> Response[bytes]:
    log.error("request_failed", exc_info=exception)
    return problem_response(
        request,
        status=500,
        code=Problem.code,
        title=Problem.title,
        detail="The request failed; its request_id is in our log.",
    )


HANDLERS: ExceptionHandlersMap = {
    Problem: _on_problem,
    HTTPException: _on_http_exception,
    Exception: _on_exception,
    **dict.fromkeys(UNREACHABLE, _on_unreachable),
}


def _shown(error: FieldError) -> dict[str, Any]:
    line = {} if error.line is None else {"line": error.line}
    return {"pointer": error.pointer, **line, "code": error.code, "detail": error.detail}


def _parameter_errors(exception: ValidationException) -> list[dict[str, Any]]:
    """What the framework says about query, path and header parameters, in our words for it."""
    found = exception.extra if isinstance(exception.extra, list) else []
    return [
        {"parameter": str(item["key"]), "code": "invalid", "detail": str(item["message"])}
        for item in found
        if isinstance(item, dict) and "key" in item and "message" in item
    ]


_AT = re.compile(r"^(?P<what>.*?)(?: - at `(?P<path>.+)`)?$", re.DOTALL)
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")


def decoding_error(error: msgspec.ValidationError) -> FieldError:
    """What msgspec says about a body, with its path as a JSON pointer."""
    found = _AT.match(str(error))
    assert found is not None
    steps = [name or index for name, index in _STEP.findall(found["path"] or "")]
    return FieldError("".join(f"/{step}" for step in steps), "invalid", found["what"])
