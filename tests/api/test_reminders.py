"""Reminders over HTTP: what each outcome is answered with."""

from collections.abc import AsyncIterator

import httpx
import pytest

from carteiro.api.app import create_app
from carteiro.domain.outcomes import Ambiguous, Kind, Outcome, Outgoing, Rejected, Throttled
from carteiro.services.broadcast import Directory
from carteiro.services.group_links.reminder import Reminders
from carteiro.storage.pool import Pool
from tests.api.problems import assert_problem
from tests.support.dispatching import LIFTED, FakeProvider, take
from tests.support.factories import add_key, phone
from tests.support.group_links import add_links, link_body

PATH = "/api/v1/sendreminder"


@pytest.fixture
async def reminding(pool: Pool, directory: Directory) -> AsyncIterator[httpx.AsyncClient]:
    """A client of an account with a service for group links, at a provider that answers by the phone's last digit."""
    await add_links(pool)
    answers: dict[str, Outcome] = {
        "1": Rejected("EC_7", Kind.CONTACT),
        "2": Ambiguous("TIMEOUT"),
        "3": Throttled(7.0),
    }

    def answer(outgoing: Outgoing) -> Outcome:
        return answers.get(outgoing.to[-1]) or take(outgoing)

    provider = FakeProvider(answer)

    async def provider_for(_service_id: str) -> FakeProvider:
        return provider

    reminders = Reminders(pool, LIFTED, "api-1", provider_for)
    app = create_app(LIFTED, pool, directory, reminders)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)  # type: ignore[arg-type]
    headers = {"authorization": f"Bearer {await add_key(pool, scopes=['group-link:send'])}"}
    async with httpx.AsyncClient(transport=transport, base_url="http://carteiro.test", headers=headers) as client:
        yield client


async def test_each_outcome_has_its_answer(reminding: httpx.AsyncClient) -> None:
    sent = await reminding.post(PATH, json=link_body(0, reference="r"))
    assert sent.status_code == 200
    body = sent.json()
    assert (body["status"], body["door"], body["code"], body["available_at"]) == ("sent", "reminder", None, None)
    assert (await reminding.get(sent.headers["location"])).json() == body
    assert phone(0) not in sent.text
    again = await reminding.post(PATH, json=link_body(0, reference="r"))
    assert (again.status_code, again.headers["idempotent-replayed"], again.json()) == (200, "true", body)
    refused = await reminding.post(PATH, json=link_body(1))
    assert (refused.status_code, refused.json()["status"], refused.json()["code"]) == (200, "failed", "EC_7")
    ambiguous = await reminding.post(PATH, json=link_body(2))
    assert (ambiguous.status_code, ambiguous.json()["status"]) == (202, "processing")
    throttled = await reminding.post(PATH, json=link_body(3))
    problem = assert_problem(throttled, 503, "reminder-not-sent")
    assert throttled.headers["retry-after"] == "7"
    unsent = (await reminding.get(f"/api/v1/group-links/{problem['id']}")).json()
    assert (unsent["status"], unsent["code"]) == ("failed", "BATCH_EXPIRED")


async def test_what_is_refused(reminding: httpx.AsyncClient, pool: Pool) -> None:
    assert_problem(await reminding.post(PATH, json=link_body(delay_ms=5)), 400, "invalid-request")
    await reminding.post(PATH, json=link_body(0, reference="r"))
    assert_problem(await reminding.post(PATH, json=link_body(1, reference="r")), 422, "reference-reused")
    elsewhere = await reminding.post("/api/v1/group-links", json=link_body(0, reference="r"))
    assert_problem(elsewhere, 422, "reference-reused")
    reminding.headers["authorization"] = f"Bearer {await add_key(pool, scopes=['group-link:read'])}"
    assert_problem(await reminding.post(PATH, json=link_body()), 403, "forbidden")
