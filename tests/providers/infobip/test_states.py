"""What Infobip says of senders and templates, against the simulator and against odd answers."""

import json
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from carteiro.domain.standing import SenderState, Standing, TemplateState, Tier
from carteiro.providers.contract import Provider, StatesUnreadable
from carteiro.providers.infobip import states
from carteiro.providers.infobip.codec import parse_webhook
from carteiro.providers.registry import open_provider
from tests.providers.driving import Driver
from tests.providers.infobip.reports import outgoing
from tests.support.waiting import until


def rows(field: str, *given: Any) -> bytes:
    return json.dumps({field: given}).encode()


def quality_row(**fields: Any) -> dict[str, Any]:
    row = {"sender": "551", "qualityRating": "HIGH", "status": "CONNECTED", "currentLimit": "LIMIT_2K"}
    return {**row, "lastUpdated": "2026-12-01T08:12:26.422Z", **fields}


@pytest.mark.parametrize(
    ("word", "tier"),
    [
        ("LIMIT_250", Tier("LIMIT_250", 250)),
        ("LIMIT_1K", Tier("LIMIT_1K", 1_000)),
        ("LIMIT_2K", Tier("LIMIT_2K", 2_000)),
        ("LIMIT_100K", Tier("LIMIT_100K", 100_000)),
        ("LIMIT_1M", Tier("LIMIT_1M", 1_000_000)),
        ("LIMIT_999999M", Tier("LIMIT_999999M", 2_000_000_000)),
        ("UNLIMITED", Tier("UNLIMITED", None)),
        ("LIMIT_NA", None),
        (None, None),
        ("LIMIT_HUGE", Tier("LIMIT_HUGE", None, known=False)),
        ("LIMIT_", Tier("LIMIT_", None, known=False)),
        ("TIER_5", Tier("TIER_5", None, known=False)),
    ],
)
def test_a_limit_is_read_from_its_word_and_an_unknown_word_is_kept(word: str | None, tier: Tier | None) -> None:
    assert states.read_tier(word) == tier


@pytest.mark.parametrize(
    ("word", "standing"),
    [
        ("CONNECTED", Standing.GOOD),
        ("FLAGGED", Standing.GOOD),
        *((word, Standing.STOPPED) for word in ("BANNED", "DELETED", "DISCONNECTED", "RATE_LIMITED", "RESTRICTED")),
        *((word, Standing.UNCLEAR) for word in ("MIGRATED", "PENDING", "UNKNOWN", "UNVERIFIED", "SOMETHING_NEW")),
    ],
)
def test_what_each_status_of_a_sender_comes_to(word: str, standing: Standing) -> None:
    (state,) = states.read_senders(rows("results", quality_row(status=word))) or []
    assert (state.word, state.standing) == (word, standing)


@pytest.mark.parametrize("word", ["APPROVED", "REINSTATED", "FLAGGED"])
def test_a_template_that_may_be_sent(word: str) -> None:
    row = {"name": "welcome", "language": "pt_BR", "status": word}
    assert states.read_templates(rows("templates", row)) == [TemplateState("welcome", "pt_BR", word, usable=True)]


@pytest.mark.parametrize(
    "word",
    [
        "IN_APPEAL",
        "PENDING",
        "REJECTED",
        "PENDING_DELETION",
        "DELETED",
        "FIRST_PAUSED",
        "SECOND_PAUSED",
        "DISABLED",
        "NEW",
    ],
)
def test_a_template_that_may_not_be_sent(word: str) -> None:
    (state,) = states.read_templates(rows("templates", {"name": "w", "language": "pt_BR", "status": word})) or []
    assert (state.word, state.usable) == (word, False)


@pytest.mark.parametrize(
    "odd", [None, 7, [], {}, {"sender": 551, "status": "CONNECTED"}, {"sender": "551", "status": None}]
)
def test_one_odd_row_does_not_spoil_the_next(odd: object) -> None:
    found = states.read_senders(rows("results", odd, quality_row()))
    assert found == [SenderState("551", "CONNECTED", Standing.GOOD, "HIGH", Tier("LIMIT_2K", 2_000))]


@pytest.mark.parametrize("field", ["qualityRating", "currentLimit"])
@pytest.mark.parametrize("value", [None, 5, "UNKNOWN", ["HIGH"]])
def test_what_cannot_be_read_of_a_sender_says_nothing(field: str, value: object) -> None:
    (state,) = states.read_senders(rows("results", quality_row(**{field: value}))) or []
    assert state.standing is Standing.GOOD
    if field == "qualityRating":
        assert state.quality is None
    elif value != "UNKNOWN":
        assert state.tier is None


def update(**change: Any) -> dict[str, Any]:
    return {
        "messageTemplateId": "900100200300",
        "messageTemplateName": "aviso_fatura_v3",
        "messageTemplateLanguage": "pt_BR",
        "timestamp": "2026-12-01T12:00:00.000+0000",
        "change": {"type": "TEMPLATE_STATUS_UPDATE", "newStatus": "FIRST_PAUSED", "reason": "NONE", **change},
    }


def test_a_webhook_tells_a_templates_new_status_and_since_when() -> None:
    noon = datetime(2026, 12, 1, 12, tzinfo=UTC)
    told = states.read_template_update(update())
    assert told == TemplateState("aviso_fatura_v3", "pt_BR", "FIRST_PAUSED", False, "900100200300", noon)
    assert parse_webhook(json.dumps(update()).encode()).templates == (told,)


@pytest.mark.parametrize(
    "document",
    [
        update(type="TEMPLATE_QUALITY_UPDATE"),
        update(newStatus=None),
        {**update(), "timestamp": "yesterday"},
        {**update(), "messageTemplateName": None},
        {"change": "FIRST_PAUSED"},
    ],
)
def test_other_template_webhooks_tell_no_status(document: dict[str, Any]) -> None:
    assert states.read_template_update(document) is None
    parsed = parse_webhook(json.dumps(document).encode())
    assert (parsed.ignored, parsed.malformed) == (1, 0)


async def test_senders_are_read_in_pages(provider: Provider, simulator: Driver) -> None:
    await simulator.ask(
        "POST", "senders", {"sender": "551007", "status": "BANNED", "quality": "LOW", "limit": "LIMIT_2K"}
    )
    found = await provider.read_senders([f"551{number:03}" for number in range(250)])
    assert len(found) == 250
    assert found[7] == SenderState("551007", "BANNED", Standing.STOPPED, "LOW", Tier("LIMIT_2K", 2_000))
    assert found[8] == SenderState("551008", "CONNECTED", Standing.GOOD)
    assert (await simulator.stats())["requests"]["quality"] == 3
    assert await provider.read_senders([]) == []


async def test_templates_are_read(provider: Provider, simulator: Driver) -> None:
    await provider.submit([outgoing(1)])
    await simulator.ask("POST", "templates", {"name": "other", "language": "en", "status": "REJECTED"})
    found = await provider.read_templates("5511400012345")
    assert len({state.id for state in found}) == 2
    assert [(state.name, state.language, state.usable) for state in found] == [
        ("order_update_v1", "pt_BR", True),
        ("other", "en", False),
    ]


@pytest.mark.parametrize(
    "plan",
    [
        {"answer": "http", "http_status": 401},
        {"answer": "http", "http_status": 429},
        {"answer": "http", "http_status": 500},
        {"answer": "garbage"},
        {"answer": "reset"},
        {"answer": "hang"},
    ],
)
async def test_without_an_answer_nothing_is_known(provider: Provider, simulator: Driver, plan: dict[str, Any]) -> None:
    await simulator.add_fault(plan, on="states")
    with pytest.raises(StatesUnreadable):
        await provider.read_senders(["551", "552"])
    with pytest.raises(StatesUnreadable):
        await provider.read_templates("551")
    await simulator.ask("DELETE", "faults")
    assert len(await provider.read_senders(["551", "552"])) == 2


async def test_a_sender_that_spoils_the_call_is_found_and_left_out() -> None:
    async def quality(request: web.Request) -> web.Response:
        asked = request.query["senders"].split(",")
        if "553" in asked:
            return web.json_response({"requestError": {}}, status=400)
        return web.json_response({"results": [quality_row(sender=sender) for sender in asked]})

    app = web.Application()
    app.router.add_get("/whatsapp/1/senders/quality", quality)
    async with TestServer(app) as server:
        provider = open_provider("infobip", base_url=str(server.make_url("")), api_key="key")
        try:
            found = await provider.read_senders(["551", "552", "553", "554", "555"])
        finally:
            await provider.close()
    assert [state.sender for state in found] == ["551", "552", "554", "555"]


async def test_a_template_can_be_made_to_tell_its_status_by_webhook(simulator: Driver) -> None:
    order = {"name": "welcome", "status": "DISABLED", "notify_url": f"{simulator.address}/_sim/callback"}
    await simulator.ask("POST", "templates", order)

    async def posted() -> bool:
        return bool(await simulator.callbacks())

    await until(posted, 5, "the webhook is posted")
    (callback,) = await simulator.callbacks()
    state = states.read_template_update(json.loads(callback["body"]))
    assert state is not None
    assert (state.name, state.word, state.usable) == ("welcome", "DISABLED", False)


async def test_a_bad_order_is_refused(simulator: Driver) -> None:
    async with httpx.AsyncClient() as client:
        for path, body in (("senders", {"sender": 5}), ("senders", {"limits": "x"}), ("templates", {"name": "x"})):
            response = await client.post(f"{simulator.address}/_sim/{path}", json=body)
            assert response.status_code == 400, path


async def test_a_reset_forgets_how_senders_and_templates_stand(provider: Provider, simulator: Driver) -> None:
    await simulator.ask("POST", "senders", [{"status": "BANNED"}, {"sender": "552", "quality": "LOW"}])
    assert [state.word for state in await provider.read_senders(["551", "552"])] == ["BANNED", "BANNED"]
    await simulator.ask("POST", "templates", {"name": "welcome", "status": "DISABLED"})
    await simulator.ask("POST", "reset")
    assert [state.word for state in await provider.read_senders(["551"])] == ["CONNECTED"]
    assert await provider.read_templates("551") == []
