"""The second step of a batch over HTTP."""

from typing import Any

import httpx

from carteiro.storage.pool import Pool
from tests.api.problems import assert_problem
from tests.support.answers import answer, inbound
from tests.support.dispatching import running_bench
from tests.support.factories import batch_body, phone, value

TEXT = {"text": "Aqui estão os detalhes."}


async def test_what_follows_is_checked_kept_shown_and_listed(client: httpx.AsyncClient, pool: Pool) -> None:
    async def create(follow_up: Any) -> httpx.Response:
        return await client.post("/api/v1/batches", json=batch_body(2, follow_up=follow_up))

    for wrong, pointer in (
        ({}, "/follow_up"),
        ({"text": "x" * 4_097}, "/follow_up/text"),
        ({"media": {"type": "image", "url": "http://example.com/a"}}, "/follow_up/media/url"),
        ({"media": {"type": "sticker", "url": "https://example.com/a"}}, "/follow_up/media/type"),
        ({"text": "x", "buttons": []}, "/follow_up"),
    ):
        response = await create(wrong)
        problem = assert_problem(response, 400, "invalid-request")
        assert problem["errors"][0]["pointer"].startswith(pointer), problem
    assert await value(pool, "SELECT count(*) FROM batch") == 0

    created = await create(TEXT)
    assert created.status_code == 202, created.text
    where = created.headers["location"]
    assert created.json()["follow_up"] == TEXT
    # It is part of what makes two requests equal.
    assert (await create(TEXT)).json()["id"] == created.json()["id"]
    media = {"media": {"type": "document", "url": "https://example.com/a.pdf", "filename": "a.pdf"}}
    others = [(await create(follow_up)).json() for follow_up in (media, None)]
    assert [other["follow_up"] for other in others] == [media, None]
    assert len({created.json()["id"], *(other["id"] for other in others)}) == 3

    async with running_bench(pool) as bench:
        await bench.pump()
        sender = await value(
            pool, "SELECT sender_id FROM message WHERE batch_id = %s AND seq = 1", created.json()["id"]
        )
        key = f"{created.json()['id'].replace('-', '')}-1"
        await answer(pool, inbound(phone(0), context_id=key, sender=sender))
        first, second = (await client.get(f"{where}/messages")).json()["items"]
        assert (first["follow_up"]["status"], second["follow_up"]) == ("pending", None)
        await bench.pump()
        first = (await client.get(f"{where}/messages")).json()["items"][0]
        assert first["status"] == "sent"
        assert first["follow_up"] == {"status": "sent", "at": first["follow_up"]["at"], "code": None}
        assert first["follow_up"]["at"].endswith("Z")
