"""The canonical batch: a thousand contacts over ten business managers of a hundred."""

import base64
from typing import Any

from standardwebhooks import Webhook

from tests.scenarios.conftest import StackStarter
from tests.support.factories import sender_id, value
from tests.support.waiting import until


async def test_a_thousand_over_ten_senders_of_a_hundred(start: StackStarter) -> None:
    async with start(
        {"bms": 10, "sender_limit": 100, "bm_limit": 2_000, "messages_per_second": 500}, workers=2
    ) as stack:
        api = await stack.client()
        before = await api.credits()
        batch_id = await api.create(1_000, callback_url=stack.simulator.callback_url)
        seen = await stack.settled(api, batch_id)

        assert seen["status"] == "completed"
        assert seen["counts"]["delivered"] + seen["counts"]["seen"] == 1_000
        assert seen["money"] == {"debited": 1_000, "charged": 1_000, "refunded": 0, "held": 0}
        assert await api.credits() == before - 1_000
        evidence = await stack.check()
        assert len(evidence) == len(evidence.accepted) == 1_000
        assert evidence.per_sender == {sender_id(n): 100 for n in range(1, 11)}
        assert (await api.capacity())["available"] == 0

        (callback,) = await until(stack.simulator.callbacks, 5, "the callback came")
        secret = await value(stack.pool, "SELECT callback_secret FROM account")
        _verify(secret, callback)


def _verify(secret: str, callback: dict[str, Any]) -> None:
    headers = {name.lower(): text for name, text in callback["headers"]}
    told = Webhook(secret).verify(base64.b64decode(callback["body_base64"]), headers)
    assert told["data"]["status"] == "completed"
