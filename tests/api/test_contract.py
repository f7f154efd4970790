"""Every route that the OpenAPI document names, fed with what fits its description and with what does not.

No server error, and no answer that the document does not describe: status, media type, headers and body. The routes are
read from the document, so a new one is covered as soon as it is there.
"""

import asyncio
import contextlib
import json
import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable

from carteiro.api.app import create_app
from carteiro.services.broadcast import open_directory
from carteiro.services.finalise import finalise_due
from carteiro.settings import Settings
from carteiro.storage.pool import open_pool
from tests.support.databases import DatabaseServer
from tests.support.directories import directory_settings
from tests.support.factories import SERVICE, TEMPLATE, add_account, add_batch, add_key, in_an_hour, phone, value

schemathesis = pytest.importorskip("schemathesis", reason="pip install -e '.[dev]' -c constraints.txt")
requests = pytest.importorskip("requests")

from schemathesis.generation import GenerationMode  # noqa: E402
from schemathesis.specs.openapi import checks  # noqa: E402

CHECKS = [
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
]

EXAMPLES = 6
"""A route and mode."""
PATIENCE_S = 20.0
URL = "http://carteiro.test"
TERMS = json.dumps({"service": SERVICE, "template": {"name": TEMPLATE}})
STREAMED = {
    "application/x-ndjson": f'{TERMS}\n{{"phone": "{phone(4)}", "placeholders": ["Ana", "1"]}}\n',
    "text/csv": f"phone,1,2\n{phone(5)},Ana,1\n",
}
"""Bodies of which a description says no more than that they are text."""


@schemathesis.serializer("application/x-ndjson")  # type: ignore[untyped-decorator]
def as_lines(_context: Any, value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


@dataclass(frozen=True)
class Live:
    """The application on a database with an account, batches in several states, and a key with every scope."""

    loop: asyncio.Runner
    client: httpx.AsyncClient
    document: dict[str, Any]
    key: str
    known: dict[str, list[Any]]
    """Member or parameter -> values that name something that is there, or that cannot be guessed."""
    answered: Counter[int] = field(default_factory=Counter)

    def send(self, prepared: Any) -> httpx.Response:
        async def answer() -> httpx.Response:
            async with asyncio.timeout(PATIENCE_S):
                return await self.client.request(
                    prepared.method, prepared.url, headers=dict(prepared.headers), content=prepared.body or b""
                )

        return self.loop.run(answer())


@pytest.fixture(scope="module")
def live(postgres_server: DatabaseServer) -> Iterator[Live]:
    logging.getLogger("hypothesis").setLevel(logging.WARNING)
    with postgres_server.fresh_database() as dsn, asyncio.Runner() as loop:
        stack = contextlib.AsyncExitStack()
        try:
            yield loop.run(_open(loop, stack, dsn))
        finally:
            loop.run(stack.aclose())


async def _open(loop: asyncio.Runner, stack: contextlib.AsyncExitStack, dsn: str) -> Live:
    pool = await stack.enter_async_context(open_pool(dsn, min_size=1, max_size=5, application_name="tests"))
    directory = await stack.enter_async_context(open_directory(directory_settings(dsn), application_name="tests"))
    await add_account(pool, credits=1_000_000, bm_limit=1_000_000)
    ids = [await add_batch(pool, 2, state=state, start=10 * n) for n, state in enumerate(("pending", "processing"))]
    failed = await add_batch(pool, 2, start=50)
    async with pool.connection() as conn:
        await conn.execute(
            "INSERT INTO service (id, account_id, kind, provider, base_url, api_key_env, webhook_token,"
            " messages_per_second) SELECT 'links', account_id, 'group_link', provider, base_url, api_key_env, 'links',"
            " 80 FROM service"
        )
        await conn.execute("INSERT INTO service_health (service_id) VALUES ('links')")
        await conn.execute("UPDATE batch SET status = 'processing', event = 'started' WHERE id = %s", [failed])
        await conn.execute("UPDATE message SET status = 'failed', event = 'guarded' WHERE batch_id = %s", [failed])
    assert await finalise_due(pool, Settings()) == [failed]
    known = {
        "batch_id": [str(id) for id in [*ids, failed]],
        "contacts": [[{"phone": phone(0), "placeholders": ["Ana", "1"]}], [{"phone": phone(1), "placeholders": []}]],
        "flow": ["personal"],
        "group_link": ["https://chat.whatsapp.com/AbC"],
        "name": ["Ana"],
        "phone": [phone(2)],
        "phones": [[phone(3)]],
        "request": [TERMS],
        "scheduled_at": [None, in_an_hour().isoformat()],
        "service": [SERVICE],
        "template": [{"name": TEMPLATE}],
        "template_name": [TEMPLATE],
        "token": [await value(pool, "SELECT webhook_token FROM service")],
    }
    transport = httpx.ASGITransport(create_app(Settings(), pool, directory), raise_app_exceptions=False)  # type: ignore[arg-type]
    client = await stack.enter_async_context(httpx.AsyncClient(transport=transport, base_url=URL))
    document = (await client.get("/openapi.json")).json()
    return Live(loop, client, document, f"Bearer {await add_key(pool)}", known)


def test_every_route_answers_as_the_document_says(live: Live) -> None:
    schema = schemathesis.openapi.from_dict(live.document)
    faults: dict[str, str] = {}
    operations = [found.ok() for found in schema.get_all_operations()]
    assert len(operations) > 20
    for operation in operations:
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            try:
                _feed(live, operation, mode)
            except Exception as fault:
                faults[f"{operation.label}, {mode.value}"] = f"{type(fault).__name__}: {fault}"
    assert min(live.answered[status] for status in (200, 202, 400, 401, 404, 409)) > 0, live.answered
    assert not faults, "\n\n".join(f"{where}\n{told}" for where, told in faults.items())


def _feed(live: Live, operation: Any, mode: GenerationMode) -> None:
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(
        case=operation.as_strategy(generation_mode=mode),
        # Mostly with a key, and mostly of things that are there: else every answer would be 401 or 404.
        keyed=st.sampled_from([True] * 7 + [False]),
        real=st.sampled_from([sorted(live.known)] * 3 + [[]]),
        data=st.data(),
    )
    def run(case: Any, keyed: bool, real: list[str], data: st.DataObject) -> None:
        for name in real:
            for place in (case.path_parameters, case.query, case.body):
                if isinstance(place, dict) and name in place:
                    place[name] = data.draw(st.sampled_from(live.known[name]))
        if real and case.media_type in STREAMED:
            case.body = STREAMED[case.media_type]
        prepared = requests.Request(**case.as_transport_kwargs(base_url=URL)).prepare()
        if keyed:
            prepared.headers["Authorization"] = live.key
        response = live.send(prepared)
        case.validate_response(response, checks=CHECKS)
        live.answered[response.status_code] += 1
        if response.status_code >= 500:
            assert response.status_code == 503, response.text
            assert response.headers["retry-after"], response.text

    with contextlib.suppress(Unsatisfiable):  # a route that takes nothing can be given nothing wrong
        run()
