"""What a route says about itself: the scope that guards it and its part of the OpenAPI document."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from litestar.params import QueryParameter

from carteiro.api.problems import RequestTimeout, UnsupportedMediaType
from carteiro.domain.errors import (
    Forbidden,
    InvalidRequest,
    NotFound,
    PayloadTooLarge,
    Problem,
    Unauthorized,
    Unavailable,
)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A query, path or header parameter."""

    name: str
    place: str
    """query, path or header."""
    description: str
    schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "string"})
    required: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """The documentation of one route; `scope` is enforced, the rest is told."""

    id: str
    summary: str
    description: str = ""
    scope: str | None = None
    """None: no key is needed."""
    body: type | None = None
    """The type of the request's JSON."""
    body_required: bool = True
    """False: no body means the defaults."""
    streams: Mapping[str, str] = field(default_factory=dict)
    """Other media types that the body may have, with what they hold."""
    raw_body: str | None = None
    """What the body is, where it is not ours to describe."""
    answers: Mapping[int, tuple[type | None, str]]
    """Status -> (type of the JSON, description)."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers of the answer, with their meaning."""
    parameters: tuple[Parameter, ...] = ()
    problems: tuple[type[Problem], ...] = ()
    example: Mapping[str, Any] | None = None

    def all_problems(self) -> tuple[type[Problem], ...]:
        """The ones of every route with a key, body or parameters, and its own."""
        common: list[type[Problem]] = [Problem, Unavailable]
        if self.scope:
            common += [Unauthorized, Forbidden]
        if self.body or self.parameters:
            common.append(InvalidRequest)
        if self.body or self.raw_body:
            common.append(PayloadTooLarge)
        if self.body:
            common.append(UnsupportedMediaType)
        if self.streams:
            common.append(RequestTimeout)
        if any(parameter.place == "path" for parameter in self.parameters):
            common.append(NotFound)
        return tuple(dict.fromkeys([*common, *self.problems]))


LimitQuery = Annotated[int, QueryParameter(ge=1, le=200)]
LIMIT = Parameter(
    "limit", "query", "Items in a page.", {"type": "integer", "minimum": 1, "maximum": 200, "default": 50}
)
CURSOR = Parameter("cursor", "query", "`next_cursor` of the page before.")
