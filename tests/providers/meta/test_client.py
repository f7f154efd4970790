"""The real client against the simulator: every fault, and what it means."""

import hashlib
import hmac
from collections.abc import AsyncIterator
from typing import Any

import pytest

from carteiro.domain.outcomes import (
    Accepted,
    Ambiguous,
    Fact,
    FactKind,
    FreeForm,
    Kind,
    NotSent,
    Outcome,
    Rejected,
    Scope,
    Throttled,
    followup_key,
    message_key,
)
from carteiro.domain.standing import SenderState, Standing, TemplateState, Tier
from carteiro.providers.contract import Provider, StatesUnreadable
from carteiro.providers.meta.webhook import parse_webhook
from carteiro.providers.registry import open_provider
from carteiro.providers.simulator.magic import MAGIC
from tests.providers.driving import Driver
from tests.providers.meta.shapes import BATCH, SENDER, TO, outgoing
from tests.support.waiting import until

KEY = message_key(BATCH, 1)
SECRET = "simulated-app-secret"


@pytest.fixture
async def meta(simulator: Driver) -> AsyncIterator[Provider]:
    provider = open_provider("meta", base_url=simulator.address, api_key="key", timeout_s=1.0, max_connections=4)
    await simulator.ask("POST", "settings", {"meta_webhook_url": simulator.callback_url})
    yield provider
    await provider.close()


async def submit(provider: Provider, seq: int = 1, to: str = TO) -> Outcome:
    (outcome,) = await provider.submit([outgoing(seq, to)])
    return outcome


async def statuses(simulator: Driver, n: int) -> list[Fact]:
    async def enough() -> list[Fact] | None:
        bodies = [callback["body"].encode() for callback in await simulator.callbacks()]
        facts = [fact for body in bodies for fact in parse_webhook(body).facts]
        return facts if len(facts) >= n else None

    found: list[Fact] = await until(enough, 5, f"{n} statuses")
    return found


async def test_a_message_arrives_as_it_was_given_and_is_reported(meta: Provider, simulator: Driver) -> None:
    outcome = await submit(meta)
    assert isinstance(outcome, Accepted)
    (call,) = await simulator.calls()
    named = ("sender", "to", "message_id", "template", "placeholders", "accepted")
    assert [call[name] for name in named] == [SENDER, TO, KEY, "aviso_fatura_v3", ["Ana"], True]

    sent, delivered = await statuses(simulator, 2)
    assert [sent.kind, delivered.kind] == [FactKind.SENT, FactKind.DELIVERED]
    assert (sent.batch_id, sent.seq, sent.via, sent.provider_id) == (BATCH, 1, SENDER, outcome.provider_id)
    for callback in await simulator.callbacks():
        signature = hmac.new(SECRET.encode(), callback["body"].encode(), hashlib.sha256).hexdigest()
        assert dict(callback["headers"])["X-Hub-Signature-256"] == f"sha256={signature}"


async def test_texts_and_media_take_the_same_way(meta: Provider, simulator: Driver) -> None:
    said: list[dict[str, Any]] = [
        {"text": "Recebido!"},
        {"media": {"type": "IMAGE", "mediaUrl": "https://example.com/1.png", "caption": "Mapa"}},
        {"media": {"type": "DOCUMENT", "mediaUrl": "https://example.com/1.pdf", "filename": "1.pdf"}},
    ]
    for seq, one in enumerate(said, start=1):
        assert isinstance(await meta.submit_free(FreeForm(BATCH, seq, SENDER, TO, **one)), Accepted)
    calls = await simulator.calls()
    assert [call["message_id"] for call in calls] == [followup_key(BATCH, seq) for seq in (1, 2, 3)]
    assert [call["placeholders"] for call in calls] == [
        ["Recebido!"],
        ["https://example.com/1.png"],
        ["https://example.com/1.pdf"],
    ]


async def test_what_is_wrong_with_a_request_is_said_by_metas_code(meta: Provider) -> None:
    refused = await submit(meta, to="0")
    assert isinstance(refused, Rejected)
    assert (refused.code, refused.kind) == ("100", Kind.REQUEST)


async def test_it_finds_its_version_in_the_address_or_takes_the_default(simulator: Driver) -> None:
    for base_url, version in ((f"{simulator.address}/v25.0", "v26.0"), (f"{simulator.address}/", "v21.0")):
        provider = open_provider("meta", base_url=base_url, api_key="key", graph_version=version)
        assert isinstance(await submit(provider), Accepted)
        assert (provider.name, provider.has_log) == ("meta", False)
        await provider.close()


# First call, and the second one to the same number with another message.
MAGIC_OUTCOMES: dict[str, tuple[type[Outcome], type[Outcome]]] = {
    **dict.fromkeys(["9901", "9902", "9903", "9904", "9905", "9906", "9947", "9948"], (Throttled, Accepted)),
    **dict.fromkeys(["9911", "9912"], (NotSent, Accepted)),
    **dict.fromkeys(["9913", "9914", "9921", "9922", "9923", "9924", "9925", "9926"], (Ambiguous, Accepted)),
    **dict.fromkeys(["9927", "9929", "9944"], (Ambiguous, Accepted)),
    **dict.fromkeys(["9932", "9933", "9934", "9935", "9942", "9943", "9946"], (Rejected, Accepted)),
    **dict.fromkeys(["9931", "9941", "9949"], (Rejected, Rejected)),
    "9945": (Ambiguous, Ambiguous),
}
SLOW = "9928"
REPORTED_LATER = [digits for digits in MAGIC if digits > "9950"]


def test_every_magic_number_is_tried_here() -> None:
    assert sorted([*MAGIC_OUTCOMES, *REPORTED_LATER, SLOW]) == sorted(MAGIC)


@pytest.mark.parametrize("digits", MAGIC_OUTCOMES)
async def test_a_magic_number_and_what_it_means(digits: str, meta: Provider) -> None:
    first = await submit(meta, 1, f"551191234{digits}")
    second = await submit(meta, 2, f"551191234{digits}")
    assert (type(first), type(second)) == MAGIC_OUTCOMES[digits]


async def test_who_waits_is_said_by_the_code(meta: Provider) -> None:
    assert await submit(meta, 1, "5511912349903") == Throttled(None, "131056", Scope.CONTACT)
    assert await submit(meta, 1, "5511912349901") == Throttled(5.0, "130429", Scope.SENDER)
    assert await submit(meta, 1, "5511912349902") == Throttled(2.0, "4", Scope.SERVICE)


async def test_a_message_may_be_accepted_and_kept_back(meta: Provider, simulator: Driver) -> None:
    await simulator.add_fault({"held": True}, calls=1)
    outcomes = [await submit(meta), await submit(meta, 2)]
    assert [outcome.note for outcome in outcomes if isinstance(outcome, Accepted)] == ["HELD_FOR_QUALITY", None]


async def test_what_fails_later_says_why(meta: Provider, simulator: Driver) -> None:
    codes = {"9951": "131026", "9952": "131049", "9953": "131050", "9954": "132015"}
    for seq, digits in enumerate(codes, start=1):
        assert isinstance(await submit(meta, seq, f"551191234{digits}"), Accepted)
    told = await statuses(simulator, 8)
    failures = {fact.seq: fact.code for fact in told if fact.kind is FactKind.FAILED}
    assert failures == dict(enumerate(codes.values(), start=1))


async def test_how_numbers_and_templates_stand(meta: Provider, simulator: Driver) -> None:
    told = {"quality": "YELLOW", "status": "CONNECTED", "limit": "TIER_2K"}
    await simulator.ask("POST", "senders", [{"sender": SENDER, **told}, {"sender": "2", "status": "BANNED"}])
    assert await meta.read_senders([SENDER, "2"]) == [
        SenderState(SENDER, "CONNECTED", Standing.GOOD, "MEDIUM", Tier("TIER_2K", 2_000)),
        SenderState("2", "BANNED", Standing.STOPPED),
    ]

    names = [f"t{number:03d}" for number in range(203)]
    for name in names:
        await simulator.ask("POST", "templates", {"name": name, "status": "APPROVED", "sender": "7"})
    await simulator.ask("POST", "templates", {"name": "t000", "status": "PAUSED", "sender": "7"})
    found = await meta.read_templates("7")
    assert [state.name for state in found] == names
    assert [state.word for state in found if not state.usable] == ["PAUSED"]
    assert all(isinstance(state, TemplateState) for state in found)

    await simulator.add_fault({"answer": "http", "http_status": 500, "error_id": 2}, on="states")
    with pytest.raises(StatesUnreadable):
        await meta.read_senders([SENDER])
    with pytest.raises(StatesUnreadable):
        await meta.read_templates("7")


async def test_a_number_that_the_token_does_not_reach_is_left_out(meta: Provider, simulator: Driver) -> None:
    await simulator.add_fault({"answer": "http", "http_status": 400, "error_id": 100}, on="states", calls=1)
    assert [state.sender for state in await meta.read_senders([SENDER, "2"])] == ["2"]


async def test_without_a_log_nothing_is_found_and_nothing_absent(meta: Provider) -> None:
    found = await meta.look_up([(BATCH, 1)])
    assert (found.facts, found.absent) == ((), ())
