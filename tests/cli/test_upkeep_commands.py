"""`carteiro sync`, `retention` and `erase`, as an operator types them."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx
import pytest
from click.testing import CliRunner, Result

from carteiro.cli import carteiro
from carteiro.providers.simulator.app import running_simulator
from carteiro.providers.simulator.options import Options
from carteiro.storage.pool import Pool
from tests.support.ages import add_old_batch, make_partitions
from tests.support.factories import add_account, add_batch, bm_id, catalog_text, phone, sender_id, value

Run = Callable[..., Awaitable[Result]]


@pytest.fixture
def run(postgres_dsn: str) -> Run:
    """Runs the command beside the test's event loop, on which the simulator is."""

    async def invoke(*arguments: str, **environment: str) -> Result:
        env = {"CARTEIRO_DATABASE_URL": postgres_dsn, "INFOBIP_KEY": "key", **environment}
        return await asyncio.to_thread(CliRunner().invoke, carteiro, list(arguments), env=env)

    return invoke


@pytest.fixture
async def simulator() -> AsyncIterator[str]:
    async with running_simulator(Options(latency_ms=0)) as address:
        yield address


async def tell(simulator: str, path: str, body: Any) -> None:
    async with httpx.AsyncClient() as client:
        assert (await client.post(f"{simulator}/_sim/{path}", json=body)).is_success


async def test_a_sync_applies_what_the_provider_says_and_shows_it(pool: Pool, run: Run, simulator: str) -> None:
    await add_account(pool, bm_limit=None, base_url=simulator)
    await tell(simulator, "senders", {"sender": sender_id(1), "status": "BANNED", "limit": "LIMIT_250"})
    await tell(simulator, "templates", {"name": "order_update_v1", "status": "DISABLED"})
    result = await run("sync")
    assert result.exit_code == 0, result.output
    assert result.output.splitlines() == [
        f"business manager {bm_id(1)}: limit none -> 250",
        f"sender {sender_id(1)}: status ACTIVE -> BANNED",
        f"template order_update_v1 pt_BR of {bm_id(1)}: APPROVED -> DISABLED",
    ]
    assert (await run("sync")).output == "no changes\n"


async def test_a_sync_without_an_answer_fails_in_words(pool: Pool, run: Run, simulator: str) -> None:
    await add_account(pool, base_url=simulator)
    await tell(simulator, "faults", {"plan": {"answer": "http", "http_status": 503}, "on": "states"})
    result = await run("sync")
    assert result.exit_code == 1
    assert "error: no answer: service acme-utility: HTTP 503" in result.output
    result = await run("sync", INFOBIP_KEY="")
    assert result.exit_code == 1
    assert "INFOBIP_KEY is not set" in result.output
    assert "Traceback" not in result.output


async def test_a_manager_without_a_limit_is_told_when_the_catalog_is_applied(run: Run, tmp_path: Any) -> None:
    path = tmp_path / "catalog.toml"
    path.write_text(catalog_text(bm_limit=None), encoding="utf-8")
    assert "warning" not in (await run("catalog", "apply", str(path), "--dry-run")).output
    for _ in range(2):
        result = await run("catalog", "apply", str(path))
        assert result.exit_code == 0
        assert f"warning: business manager {bm_id(1)} has no daily limit that is known" in result.output
    path.write_text(catalog_text(bm_limit=10), encoding="utf-8")
    assert "warning" not in (await run("catalog", "apply", str(path))).output


async def test_retention_shows_what_goes_and_what_is_kept(pool: Pool, run: Run) -> None:
    assert (await run("retention")).output == "nothing is old enough\n"
    await make_partitions(pool, weeks_back=16)
    await add_account(pool, credits=10)
    open_batch = await add_old_batch(pool, 2, 100)
    shown = await run("retention", "--dry-run")
    assert "would drop message_p" in shown.output
    assert f"such as {open_batch}" in shown.output
    done = await run("retention")
    assert done.exit_code == 0
    assert done.output.count("dropped") == shown.output.count("would drop") > 0
    assert [line for line in (await run("retention")).output.splitlines() if "dropped" in line] == []


async def test_a_contact_is_erased_after_a_question(pool: Pool, run: Run) -> None:
    await add_account(pool, credits=10)
    await add_batch(pool, 2)
    assert (await run("erase", phone(0))).exit_code == 1, "nobody said yes"
    assert await value(pool, "SELECT count(*) FROM erasure") == 0
    result = await run("erase", phone(0), "--reason", "letter of 3 May", "--yes")
    assert result.exit_code == 0
    assert result.output.splitlines() == [
        "1 messages erased, 0 raw receipts and inbound messages",
        "1 of the messages had not left, and will not",
    ]
    assert (
        await value(pool, "SELECT min(reason) FROM audit.erasures WHERE actor LIKE 'operator:%%'") == "letter of 3 May"
    )


async def test_an_erasure_that_is_not_finished_says_so(pool: Pool, run: Run) -> None:
    await add_account(pool)
    async with pool.connection() as conn:
        body = json.dumps({"results": [{"from": phone(0).removeprefix("+")}]})
        await conn.execute(
            "WITH stored AS (INSERT INTO receipt_payload (service_id, body) VALUES ('acme-utility', %s)"
            " RETURNING id, received_at) INSERT INTO receipt_inbox SELECT id, received_at FROM stored",
            (body.encode(),),
        )
    result = await run("erase", phone(0), "--yes")
    assert result.exit_code == 1
    assert "1 raw receipts are not merged yet" in result.output


async def test_what_is_no_phone_is_refused(run: Run) -> None:
    result = await run("erase", "12", "--yes")
    assert result.exit_code == 1
    assert "too short" in result.output
