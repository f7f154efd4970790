from collections import Counter

import httpx
import pytest

from carteiro.domain.outcomes import message_key
from carteiro.providers.contract import Provider
from carteiro.providers.simulator.magic import MAGIC
from tests.providers.driving import Driver
from tests.providers.infobip.reports import outgoing
from tests.support.waiting import until


async def test_calls_are_paged_by_their_number(provider: Provider, simulator: Driver) -> None:
    await provider.submit([outgoing(seq) for seq in range(1, 6)])
    assert [call["n"] for call in await simulator.calls(0, 2)] == [0, 1]
    assert [call["n"] for call in await simulator.calls(2, 10)] == [2, 3, 4]
    assert await simulator.calls(5) == []


async def test_stats_sum_up(provider: Provider, simulator: Driver) -> None:
    await simulator.add_fault({"answer": "http", "http_status": 429}, calls=1)
    await provider.submit([outgoing(1)])
    await provider.submit([outgoing(1)])
    stats = await simulator.stats()
    assert stats["requests"] == {"send": 2}
    assert stats["answers"] == {"429": 1, "200": 1}
    assert stats["senders"] == {"5511400012345": {"messages": 2, "accepted": 1}}
    assert stats["phones_accepted_again"] == 0


async def test_settings_are_changed_all_or_none(simulator: Driver) -> None:
    changed = await simulator.ask("POST", "settings", {"latency_ms": 5, "api_key": "secret"})
    assert changed["latency_ms"] == 5
    assert changed["api_key"] is True
    async with httpx.AsyncClient() as client:
        response = await client.post(f"{simulator.address}/_sim/settings", json={"seen_ratio": 0.25, "latency_ms": -1})
    assert response.status_code == 400
    assert "latency_ms" in response.json()["error"]
    assert (await simulator.ask("GET", "settings"))["seen_ratio"] == 0


async def test_faults_are_added_listed_and_removed(simulator: Driver) -> None:
    assert await simulator.ask("POST", "faults", [{"plan": {"answer": "hang"}}, {"plan": {}, "on": "log"}]) == {
        "ids": [1, 2]
    }
    listed = (await simulator.ask("GET", "faults"))["faults"]
    assert [(fault["id"], fault["on"], fault["plan"]["answer"]) for fault in listed] == [
        (1, "send", "hang"),
        (2, "log", "ok"),
    ]
    assert await simulator.ask("DELETE", "faults/1") == {"removed": 1}
    assert await simulator.ask("DELETE", "faults") == {"removed": 1}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("faults", {"plan": {"answer": "explode"}}),
        ("faults", {"plan": {}, "probabilty": 1}),
        ("receipts", {"action": "juggle"}),
        ("settings", {"colour": "red"}),
    ],
)
async def test_an_order_that_makes_no_sense_is_explained(path: str, body: object, simulator: Driver) -> None:
    async with httpx.AsyncClient() as client:
        response = await client.post(f"{simulator.address}/_sim/{path}", json=body)
    assert response.status_code == 400
    assert response.json()["error"]


async def test_a_reset_forgets_all_but_the_settings(provider: Provider, simulator: Driver) -> None:
    await simulator.ask("POST", "settings", {"results_per_post": 7})
    await simulator.add_fault({"answer": "hang"}, to="x")
    await provider.submit([outgoing(1, notify_url=simulator.callback_url)])

    async def reported() -> bool:
        return (await simulator.stats())["receipts"]["posted"] == 1

    await until(reported, 5, "the report posted")
    await simulator.ask("POST", "reset")
    assert await simulator.callbacks() == []
    assert await simulator.calls() == []
    assert (await simulator.stats())["requests"] == {}
    assert (await simulator.ask("GET", "faults"))["faults"] == []
    assert (await simulator.ask("GET", "settings"))["results_per_post"] == 7


async def test_callbacks_are_kept_byte_for_byte(simulator: Driver) -> None:
    body = '{"total": 3,  "nome":"ação"}'.encode()
    async with httpx.AsyncClient() as client:
        await client.post(f"{simulator.callback_url}/acme?x=1", content=body, headers={"Webhook-Id": "msg_1"})
        await client.post(simulator.callback_url, content=b"\xff\x00")
    first, second = await simulator.callbacks()
    assert first["path"] == "/_sim/callback/acme?x=1"
    assert first["body"].encode() == body
    assert ["webhook-id", "msg_1"] in [[name.lower(), value] for name, value in first["headers"]]
    assert (second["body"], second["body_base64"]) == (None, "/wA=")


async def test_magic_numbers_are_shown(simulator: Driver) -> None:
    assert await simulator.ask("GET", "magic") == {digits: magic.title for digits, magic in MAGIC.items()}


async def test_contacts_answer_when_told_to(provider: Provider, simulator: Driver) -> None:
    sent = [outgoing(seq, notify_url=simulator.callback_url) for seq in (1, 2)]
    await simulator.ask("POST", "settings", {"receipts": False})
    await provider.submit(sent)
    ids = [message_key(message.batch_id, message.seq) for message in sent]
    order = {"message_ids": [*ids, "no such"], "times": 3, "posts": 2, "short": True}
    assert await simulator.ask("POST", "answers", order) == {"contacts": 2}
    assert await simulator.ask("POST", "answers", {"message_ids": ids[:1], "kind": "button", "context": False})
    assert await simulator.ask("POST", "answers", {"message_ids": ids[:1], "kind": "reaction"}) == {"contacts": 1}

    async def told() -> bool:
        return len(await simulator.callbacks()) == 4

    await until(told, 5, "the webhooks posted")
    reports = sorted(await simulator.reports(), key=lambda parsed: len(parsed.inbound))
    reaction, button, *answers = reports
    assert (reaction.ignored, reaction.inbound) == (1, ())
    assert [(one.is_button, one.context_id) for one in button.inbound] == [(True, None)]
    assert answers[0] == answers[1]
    assert len({one.message_id for one in answers[0].inbound}) == 6
    assert Counter(one.context_id for one in answers[0].inbound) == dict.fromkeys(ids, 3)
    assert {one.sender for one in answers[0].inbound} == {sent[0].sender}
    assert {one.phone for one in answers[0].inbound} == {message.to[:4] + message.to[5:] for message in sent}


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("text", {"mediaUrl": "https://example.com/a"}),
        ("text", {"text": "x", "caption": "y"}),
        ("image", {"text": "x"}),
        ("image", {"mediaUrl": "https://example.com/a", "filename": "a.jpg"}),
        ("document", {"mediaUrl": ""}),
    ],
)
async def test_a_free_form_message_must_be_of_its_kind(kind: str, content: object, simulator: Driver) -> None:
    body = {"from": "5511400012345", "to": "5531987650001", "content": content}
    async with httpx.AsyncClient() as client:
        url = f"{simulator.address}/whatsapp/1/message/{kind}"
        response = await client.post(url, json=body, headers={"Authorization": "App key"})
    assert response.status_code == 400
    assert response.json()["requestError"]["serviceException"]["validationErrors"]
    assert await simulator.calls() == []
