"""Reports of delivery, in all the ways they can go wrong."""

import time
from typing import Any

import pytest

from carteiro.domain.outcomes import Accepted, FactKind, Outgoing
from carteiro.providers.contract import Provider
from tests.providers.driving import Driver
from tests.providers.infobip.reports import outgoing
from tests.support.waiting import until

Told = list[tuple[int, FactKind]]


def to_report(simulator: Driver, *seqs: int) -> list[Outgoing]:
    return [outgoing(seq, f"55319876500{seq:02d}", simulator.callback_url) for seq in seqs]


async def told_by(simulator: Driver, count: int) -> Told:
    """The first `count` facts that were reported, in their order."""

    async def enough() -> Told | None:
        told = [(fact.seq, fact.kind) for report in await simulator.reports() for fact in report.facts]
        return told if len(told) >= count else None

    told: Told = await until(enough, 5, f"{count} facts reported")
    return told


async def test_delivery_and_being_seen_are_reported(provider: Provider, simulator: Driver) -> None:
    await simulator.ask("POST", "settings", {"seen_ratio": 1, "seen_delay_ms": 30})
    await provider.submit(to_report(simulator, 1))
    assert await told_by(simulator, 2) == [(1, FactKind.DELIVERED), (1, FactKind.SEEN)]
    (call,) = await simulator.calls()
    assert (call["status_id"], call["seen"]) == (5, True)


PLANS: dict[str, tuple[dict[str, Any], Told]] = {
    "usual": ({}, [(1, FactKind.DELIVERED)]),
    "failure": ({"status_id": 4, "error_id": 7002}, [(1, FactKind.FAILED)]),
    "operator": ({"status_id": 2}, [(1, FactKind.SENT)]),
    "never known": ({"status_id": 29}, [(1, FactKind.SENT)]),
    "repeat": ({"receipt": "repeat"}, [(1, FactKind.DELIVERED)] * 3),
    "reorder": ({"receipt": "reorder"}, [(1, FactKind.SEEN), (1, FactKind.DELIVERED)]),
    "contradict": ({"receipt": "contradict"}, [(1, FactKind.FAILED), (1, FactKind.DELIVERED)]),
    "late": ({"receipt": "late", "receipt_delay_ms": 300}, [(1, FactKind.DELIVERED)]),
    "after a reset": ({"answer": "reset", "accept": True}, [(1, FactKind.DELIVERED)]),
}


@pytest.mark.parametrize("name", PLANS)
async def test_a_plan_and_its_reports(name: str, provider: Provider, simulator: Driver) -> None:
    plan, told = PLANS[name]
    await simulator.add_fault(plan)
    await provider.submit(to_report(simulator, 1))
    assert await told_by(simulator, len(told)) == told


async def test_late_is_later(provider: Provider, simulator: Driver) -> None:
    await simulator.add_fault({"receipt": "late", "receipt_delay_ms": 300})
    await provider.submit(to_report(simulator, 1))
    await told_by(simulator, 1)
    (call,), (callback,) = await simulator.calls(), await simulator.callbacks()
    assert callback["arrived_ns"] - call["arrived_ns"] >= 300_000_000


async def test_an_early_report_comes_before_the_answer(provider: Provider, simulator: Driver) -> None:
    await simulator.add_fault({"receipt": "early"})
    (outcome,) = await provider.submit(to_report(simulator, 1))
    answered_ns = time.monotonic_ns()
    assert isinstance(outcome, Accepted)
    assert await told_by(simulator, 1) == [(1, FactKind.DELIVERED)]
    assert (await simulator.callbacks())[0]["arrived_ns"] < answered_ns


async def test_a_spoilt_report_holds_the_good_item_too(provider: Provider, simulator: Driver) -> None:
    await simulator.add_fault({"receipt": "spoilt"})
    await provider.submit(to_report(simulator, 1))
    await told_by(simulator, 1)
    (report,) = await simulator.reports()
    assert (len(report.facts), report.malformed) == (1, 1)


async def test_several_results_go_into_one_post(provider: Provider, simulator: Driver) -> None:
    await simulator.ask("POST", "settings", {"results_per_post": 3})
    await simulator.ask("POST", "receipts", {"action": "hold"})
    await provider.submit(to_report(simulator, *range(1, 8)))

    async def all_due() -> bool:
        return (await simulator.stats())["receipts"]["held"] == 7

    await until(all_due, 5, "all reports held")
    assert await simulator.callbacks() == []
    assert await simulator.ask("POST", "receipts", {"action": "release", "order": "reversed"}) == {"reports": 7}
    told = await told_by(simulator, 7)
    assert sorted(told) == [(seq, FactKind.DELIVERED) for seq in range(1, 8)]
    assert sorted(len(report.facts) for report in await simulator.reports()) == [1, 3, 3]


async def test_held_reports_can_be_lost_and_reported_again(provider: Provider, simulator: Driver) -> None:
    await simulator.ask("POST", "receipts", {"action": "hold"})
    (accepted,) = await provider.submit(to_report(simulator, 1))
    assert isinstance(accepted, Accepted)

    async def held() -> bool:
        return (await simulator.stats())["receipts"]["held"] == 1

    await until(held, 5, "the report held")
    assert await simulator.ask("POST", "receipts", {"action": "drop"}) == {"reports": 1}
    assert await simulator.ask("POST", "receipts", {"action": "release"}) == {"reports": 0}
    again = {"action": "repeat", "message_ids": [accepted.provider_id, "unknown"]}
    assert await simulator.ask("POST", "receipts", again) == {"reports": 1}
    assert await told_by(simulator, 1) == [(1, FactKind.DELIVERED)]


async def test_anything_can_be_reported_of_a_message(provider: Provider, simulator: Driver) -> None:
    await simulator.add_fault({"receipt": "none"})
    (accepted,) = await provider.submit(to_report(simulator, 1))
    assert isinstance(accepted, Accepted)
    ids = [accepted.provider_id]
    await simulator.ask("POST", "receipts", {"action": "emit", "message_ids": ids, "seen": True})
    failure = {"action": "emit", "message_ids": ids, "status_id": 4, "error_id": 7032, "at": 1_800_000_000.5}
    await simulator.ask("POST", "receipts", failure)
    assert sorted(await told_by(simulator, 2)) == [(1, FactKind.FAILED), (1, FactKind.SEEN)]
    facts = [fact for report in await simulator.reports() for fact in report.facts]
    assert {fact.at.timestamp() for fact in facts if fact.kind is FactKind.FAILED} == {1_800_000_000.5}


async def test_no_report_when_they_are_stopped(provider: Provider, simulator: Driver) -> None:
    await simulator.ask("POST", "receipts", {"action": "stop"})
    await provider.submit(to_report(simulator, 1))
    await simulator.ask("POST", "receipts", {"action": "start"})
    await provider.submit(to_report(simulator, 2))
    assert await told_by(simulator, 1) == [(2, FactKind.DELIVERED)]
    assert [call["status_id"] for call in await simulator.calls()] == [None, 5]


async def test_a_refused_report_is_posted_again(provider: Provider, simulator: Driver) -> None:
    await simulator.add_fault({"answer": "http", "http_status": 503}, on="callback", calls=2)
    await simulator.add_fault({"answer": "reset"}, on="callback", calls=1)
    await provider.submit(to_report(simulator, 1))

    async def posted() -> bool:
        return (await simulator.stats())["receipts"]["posted"] == 1

    await until(posted, 5, "the report posted")
    answers = [callback["answer"] for callback in await simulator.callbacks()]
    assert answers == ["http", "http", "reset", "200"]
    assert (await simulator.stats())["receipts"]["refused"] == 3


async def test_a_report_that_nobody_takes_is_given_up(provider: Provider, simulator: Driver) -> None:
    await simulator.ask("POST", "settings", {"receipt_attempts": 2})
    await simulator.add_fault({"answer": "http", "http_status": 503}, on="callback")
    await provider.submit(to_report(simulator, 1))

    async def given_up() -> bool:
        return (await simulator.stats())["receipts"]["given_up"] == 1

    await until(given_up, 5, "the report given up")
    assert len(await simulator.callbacks()) == 2
