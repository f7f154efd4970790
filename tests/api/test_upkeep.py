"""What clients see of messages that went for their age, and of a contact who was erased."""

import httpx

from carteiro.domain.phones import Phone, parse
from carteiro.services.erasure import erase_contact
from carteiro.services.retention import retain
from carteiro.settings import Settings
from carteiro.storage.pool import Pool
from tests.api.problems import assert_problem
from tests.support.ages import add_settled_batch, make_partitions
from tests.support.dispatching import LIFTED, Bench, FakeProvider
from tests.support.factories import add_batch, phone


async def test_messages_that_are_gone_are_410_and_their_counts_are_not(client: httpx.AsyncClient, pool: Pool) -> None:
    await make_partitions(pool, weeks_back=16)
    batch_id = await add_settled_batch(pool, Bench(pool, LIFTED, FakeProvider()), 3, 100)
    path = f"/api/v1/batches/{batch_id}"
    assert len((await client.get(f"{path}/messages")).json()["items"]) == 3
    await retain(pool, Settings())
    assert_problem(await client.get(f"{path}/messages"), 410, "gone")
    batch = (await client.get(path)).json()
    assert batch["counts"]["delivered"] == batch["money"]["charged"] == 3
    listed = (await client.get("/api/v1/batches")).json()["items"]
    assert [item["id"] for item in listed] == [str(batch_id)]


async def test_an_erased_contact_has_no_phone(client: httpx.AsyncClient, pool: Pool) -> None:
    batch_id = await add_batch(pool, 2)
    contact = parse(phone(0))
    assert isinstance(contact, Phone)
    await erase_contact(pool, contact, actor="operator:ana")
    items = (await client.get(f"/api/v1/batches/{batch_id}/messages")).json()["items"]
    assert [(item["phone"], item["status"], item["code"]) for item in items] == [
        (None, "unsent", "ERASED"),
        (phone(1), "pending", None),
    ]
