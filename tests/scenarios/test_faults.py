"""What a provider can do wrong: every message ends where its answers put it, and none is sent twice."""

from typing import Any

from tests.scenarios.conftest import StackStarter
from tests.support.evidence import Evidence
from tests.support.factories import phone, value
from tests.support.stack import Api, Stack

FREE = {"bms": 2, "bm_limit": None, "messages_per_second": 200}
N = 40

HTTP: dict[str, Any] = {"answer": "http"}
RETURNED = {
    "429 with Retry-After": HTTP | {"http_status": 429, "retry_after": "1"},
    "429 without Retry-After": HTTP | {"http_status": 429},
    "500 in the provider's envelope": HTTP | {"http_status": 500},
    "503 in the newer envelope": HTTP | {"http_status": 503, "envelope": "newer"},
    "rejected as a transient error": {"answer": "reject", "status_id": 21},
}
"""Certainly not taken: it goes again."""
LOST = {
    "reset after it was taken": {"answer": "reset", "accept": True},
    "closed after it was taken": {"answer": "close", "accept": True},
    "never answered, taken": {"answer": "hang", "accept": True},
    "502 of a proxy, taken": HTTP | {"http_status": 502, "envelope": "none", "accept": True},
    "not JSON, taken": {"answer": "garbage", "accept": True},
    "without its row, taken": {"answer": "no_row", "accept": True},
    "reset before it was taken": {"answer": "reset"},
    "never answered, not taken": {"answer": "hang"},
    "504 of a proxy, not taken": HTTP | {"http_status": 504, "envelope": "none"},
}
"""Nobody can tell from the answer: receipts and the log do."""
REFUSED = {
    "the contact is refused": ({"answer": "reject", "status_id": 52}, "STATUS_52"),
    "the request is refused": (HTTP | {"http_status": 400, "error": "BAD_REQUEST", "text": "Bad request"}, "HTTP_400"),
    "it fails later": ({"status_id": 4, "error_id": 7002}, "EC_7002"),
}


async def strike(stack: Stack, plans: dict[str, dict[str, Any]]) -> dict[str, str]:
    """One fault for the first call to one contact each: what happens, by phone."""
    struck = {}
    for number, (what, plan) in enumerate(plans.items()):
        digits = phone(number).lstrip("+")
        struck[digits] = what
        await stack.simulator.fault(plan=plan, to=digits, calls=1)
    return struck


async def calls_by_phone(evidence: Evidence) -> dict[str, list[str]]:
    answers: dict[str, list[str]] = {}
    for arrival in evidence.arrivals:
        answers.setdefault(arrival.to, []).append(arrival.answer)
    return answers


async def test_what_was_not_taken_goes_again_until_it_is(start: StackStarter) -> None:
    async with start(FREE, workers=2) as stack:
        struck = await strike(stack, RETURNED)
        api = await stack.client()
        seen = await stack.settled(api, await api.create(N), 40)
        assert (seen["status"], seen["counts"]["delivered"] + seen["counts"]["seen"]) == ("completed", N)
        answers = await calls_by_phone(await stack.check())
        assert {what: len(answers[digits]) for digits, what in struck.items()} == dict.fromkeys(RETURNED, 2)
        assert sum(len(calls) for calls in answers.values()) == N + len(RETURNED)
        # To be throttled is no attempt.
        attempts = dict(await _attempts(api, seen["id"]))
        assert {what: attempts[digits] for digits, what in struck.items()} == {
            what: 0 if what.startswith("429") else 1 for what in RETURNED
        }


async def test_lost_answers_are_settled_by_receipts_and_the_log(start: StackStarter) -> None:
    async with start(FREE, workers=2) as stack:
        struck = await strike(stack, LOST)
        api = await stack.client()
        seen = await stack.settled(api, await api.create(N), 40)
        assert (seen["status"], seen["counts"]["delivered"] + seen["counts"]["seen"]) == ("completed", N)
        answers = await calls_by_phone(await stack.check())
        calls = {what: len(answers[digits]) for digits, what in struck.items()}
        assert calls == {what: 1 if plan.get("accept") else 2 for what, plan in LOST.items()}


async def test_without_receipts_the_log_alone_settles_lost_answers(start: StackStarter) -> None:
    settings = {"CARTEIRO_ASSUME_DELIVERED_AFTER_S": "4"}
    async with start(FREE, workers=2, settings=settings, simulator=["--no-receipts"]) as stack:
        struck = await strike(stack, LOST)
        api = await stack.client()
        batch_id = await api.create(N)
        seen = await stack.settled(api, batch_id, 40)
        assert (seen["status"], seen["counts"]["delivered"]) == ("completed", N)
        answers = await calls_by_phone(await stack.check())
        calls = {what: len(answers[digits]) for digits, what in struck.items()}
        assert calls == {what: 1 if plan.get("accept") else 2 for what, plan in LOST.items()}


async def test_refusals_fail_once_and_are_refunded(start: StackStarter) -> None:
    async with start(FREE) as stack:
        struck = await strike(stack, {what: plan for what, (plan, _) in REFUSED.items()})
        api = await stack.client()
        before = await api.credits()
        seen = await stack.settled(api, await api.create(N))
        assert seen["counts"]["failed"] == len(REFUSED)
        assert seen["money"] == {
            "debited": N,
            "charged": N - len(REFUSED),
            "refunded": len(REFUSED),
            "held": 0,
        }
        assert await api.credits() == before - N + len(REFUSED)
        failed = {row["phone"].lstrip("+"): row["code"] for row in await api.messages(seen["id"], status="failed")}
        assert failed == {digits: REFUSED[what][1] for digits, what in struck.items()}
        assert len(await stack.check()) == N


async def test_a_stopped_sender_leaves_its_messages_to_the_others(start: StackStarter) -> None:
    async with start(FREE) as stack:
        bad = await value(stack.pool, "SELECT min(id) FROM sender")
        await stack.simulator.fault(plan={"answer": "reject", "status_id": 13}, sender=bad)
        api = await stack.client()
        seen = await stack.settled(api, await api.create(N), 40)
        assert seen["counts"]["delivered"] + seen["counts"]["seen"] == N
        assert await value(stack.pool, "SELECT status FROM sender WHERE id = %s", bad) == "STOPPED"
        evidence = await stack.check()
        assert bad not in evidence.accepted.per_sender


async def test_a_provider_that_is_down_is_left_alone_and_probed(start: StackStarter) -> None:
    async with start(FREE, workers=2) as stack:
        await stack.simulator.fault(plan=HTTP | {"http_status": 503})
        api = await stack.client()
        batch_id = await api.create(200)
        seen = await stack.waiting(api, batch_id, "blackout", 15)
        assert seen["next_attempt_at"] is not None
        during = len(await stack.simulator.evidence())
        await stack.simulator.clear_faults()
        seen = await stack.settled(api, batch_id, 40)
        assert seen["counts"]["delivered"] + seen["counts"]["seen"] == 200
        evidence = await stack.check()
        assert len(evidence.accepted) == 200
        # All that was in the air when the fifteenth failed, and no more.
        assert during < 150


async def test_receipts_late_repeated_reordered_and_early_give_the_same_end(start: StackStarter) -> None:
    plans = ["usual", "repeat", "reorder", "early", "spoilt", "late"]
    async with start(FREE, workers=2, simulator=["--seen-ratio", "1"]) as stack:
        for number in range(N):
            plan = {"receipt": plans[number % len(plans)], "receipt_delay_ms": 1_500}
            await stack.simulator.fault(plan=plan, to=phone(number).lstrip("+"))
        api = await stack.client()
        batch_id = await api.create(N)
        seen = await stack.settled(api, batch_id)
        assert seen["money"]["charged"] == N
        # Being seen is no matter of money: such receipts come after the settlement too. The early ones report no more.
        early = sum(plans[number % len(plans)] == "early" for number in range(N))
        await stack.counted(api, batch_id, 15, seen=N - early, delivered=early)
        assert len(await stack.check()) == N


async def _attempts(api: Api, batch_id: Any) -> list[tuple[str, int]]:
    return [(row["phone"].lstrip("+"), row["attempt"]) for row in await api.messages(batch_id)]
