"""The OpenAPI 3.1 document, made from the operations that the routes carry."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from litestar import Litestar
from litestar.handlers import HTTPRouteHandler

from carteiro import __version__
from carteiro.api.operations import Operation, Parameter
from carteiro.api.problems import MEDIA_TYPE
from carteiro.api.schemas import ProblemBody
from carteiro.api.wording import add_descriptions

JSON = "application/json"
REFERENCE = "#/components/schemas/{name}"


def build_document(app: Litestar) -> dict[str, Any]:
    """The document of every route of the app that has an operation."""
    operations = sorted(_operations(app), key=lambda found: (found[0], found[1]))
    types = {ProblemBody} | {type for _, _, operation in operations for type in _types(operation)}
    ordered = sorted(types, key=lambda type: type.__name__)
    references, components = msgspec.json.schema_components(ordered, ref_template=REFERENCE)
    schemas = dict(zip(ordered, references, strict=True))
    add_descriptions(components)
    paths: dict[str, dict[str, Any]] = defaultdict(dict)
    for path, method, operation in operations:
        paths[path][method] = _operation(operation, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Carteiro",
            "version": __version__,
            "summary": "Bulk dispatch of WhatsApp templates.",
            "description": "Times are RFC 3339 in UTC; those given need an offset. Lists are paged by cursor. "
            f"Every error is `{MEDIA_TYPE}` with a stable `code`.",
        },
        "paths": dict(paths),
        "components": {
            "schemas": components,
            "securitySchemes": {
                "apiKey": {"type": "http", "scheme": "bearer", "description": "`carteiro keys create` makes one."}
            },
        },
    }


def _operations(app: Litestar) -> Iterator[tuple[str, str, Operation]]:
    for route in app.routes:
        for handler in route.route_handlers if hasattr(route, "route_handlers") else ():
            if isinstance(handler, HTTPRouteHandler) and "operation" in handler.opt:
                for method in handler.http_methods - {"OPTIONS"}:
                    yield route.path_format, method.lower(), handler.opt["operation"]


def _types(operation: Operation) -> Iterator[type]:
    if operation.body:
        yield operation.body
    for type, _ in operation.answers.values():
        if type:
            yield type


def _operation(operation: Operation, schemas: Mapping[type, dict[str, Any]]) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "operationId": operation.id,
        "summary": operation.summary,
        "responses": {
            **{str(status): _answer(operation, status, schemas) for status in operation.answers},
            **_problems(operation, schemas[ProblemBody]),
        },
    }
    if operation.description:
        shown["description"] = operation.description
    if operation.scope:
        shown["security"] = [{"apiKey": []}]
        shown["x-required-scope"] = operation.scope
    if operation.parameters:
        shown["parameters"] = [_parameter(parameter) for parameter in operation.parameters]
    if operation.body:
        content: dict[str, Any] = {"schema": schemas[operation.body]}
        if operation.example:
            content["example"] = operation.example
        streams = {
            media_type: {"schema": {"type": "string", "description": told}}
            for media_type, told in operation.streams.items()
        }
        shown["requestBody"] = {"required": operation.body_required, "content": {JSON: content, **streams}}
    elif operation.raw_body:
        shown["requestBody"] = {"required": True, "description": operation.raw_body, "content": {JSON: {"schema": {}}}}
    return shown


def _answer(operation: Operation, status: int, schemas: Mapping[type, dict[str, Any]]) -> dict[str, Any]:
    type, description = operation.answers[status]
    shown: dict[str, Any] = {"description": description}
    headers = {"X-Request-Id": "The request's id, as in our log.", **operation.headers}
    shown["headers"] = {
        name: {"description": meaning, "schema": {"type": "string"}} for name, meaning in headers.items()
    }
    if type:
        shown["content"] = {JSON: {"schema": schemas[type]}}
    return shown


def _problems(operation: Operation, schema: dict[str, Any]) -> dict[str, Any]:
    by_status: dict[int, list[str]] = defaultdict(list)
    for problem in operation.all_problems():
        by_status[problem.status].append(f"`{problem.code}`: {problem.title}")
    return {
        str(status): {"description": ". ".join(told) + ".", "content": {MEDIA_TYPE: {"schema": schema}}}
        for status, told in sorted(by_status.items())
    }


def _parameter(parameter: Parameter) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": parameter.place,
        "required": parameter.required or parameter.place == "path",
        "description": parameter.description,
        "schema": dict(parameter.schema),
    }
