"""A batch by Meta, whose answers may be lost and which keeps no log: what is not known ends visibly, never twice."""

from typing import Any

from tests.scenarios.conftest import StackStarter
from tests.scenarios.test_crashes import freeze_at_work
from tests.scenarios.test_faults import calls_by_phone, strike
from tests.support.factories import number_id, sender_id, value
from tests.support.stack import Stack

META: dict[str, Any] = {
    "provider": "meta",
    "bms": 2,
    "senders_per_bm": 2,
    "bm_limit": None,
    "messages_per_second": 200,
}
SETTINGS = {
    "CARTEIRO_META_APP_SECRETS": "an-old-secret,simulated-app-secret",
    "CARTEIRO_UNKNOWN_GIVE_UP_AFTER_S": "6",
}
SLOW = ["--latency-ms", "40", "--jitter-ms", "40", "--receipt-delay-ms", "300", "--receipt-jitter-ms", "500"]
N = 60

HTTP: dict[str, Any] = {"answer": "http", "http_status": 400}
RETURNED = {
    "too many to one contact": HTTP | {"error_id": 131056},
    "too many from one number": HTTP | {"error_id": 130429},
    "not available": HTTP | {"http_status": 500, "error_id": 131016},
}
"""Certainly not taken: it goes again."""
SETTLED = {
    "something went wrong, taken": HTTP | {"http_status": 500, "error_id": 131000, "accept": True},
    "reset, taken": {"answer": "reset", "accept": True},
    "never answered, taken": {"answer": "hang", "accept": True},
    "reported before the answer": {"receipt": "early", "delay_ms": 300},
}
"""Its receipt says that it went."""
GIVEN_UP = {
    "never answered, nothing reported": {"answer": "hang", "accept": True, "receipt": "none"},
    "reset before it was taken": {"answer": "reset"},
}
"""Nobody will ever know."""
FAILED = {
    "refused": (HTTP | {"error_id": 131021}, "131021"),
    "not on WhatsApp": ({"status_id": 4, "error_id": 131026}, "131026"),
}


async def listen(stack: Stack, **options: Any) -> None:
    """Let the simulator post what Meta tells to our webhook."""
    url = f"{stack.api_url}/webhooks/whatsapp-status"
    answer = await stack.simulator.http.post("/settings", json={"meta_webhook_url": url, **options})
    assert answer.status_code == 200, answer.text


async def test_what_is_not_known_is_settled_by_receipts_or_visibly_given_up(start: StackStarter) -> None:
    async with start(META, workers=2, settings=SETTINGS, simulator=SLOW) as stack:
        await listen(stack)
        plans = {**RETURNED, **SETTLED, **GIVEN_UP, **{what: plan for what, (plan, _) in FAILED.items()}}
        struck = await strike(stack, plans)
        api = await stack.client()
        seen = await stack.settled(api, await api.create(N), 60)
        counts = seen["counts"]
        assert counts["delivered"] + counts["seen"] == N - len(GIVEN_UP) - len(FAILED)
        assert counts["failed"] == len(GIVEN_UP) + len(FAILED)

        failed = {item["phone"].lstrip("+"): item["code"] for item in await api.messages(seen["id"], status="failed")}
        assert {struck[digits]: code for digits, code in failed.items()} == {
            **dict.fromkeys(GIVEN_UP, "OUTCOME_UNKNOWN"),
            **{what: code for what, (_, code) in FAILED.items()},
        }
        evidence = await stack.check()
        calls = {struck.get(digits, ""): len(answers) for digits, answers in (await calls_by_phone(evidence)).items()}
        assert calls == {what: 2 if what in RETURNED else 1 for what in ["", *plans]}
        assert set(evidence.per_sender) == {number_id(sender_id(bm, place)) for bm in (1, 2) for place in (1, 2)}
        assert await value(stack.pool, "SELECT count(*) FROM receipt WHERE result IN ('orphan', 'malformed')") == 0


async def test_statuses_with_metas_id_only_find_their_messages(start: StackStarter) -> None:
    """Also those that are posted before the answer that tells us the id."""
    async with start(META, settings=SETTINGS, simulator=[*SLOW, "--no-meta-opaque"]) as stack:
        await listen(stack, results_per_post=7)
        await stack.simulator.fault(plan={"receipt": "early", "delay_ms": 200}, probability=0.3)
        api = await stack.client()
        seen = await stack.settled(api, await api.create(N), 40)
        assert seen["counts"]["delivered"] + seen["counts"]["seen"] == N
        assert await value(stack.pool, "SELECT (SELECT count(*) FROM receipt_waiting)") == 0
        assert await value(stack.pool, "SELECT count(*) FROM message_alias") == N
        assert await value(stack.pool, "SELECT count(*) FROM receipt WHERE result IN ('orphan', 'malformed')") == 0


async def test_a_worker_killed_with_calls_under_way_leaves_nothing_to_guess(start: StackStarter) -> None:
    """What it had sent is settled by receipts. What it had claimed and not sent is given up: nobody can tell it from
    what was sent.
    """
    async with start(META, workers=2, settings=SETTINGS, simulator=["--latency-ms", "250"]) as stack:
        await listen(stack)
        api = await stack.client()
        batch_id = await api.create(600)
        await stack.counted(api, batch_id, 20, gone=100)
        dead = await freeze_at_work(stack)
        dead.kill()
        seen = await stack.settled(api, batch_id, 60)
        arrived = seen["counts"]["delivered"] + seen["counts"]["seen"]
        given_up = await api.messages(batch_id, status="failed")
        assert {item["code"] for item in given_up} <= {"OUTCOME_UNKNOWN"}
        assert (seen["status"], arrived + len(given_up)) == ("completed", 600)
        evidence = await stack.check()
        assert len(evidence) == arrived
