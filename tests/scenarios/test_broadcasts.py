"""A broadcast by Meta, from the request to its last receipt, through a daily limit that is too small for its group."""

from typing import Any

import httpx

from tests.scenarios.conftest import StackStarter
from tests.scenarios.test_meta import listen
from tests.support import factories
from tests.support.directories import GROUP, LEADER, RECIPIENTS, load_directory
from tests.support.stack import window
from tests.support.waiting import until

BODY = {"group_id": GROUP, "template_name": factories.TEMPLATE, "variables": {"1": "all", "2": "7"}}
CATALOG = {"provider": "meta", "kind": "broadcast", "charge_rule": "free", "bm_limit": 15}
SETTINGS = {
    **window(4.0),
    "CARTEIRO_DIRECTORY_SCHEMA": "demo_directory",
    "CARTEIRO_META_APP_SECRETS": "simulated-app-secret",
}


async def test_a_broadcast_reaches_each_member_once_as_its_limit_allows(start: StackStarter, postgres_dsn: str) -> None:
    load_directory(postgres_dsn)
    async with start(CATALOG, settings=SETTINGS) as stack:
        await listen(stack)
        # Receipts that come three times and in disorder, and one that says that it failed.
        await stack.simulator.fault(plan={"receipt": "repeat"}, to="5511981000001")
        await stack.simulator.fault(plan={"receipt": "reorder"}, to="5511981000002")
        await stack.simulator.fault(plan={"status_id": 4, "error_id": 131026, "receipt": "repeat"}, to="5511981000003")
        api = await stack.client(owner=LEADER)
        balance = await api.credits()
        answers = [await api.http.post("/broadcasts", json=BODY, headers={"Idempotency-Key": "once"}) for _ in range(2)]
        assert [answer.status_code for answer in answers] == [202, 202], answers[0].text
        assert answers[0].json() == answers[1].json()
        id = answers[0].json()["public_id"]
        seen: list[dict[str, Any]] = []

        async def is_completed() -> bool:
            stack.check_alive()
            seen.append((await api.http.get(f"/broadcasts/{id}")).json())
            return bool(seen[-1]["status"] == "completed")

        await until(is_completed, 30.0, "the broadcast is completed")
        assert all(each["pending"] + each["sent"] + each["failed"] == RECIPIENTS for each in seen)
        assert [seen[-1][step] for step in ("sent", "delivered", "failed")] == [RECIPIENTS - 1, RECIPIENTS - 1, 1]
        assert "capacity" in {each["blocked_by"] for each in seen}
        recipients = (await api.http.get(f"/broadcasts/{id}/recipients")).json()["items"]
        failed = [recipient for recipient in recipients if recipient["status"] not in ("delivered", "read")]
        assert [(recipient["phone"], recipient["status"]) for recipient in failed] == [("+5511981000003", "failed")]
        assert failed[0]["error"]["code"] == "131026"
        told = await factories.value(
            stack.pool, "SELECT error_detail FROM audit.broadcast_recipients WHERE status = 'failed'"
        )
        assert told == failed[0]["error"]["detail"] is not None
        evidence = await stack.check()
        assert sorted(arrival.to for arrival in evidence.arrivals) == sorted(
            recipient["phone"].lstrip("+") for recipient in recipients
        )
        assert all(arrival.placeholders == ["all", "7"] for arrival in evidence.arrivals)
        assert await api.credits() == balance
        refused: httpx.Response = await (await stack.client(owner="bruno")).http.post("/broadcasts", json=BODY)
        assert refused.status_code == 403
