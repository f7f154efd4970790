"""The simulator as a caller sees it, without our client."""

from typing import Any

import httpx
import pytest

from tests.providers.driving import Driver

PATH = "/whatsapp/1/message/template"


def message(number: int = 1, **changes: Any) -> dict[str, Any]:
    content = {
        "templateName": "welcome",
        "language": "pt_BR",
        "templateData": {"body": {"placeholders": []}},
    }
    fields = {"from": "5511400010001", "to": f"551190000000{number}", "messageId": f"m-{number}", "content": content}
    return {**fields, **changes}


async def post(simulator: Driver, *messages: Any, **more: Any) -> httpx.Response:
    async with httpx.AsyncClient() as client:
        return await client.post(simulator.address + PATH, json={"messages": messages, **more})


async def test_many_messages_in_one_request(simulator: Driver) -> None:
    await simulator.add_fault({"answer": "reject", "status_id": 52}, to="0002")
    response = await post(simulator, message(1), message(2), message(3, messageId=None))
    assert response.status_code == 200
    answer = response.json()
    assert [row["to"] for row in answer["messages"]] == ["5511900000001", "5511900000002", "5511900000003"]
    assert [row["status"]["id"] for row in answer["messages"]] == [7, 52, 7]
    assert [row["status"]["groupId"] for row in answer["messages"]] == [1, 5, 1]
    assert [row["messageId"] for row in answer["messages"]][:2] == ["m-1", "m-2"]
    assert answer["messages"][2]["messageId"]
    assert [call["request"] for call in await simulator.calls()] == [1, 1, 1]


async def test_a_fault_of_the_call_strikes_all_its_messages(simulator: Driver) -> None:
    await simulator.add_fault({"answer": "http", "http_status": 503}, to="0002")
    response = await post(simulator, message(1), message(2))
    assert response.status_code == 503
    assert [(call["answer"], call["accepted"]) for call in await simulator.calls()] == [("503", False)] * 2


@pytest.mark.parametrize(
    ("bad", "path"),
    [
        (message(content={"templateName": "welcome", "language": "pt_BR", "templateData": {"body": {}}}), "body"),
        (message(to=""), "to"),
        (message(**{"from": "+5511400010001"}), "from"),
        (message(messageId="m" * 201), "messageId"),
        (message(notifyUrl="x" * 2049), "notifyUrl"),
    ],
)
async def test_a_request_against_the_rules_is_refused_whole(bad: Any, path: str, simulator: Driver) -> None:
    response = await post(simulator, message(1), bad)
    assert response.status_code == 400
    exception = response.json()["requestError"]["serviceException"]
    assert exception["messageId"] == "BAD_REQUEST"
    assert any(path in key for key in exception["validationErrors"])
    assert await simulator.calls() == []


async def test_an_empty_placeholder_is_refused(simulator: Driver) -> None:
    bad = message()
    bad["content"]["templateData"]["body"]["placeholders"] = ["Ana", ""]
    assert (await post(simulator, bad)).status_code == 400


async def test_magic_numbers_can_be_switched_off(simulator: Driver) -> None:
    rejected = await post(simulator, message(1, to="5511900009941"))
    assert rejected.json()["messages"][0]["status"]["id"] == 52
    await simulator.ask("POST", "settings", {"magic": False})
    accepted = await post(simulator, message(2, to="5511900009941"))
    assert accepted.json()["messages"][0]["status"]["id"] == 7


async def test_the_log_knows_accepted_messages_only(simulator: Driver) -> None:
    await simulator.ask("POST", "settings", {"receipts": False})
    await simulator.add_fault({"answer": "reject", "status_id": 52}, to="0002")
    await simulator.add_fault({"answer": "close", "accept": True}, to="0003")
    await post(simulator, message(1))
    await post(simulator, message(2))
    with pytest.raises(httpx.RemoteProtocolError):
        await post(simulator, message(3))
    async with httpx.AsyncClient() as client:
        asked = [("messageId", f"m-{number}") for number in (3, 2, 1)]
        response = await client.get(f"{simulator.address}/whatsapp/2/logs", params=asked)
        assert [row["messageId"] for row in response.json()["results"]] == ["m-3", "m-1"]
        limited = await client.get(f"{simulator.address}/whatsapp/2/logs", params=[*asked, ("limit", "1")])
        assert len(limited.json()["results"]) == 1


async def test_senders_and_templates_can_be_read(simulator: Driver) -> None:
    await post(simulator, message(1))
    async with httpx.AsyncClient(base_url=simulator.address) as client:
        quality = (await client.get("/whatsapp/1/senders/quality", params={"senders": "551,552"})).json()
        templates = (await client.get("/whatsapp/2/senders/5511400010001/templates")).json()
    assert [row["sender"] for row in quality["results"]] == ["551", "552"]
    assert quality["results"][0]["lastUpdated"].endswith("Z")
    assert [row["name"] for row in templates["templates"]] == ["welcome"]


async def test_the_same_seed_gives_the_same_faults(simulator: Driver) -> None:
    async def answers() -> list[str]:
        await simulator.ask("POST", "reset")
        await simulator.add_fault({"answer": "http", "http_status": 503}, probability=0.5)
        for number in range(20):
            await post(simulator, message(1, messageId=f"m-{number}"))
        return [call["answer"] for call in await simulator.calls()]

    first = await answers()
    assert first == await answers()
    assert set(first) == {"200", "503"}
