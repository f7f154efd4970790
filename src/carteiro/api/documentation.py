"""The OpenAPI document, and a page that shows it without loading anything from elsewhere."""

import asyncio
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec
from jinja2 import Environment, StrictUndefined
from litestar import Controller, Response, get

from carteiro.api.context import AnyRequest
from carteiro.api.openapi import build_document
from carteiro.domain.errors import Problem


class DocumentationController(Controller):
    @get("/openapi.json")
    async def document(self, request: AnyRequest) -> Response[bytes]:
        body = msgspec.json.encode(await _document(request))
        return Response(body, media_type="application/vnd.oai.openapi+json;version=3.1")

    @get("/docs")
    async def page(self, request: AnyRequest) -> Response[str]:
        return Response(
            render_page(await _document(request)),
            media_type="text/html",
            headers={"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"},
        )


async def _document(request: AnyRequest) -> dict[str, Any]:
    """Made when it is first asked for: reading the sources for it takes longer than all the rest of a start."""
    state = request.app.state
    if "document" not in state:
        state.document = await asyncio.to_thread(build_document, request.app)
    document: dict[str, Any] = state.document
    return document


def render_page(document: dict[str, Any]) -> str:
    page: str = _template().render(
        document=document,
        operations=[
            (path, method, operation)
            for path, operations in document["paths"].items()
            for method, operation in operations.items()
        ],
        schemas=document["components"]["schemas"],
        problems=sorted(_problems(), key=lambda problem: (problem.status, problem.code)),
    )
    return page


@cache
def _template() -> Any:
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["type"] = describe_type
    environment.filters["json"] = lambda value: msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    return environment.from_string((files("carteiro.api") / "documentation.html.j2").read_text(encoding="utf-8"))


def describe_type(schema: dict[str, Any]) -> str:
    """A JSON schema in a few words."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " or ".join(describe_type(option) for option in schema["anyOf"])
    if "enum" in schema:
        return " | ".join(str(value) for value in schema["enum"])
    kind = str(schema.get("type", "any"))
    if kind == "array":
        return f"list of {describe_type(schema.get('items', {}))}"
    return f"{kind} ({schema['format']})" if "format" in schema else kind


def _problems() -> list[type[Problem]]:
    found: list[type[Problem]] = []
    waiting: list[type[Problem]] = [Problem]
    while waiting:
        problem = waiting.pop()
        found.append(problem)
        waiting.extend(problem.__subclasses__())
    return found
