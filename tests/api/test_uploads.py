"""Batches streamed as NDJSON and CSV: equal to the same batch as JSON, and nothing left of a bad one."""

import asyncio
import gzip
import json
import zlib
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any
from unittest.mock import patch

import httpx
import pytest
from litestar.types import ASGIApp

from carteiro.api import bodies, uploads
from carteiro.api.app import create_app
from carteiro.domain.suppression import Scope
from carteiro.services.broadcast import Directory
from carteiro.services.suppression import suppress
from carteiro.settings import Settings
from carteiro.storage.pool import Pool
from tests.api.problems import assert_problem
from tests.support.factories import add_key, batch_body, caller, grant_credits, phone, value
from tests.support.waiting import until

NDJSON, CSV = {"content-type": "application/x-ndjson"}, {"content-type": "text/csv"}


def terms(**fields: Any) -> dict[str, Any]:
    body = batch_body(0, **fields)
    del body["contacts"]
    return body


def ndjson(contacts: Iterable[Any], **fields: Any) -> bytes:
    return b"".join(json.dumps(line).encode() + b"\n" for line in (terms(**fields), *contacts))


def listed(n: int, start: int = 0) -> list[dict[str, Any]]:
    contacts: list[dict[str, Any]] = batch_body(n, start=start)["contacts"]
    return contacts


async def arriving(pieces: Iterable[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


def packets(body: bytes) -> list[bytes]:
    return [body[start : start + 4_000] for start in range(0, len(body), 4_000)]


async def post(client: httpx.AsyncClient, content: Any, headers: dict[str, str], **query: Any) -> httpx.Response:
    if isinstance(content, bytes):
        content = arriving(packets(content))
    return await client.post("/api/v1/batches", content=content, headers=headers, params=query)


async def post_csv(client: httpx.AsyncClient, content: bytes, **fields: Any) -> httpx.Response:
    return await post(client, content, CSV, request=json.dumps(terms(**fields)))


async def assert_nothing_is_left(pool: Pool) -> None:
    for table in ("batch", "message", "message_content", "batch_tally", "batch_signature", "idempotency_key"):
        assert await value(pool, f"SELECT count(*) FROM {table}") == 0, table
    assert await value(pool, "SELECT balance FROM account") == 1_000


async def rows(pool: Pool) -> list[tuple[Any, ...]]:
    async with pool.connection() as conn:
        cursor = await conn.execute(
            "SELECT seq, address, placeholders, extra FROM message_content ORDER BY batch_id, seq"
        )
        return await cursor.fetchall()


async def test_the_same_batch_in_every_form_is_one_batch(client: httpx.AsyncClient, pool: Pool) -> None:
    whole = batch_body(3)
    streamed = ndjson(whole["contacts"])
    table = "phone,2,1\n" + "".join(f"{c['phone']},{c['placeholders'][1]},Ana\n" for c in whole["contacts"])
    first = await post(client, streamed, NDJSON)
    assert first.status_code == 202
    assert first.json()["total"] == 3
    assert await rows(pool) == [(k + 1, phone(k).removeprefix("+"), ["Ana", str(k)], None) for k in range(3)]
    query = {"request": json.dumps(terms())}
    gzipped = {"content-encoding": "gzip"}
    twice = gzip.compress(streamed[:50]) + gzip.compress(streamed[50:])
    for answer in (
        await client.post("/api/v1/batches", json=whole),
        await post(client, gzip.compress(json.dumps(whole).encode()), gzipped),
        await post(client, gzip.compress(streamed), NDJSON | gzipped),
        await post(client, twice, NDJSON | gzipped),
        await post(client, table.encode(), CSV, **query),
        await post(client, b"\xef\xbb\xbf" + table.replace(",", ";").replace("\n", "\r\n").encode(), CSV, **query),
        await post(client, gzip.compress(table.encode()), CSV | gzipped, **query),
    ):
        assert answer.status_code == 202, answer.text
        assert answer.headers["idempotent-replayed"] == "true"
        assert answer.json()["id"] == first.json()["id"]
    assert await value(pool, "SELECT balance FROM account") == 997
    assert await value(pool, "SELECT count(*) FROM batch") == 1


async def test_a_batch_of_many_pieces(client: httpx.AsyncClient, pool: Pool) -> None:
    """Loaded piece by piece into one batch: duplicates, suppressed and unusable rows are found across pieces."""
    await grant_credits(pool, "acme", 9_000, cause="more", actor="test")
    await suppress(pool, caller(), [phone(1), phone(2_999)], scope=Scope.ALL)
    contacts = [*listed(2_000), {"phone": "12"}, *listed(2_000, start=1_000), {"phone": phone(5_000)}]
    body = ndjson(contacts, on_invalid="skip", on_capacity="spill")
    with patch("carteiro.api.lines.BLOCK_BYTES", 10_000):
        answer = await post(client, body, NDJSON)
    seen = answer.json()
    assert answer.status_code == 202
    assert (seen["total"], seen["suppressed"]) == (3_001, 2)
    assert seen["skipped"]["counts"] == {"phone-too-short": 1, "duplicate": 1_000}
    # The first of the rows is left out for its phone; the line of a contact is two below its place.
    assert seen["skipped"]["rows"][:2] == [
        {"index": 2_000, "line": 2_002, "code": "phone-too-short"},
        {"index": 2_001, "line": 2_003, "code": "duplicate", "first": 1_000},
    ]
    assert await value(pool, "SELECT count(DISTINCT xmin::text) FROM message") > 10
    assert await value(pool, "SELECT max(seq) FROM message") == await value(pool, "SELECT count(*) FROM message")
    assert await value(pool, "SELECT sum(held) FROM capacity_meter") == 1_000
    # Suppressed rows and those that the guard will fail need no capacity: 3,001 - 2 - 1, of which there are 1,000.
    assert await value(pool, "SELECT total FROM batch WHERE request_signature <> ''") == 3_001


async def test_bad_lines_are_named_by_number(client: httpx.AsyncClient, pool: Pool) -> None:
    good = json.dumps(listed(1)[0]).encode()
    body = b"\n".join(
        [
            json.dumps(terms(on_invalid="skip")).encode(),
            good,
            b"",
            b'{"phone": 5}',
            b'{"phone": "+5511980000009", "placeholders": ["\xff"]}',
            b'{"phone": ',
            good + good,
            b'{"phone": "+5511980000010", "placeholders": ["a\\u0000", "b"]}',
            b'{"phone": "+5511980000010", "colour": "red"}',
        ]
    )
    told = assert_problem(await post(client, body, NDJSON), 400, "invalid-request")
    assert [(error["line"], error["pointer"], error["code"]) for error in told["errors"]] == [
        (4, "/phone", "invalid"),
        (5, "", "line-malformed"),
        (6, "", "line-malformed"),
        (7, "", "line-malformed"),
        (8, "", "line-malformed"),
        (9, "", "invalid"),
    ]
    table = 'phone,1,2\n%s,"Ana, a ""boa""",1\n\n12,Ana,1\n%s,Ana\n%s,"Ana,1\n%s,\xe1,1\n'
    latin = (table % (phone(0), phone(1), phone(2), phone(3))).encode("latin-1")
    told = assert_problem(await post_csv(client, latin), 400, "invalid-request")
    assert [(error["line"], error["pointer"], error["code"]) for error in told["errors"]] == [
        (4, "/phone", "phone-too-short"),
        (5, "", "line-malformed"),
        (6, "", "line-malformed"),
        (7, "", "line-malformed"),
    ]
    await assert_nothing_is_left(pool)


async def test_beyond_a_thousand_bad_lines_are_counted(client: httpx.AsyncClient, pool: Pool) -> None:
    contacts = [*listed(3_000), *({"phone": str(number)} for number in range(2_500)), {}]
    with patch("carteiro.api.lines.BLOCK_BYTES", 20_000):
        told = assert_problem(await post(client, ndjson(contacts), NDJSON), 400, "invalid-request")
    assert (len(told["errors"]), told["error_count"]) == (1_000, 2_501)
    assert told["errors"][0]["line"] == 3_002
    await assert_nothing_is_left(pool)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "terms-missing"),
        (b"\n\n", "terms-missing"),
        (b'{"phone": "+5511980000001"}\n', "invalid"),
        (b"x" * 70_000, "line-too-long"),
        (ndjson([]), "too-few"),
        (ndjson(listed(3_000)) + b'{"phone": "' + b"1" * 70_000 + b'"}\n', "line-too-long"),
        (ndjson(listed(10)) + b"1" * 600_000, "line-too-long"),
        (ndjson(listed(2), max_attempts=0), "out-of-range"),
        (json.dumps(batch_body(1)).encode(), "invalid"),
    ],
)
async def test_what_is_no_stream_is_refused(client: httpx.AsyncClient, pool: Pool, body: bytes, code: str) -> None:
    told = assert_problem(await post(client, body, NDJSON), 400, "invalid-request")
    assert [error["code"] for error in told["errors"]] == [code]
    await assert_nothing_is_left(pool)


async def test_what_is_no_table_is_refused(client: httpx.AsyncClient, pool: Pool) -> None:
    assert_problem(await post(client, b"phone\n", CSV), 400, "invalid-request")
    assert_problem(await post(client, b"phone\n", CSV, request="{"), 400, "invalid-request")
    for header in ("", "1,2", "phone,1,phone", "phone,name", "phone,2"):
        told = assert_problem(
            await post_csv(client, f"{header}\n+5511980000001,a,b\n".encode()), 400, "invalid-request"
        )
        assert [(error["line"], error["code"]) for error in told["errors"]] == [(1, "csv-header")], header
    await assert_nothing_is_left(pool)


async def test_a_table_gives_all_that_a_contact_can_have(client: httpx.AsyncClient, pool: Pool) -> None:
    table = f"phone,1,2,header_text,button_1,media_url\n{phone(1)},Ana,1,,abc,\n{phone(2)},Rui,2,Oi,x,https://x.y/z\n"
    answer = await post_csv(client, table.encode(), on_invalid="skip")
    assert answer.status_code == 202
    assert [row[3] for row in await rows(pool)] == [
        {"buttons": ["abc"]},
        {"media_url": "https://x.y/z", "header_text": "Oi", "buttons": ["x"]},
    ]


async def test_an_idempotency_key_remembers_what_was_streamed(client: httpx.AsyncClient, pool: Pool) -> None:
    key = {"idempotency-key": "k-1"}
    first = await post(client, ndjson(listed(5)), NDJSON | key)
    again = await post(client, gzip.compress(ndjson(listed(5))), NDJSON | key | {"content-encoding": "gzip"})
    assert again.headers["idempotent-replayed"] == "true"
    assert again.json()["id"] == first.json()["id"]
    assert_problem(await post(client, ndjson(listed(6)), NDJSON | key), 422, "idempotency-key-reused")
    table, other = b"phone,1,2\n+5511980000001,a,b\n", {"idempotency-key": "k-2"}
    query = {"request": json.dumps(terms())}
    assert (await post(client, table, CSV | other, **query)).status_code == 202
    changed = {"request": json.dumps(terms(reference="r"))}
    assert_problem(await post(client, table, CSV | other, **changed), 422, "idempotency-key-reused")
    assert await value(pool, "SELECT count(*) FROM batch") == 2


async def test_bombs_and_broken_gzip(client: httpx.AsyncClient, pool: Pool) -> None:
    gzipped = NDJSON | {"content-encoding": "gzip"}
    line = json.dumps(listed(1)[0]).encode() + b"\n"
    bomb = gzip.compress(ndjson([]) + line * 200_000)
    assert len(bomb) < 200_000
    assert_problem(await post(client, bomb, gzipped), 413, "payload-too-large")
    with patch.object(bodies, "RATIO_FROM", 10**9), patch.object(uploads, "STREAM_MAX", 1_000_000):
        assert_problem(await post(client, bomb, gzipped), 413, "payload-too-large")
    nothing = gzip.compress(b"") * 500
    assert list(bodies._Gunzip().feed(nothing)) == [b""] * 500  # as many turns for the others
    assert (await post(client, nothing + gzip.compress(ndjson([])) + nothing, gzipped)).status_code == 400
    for broken in (b"not gzip", gzip.compress(ndjson(listed(5)))[:-9], gzip.compress(ndjson(listed(5))) + b"x"):
        assert_problem(await post(client, broken, gzipped), 400, "invalid-request")
    packed = zlib.compress(ndjson(listed(5)))
    assert_problem(await post(client, packed, NDJSON | {"content-encoding": "deflate"}), 415, "unsupported-media-type")
    assert_problem(await post(client, b"<x/>", {"content-type": "text/xml"}), 415, "unsupported-media-type")
    await assert_nothing_is_left(pool)


async def test_too_many_contacts(client: httpx.AsyncClient, pool: Pool) -> None:
    with patch("carteiro.services.create.streamed.CONTACTS_MAX", 10):
        told = assert_problem(await post(client, ndjson(listed(11)), NDJSON), 400, "invalid-request")
    assert [(error["line"], error["code"]) for error in told["errors"]] == [(12, "too-many")]
    await assert_nothing_is_left(pool)


async def test_only_so_many_are_streamed_at_once(client: httpx.AsyncClient, pool: Pool) -> None:
    going, begun = asyncio.Event(), 0
    async with pool.connection() as conn:
        await conn.execute("INSERT INTO account (id, callback_secret) VALUES ('other', 'whsec_x')")
    others = NDJSON | {"authorization": f"Bearer {await add_key(pool, 'other')}"}

    async def slow() -> AsyncIterator[bytes]:
        nonlocal begun
        yield ndjson(listed(1))
        begun += 1
        await going.wait()

    async def two_more(group: asyncio.TaskGroup) -> list[asyncio.Task[httpx.Response]]:
        """They are begun when this returns."""
        before = begun

        async def both() -> bool:
            return begun == before + 2

        started = [group.create_task(post(client, slow(), NDJSON)) for _ in range(2)]
        await until(both, 5, "both are read")
        return started

    async with asyncio.TaskGroup() as group:
        running = await two_more(group)
        answer = await post(client, ndjson(listed(2)), NDJSON)
        assert_problem(answer, 503, "unavailable")
        assert answer.headers["retry-after"] == "5"
        # Another account is not kept out: it is told that it has no such service.
        assert_problem(await post(client, ndjson(listed(2)), others), 403, "forbidden")
        with patch.object(uploads, "UPLOADS_OF_ACCOUNT", 9):
            running += await two_more(group)
        assert_problem(await post(client, ndjson(listed(2)), others), 503, "unavailable")
        going.set()
    assert {task.result().json()["total"] for task in running} == {1}


@pytest.mark.parametrize("silent", [False, True], ids=["the client is gone", "the client is silent"])
async def test_a_body_that_does_not_end(
    client: httpx.AsyncClient, pool: Pool, directory: Directory, silent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that came before are loaded by then, and deleted."""
    monkeypatch.setattr("carteiro.api.lines.BLOCK_BYTES", 10_000)
    monkeypatch.setattr(bodies, "SILENCE_MAX_S", 0.3)
    body = ndjson(listed(3_000))
    messages = iter([{"type": "http.request", "body": piece, "more_body": True} for piece in packets(body[:-30])])
    loaded = asyncio.Event()

    async def receive() -> Any:
        for message in messages:
            return message
        await until(lambda: value(pool, "SELECT count(*) FROM message"), 5, "rows are loaded")
        loaded.set()
        if silent:
            await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    app = create_app(Settings(), pool, directory)
    status, told = await call(app, receive, NDJSON | {"authorization": client.headers["authorization"]})
    assert loaded.is_set()
    assert (status, told["code"]) == ((408, "request-timeout") if silent else (400, "invalid-request"))
    await assert_nothing_is_left(pool)


async def call(app: ASGIApp, receive: Callable[[], Any], headers: dict[str, str]) -> tuple[int, dict[str, Any]]:
    """POST to the application with a body of `receive`'s making."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": "/api/v1/batches",
        "raw_path": b"/api/v1/batches",
        "root_path": "",
        "query_string": b"",
        "headers": [(name.encode(), text.encode()) for name, text in headers.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    await app(scope, receive, send)  # type: ignore[arg-type]
    return sent[0]["status"], json.loads(sent[1]["body"])
