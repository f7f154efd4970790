"""The OpenAPI document says what there is, and the page shows it without help from elsewhere."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import httpx
import msgspec

from carteiro.domain.errors import Problem

METHODS = {"get", "post", "put", "patch", "delete"}
ROUTES = {
    ("/api/v1/batches", "get"),
    ("/api/v1/batches", "post"),
    ("/api/v1/batches/{batch_id}", "get"),
    ("/api/v1/batches/{batch_id}/messages", "get"),
    *(
        (f"/api/v1/batches/{{batch_id}}/{action}", "post")
        for action in ("approve", "cancel", "pause", "reject", "reschedule", "resume", "retry-failed")
    ),
    ("/api/v1/broadcasts", "post"),
    ("/api/v1/broadcasts/{broadcast_id}", "get"),
    ("/api/v1/broadcasts/{broadcast_id}/recipients", "get"),
    ("/api/v1/capacity", "get"),
    ("/api/v1/credits", "get"),
    ("/api/v1/credits/entries", "get"),
    ("/api/v1/group-links", "get"),
    ("/api/v1/group-links", "post"),
    ("/api/v1/group-links/{link_id}", "get"),
    ("/api/v1/sendreminder", "post"),
    ("/api/v1/suppressions", "delete"),
    ("/api/v1/suppressions", "get"),
    ("/api/v1/suppressions", "post"),
    ("/api/v1/suppressions/check", "get"),
    ("/health", "get"),
    ("/livez", "get"),
    ("/readyz", "get"),
    ("/webhooks/infobip/{token}", "post"),
    ("/webhooks/whatsapp-status", "get"),
    ("/webhooks/whatsapp-status", "post"),
}


async def document(client: httpx.AsyncClient) -> dict[str, Any]:
    response = await client.get("/openapi.json")
    assert response.status_code == 200
    body: dict[str, Any] = response.json()
    return body


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in document["paths"].items():
        for method, operation in item.items():
            assert method in METHODS
            yield path, method, operation


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if "$ref" in node:
            yield node["$ref"]
        for value in node.values():
            yield from references(value)
    elif isinstance(node, list):
        for value in node:
            yield from references(value)


async def test_every_route_is_in_the_document_and_nothing_else(anonymous: httpx.AsyncClient) -> None:
    found = await document(anonymous)
    assert found["openapi"] == "3.1.0"
    assert {(path, method) for path, method, _ in operations(found)} == ROUTES


async def test_the_document_has_the_form_that_openapi_asks_for(anonymous: httpx.AsyncClient) -> None:
    found = await document(anonymous)
    assert {"title", "version"} <= found["info"].keys()
    ids = [operation["operationId"] for _, _, operation in operations(found)]
    assert len(ids) == len(set(ids))
    for path, _, operation in operations(found):
        named = {p["name"] for p in operation.get("parameters", []) if p["in"] == "path"}
        assert named == set(re.findall(r"{(\w+)}", path))
        for parameter in operation.get("parameters", []):
            assert parameter["in"] in {"query", "path", "header"}
            assert parameter["required"] is True or parameter["in"] != "path"
            assert parameter["schema"]
        for status, answer in operation["responses"].items():
            assert re.fullmatch(r"[1-5]\d\d", status)
            assert answer["description"]
        for scheme in operation.get("security", []):
            assert set(scheme) <= found["components"]["securitySchemes"].keys()
    for reference in references(found):
        prefix, _, name = reference.rpartition("/")
        assert prefix == "#/components/schemas"
        assert name in found["components"]["schemas"]
        assert re.fullmatch(r"[A-Za-z0-9._-]+", name)


async def test_every_operation_tells_its_problems(anonymous: httpx.AsyncClient) -> None:
    for path, method, operation in operations(await document(anonymous)):
        statuses = set(operation["responses"])
        assert {"500", "503"} <= statuses
        if path.startswith("/api/"):
            assert {"401", "403"} <= statuses
            assert operation["x-required-scope"]
        if "{" in path:
            assert "404" in statuses
        for status, answer in operation["responses"].items():
            if status >= "400":
                schema = answer["content"]["application/problem+json"]["schema"]
                assert schema == {"$ref": "#/components/schemas/ProblemBody"}, (path, method, status)


async def test_creating_tells_all_that_it_may_answer(anonymous: httpx.AsyncClient) -> None:
    operation = (await document(anonymous))["paths"]["/api/v1/batches"]["post"]
    assert set(operation["responses"]) == {
        *("202", "400", "401", "402", "403", "408", "409", "413", "415", "422", "500", "503"),
    }
    assert "capacity-exhausted" in operation["responses"]["402"]["description"]
    assert set(operation["responses"]["202"]["headers"]) >= {"Location", "Idempotent-Replayed", "X-Request-Id"}
    assert [parameter["name"] for parameter in operation["parameters"]] == ["request", "Idempotency-Key"]
    assert set(operation["requestBody"]["content"]) == {"application/json", "application/x-ndjson", "text/csv"}


async def test_the_example_is_a_valid_request(client: httpx.AsyncClient) -> None:
    content = (await document(client))["paths"]["/api/v1/batches"]["post"]["requestBody"]["content"]
    response = await client.post("/api/v1/batches", json=content["application/json"]["example"])
    assert response.status_code == 202


async def test_the_page_shows_every_operation_and_problem_and_loads_nothing(anonymous: httpx.AsyncClient) -> None:
    response = await anonymous.get("/docs")
    assert response.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in response.headers["content-security-policy"]

    class Page(HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.ids: set[str] = set()
            self.loads: list[str] = []

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            given = dict(attrs)
            if given.get("id"):
                self.ids.add(str(given["id"]))
            if tag in {"script", "link", "img", "iframe"}:
                self.loads.append(tag)

    page = Page()
    page.feed(response.text)
    assert page.loads == []
    found = await document(anonymous)
    assert {operation["operationId"] for _, _, operation in operations(found)} <= page.ids
    assert {"capacity-exhausted", "template-not-approved", Problem.code} <= page.ids
    assert "http" not in re.sub(r"https?://(example\.com|127\.0\.0\.1)|application/json|https? URL", "", response.text)


async def test_answers_fit_their_schemas(client: httpx.AsyncClient) -> None:
    """The members of an answer are those that the document lists."""
    found = await document(client)
    schemas = found["components"]["schemas"]
    content = found["paths"]["/api/v1/batches"]["post"]["requestBody"]["content"]
    batch = (await client.post("/api/v1/batches", json=content["application/json"]["example"])).json()
    assert batch.keys() == schemas["Batch"]["properties"].keys()
    assert set(schemas["Batch"]["required"]) == batch.keys()
    message = (await client.get(f"/api/v1/batches/{batch['id']}/messages")).json()["items"][0]
    assert message.keys() == schemas["Message"]["properties"].keys()
    problem = (await client.get("/nothing")).json()
    assert problem.keys() <= schemas["ProblemBody"]["properties"].keys()
    assert msgspec.json.encode(found)
