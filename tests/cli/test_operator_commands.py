"""`carteiro catalog`, `keys`, `credits` and `serve`, as an operator types them."""

import re
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner, Result

from carteiro.cli import carteiro
from tests.support.factories import batch_body, catalog_text
from tests.support.processes import Processes, free_port


@pytest.fixture
def catalog_file(tmp_path: Path) -> Path:
    path = tmp_path / "catalog.toml"
    path.write_text(catalog_text(), encoding="utf-8")
    return path


def run(dsn: str, *arguments: str) -> Result:
    return CliRunner().invoke(carteiro, list(arguments), env={"CARTEIRO_DATABASE_URL": dsn})


def test_a_catalog_is_shown_applied_and_then_equal(postgres_dsn: str, catalog_file: Path) -> None:
    shown = run(postgres_dsn, "catalog", "apply", str(catalog_file), "--dry-run")
    assert shown.exit_code == 0
    assert "+ service acme-utility" in shown.output
    assert "6 rows would change; nothing was changed" in shown.output
    applied = run(postgres_dsn, "catalog", "apply", str(catalog_file))
    assert "6 rows changed" in applied.output
    assert run(postgres_dsn, "catalog", "apply", str(catalog_file)).output == "no changes\n"


def test_a_wrong_catalog_is_told_line_by_line(postgres_dsn: str, catalog_file: Path) -> None:
    catalog_file.write_text(catalog_text(charge_rule="half", rotation="none"), encoding="utf-8")
    result = run(postgres_dsn, "catalog", "apply", str(catalog_file))
    assert result.exit_code == 1
    assert "[[service]] #1 acme-utility" in result.output
    assert "Traceback" not in result.output


def test_a_key_is_printed_once_listed_and_revoked(postgres_dsn: str, catalog_file: Path) -> None:
    run(postgres_dsn, "catalog", "apply", str(catalog_file))
    made = run(postgres_dsn, "keys", "create", "acme", "--scope", "batches:read", "--expires", "2027-01-01")
    key = made.output.strip()
    assert re.fullmatch(r"carteiro_live_\w{12}_\w{49}", key)
    listed = run(postgres_dsn, "keys", "list", "acme").output
    key_id = key.split("_")[2]
    assert key_id in listed
    assert "until 2027-01-01 00:00" in listed
    assert key.split("_")[3] not in listed
    assert run(postgres_dsn, "keys", "revoke", key_id).exit_code == 0
    assert "revoked" in run(postgres_dsn, "keys", "list").output
    assert run(postgres_dsn, "keys", "revoke", key_id).exit_code == 1
    spoken = run(postgres_dsn, "keys", "create", "acme", "--owner", "ana", "--name", "app").output.strip()
    (line,) = [line for line in run(postgres_dsn, "keys", "list").output.splitlines() if spoken.split("_")[2] in line]
    assert line.endswith("  owner ana  app")


def test_the_secret_of_an_accounts_callbacks_can_be_read(postgres_dsn: str, catalog_file: Path) -> None:
    run(postgres_dsn, "catalog", "apply", str(catalog_file))
    secret = run(postgres_dsn, "keys", "callback-secret", "acme").output.strip()
    assert re.fullmatch(r"whsec_[0-9A-Za-z+/=]{44}", secret)
    assert run(postgres_dsn, "keys", "callback-secret", "acme").output.strip() == secret


def test_credits_are_granted_and_shown(postgres_dsn: str, catalog_file: Path) -> None:
    run(postgres_dsn, "catalog", "apply", str(catalog_file))
    grant = ("credits", "grant", "acme", "500", "--cause", "invoice 7", "--once")
    assert run(postgres_dsn, *grant).output == "acme has 500 credits\n"
    assert "nothing was done" in run(postgres_dsn, *grant).output
    assert run(postgres_dsn, "credits", "show", "acme").output == "acme may spend 500 credits\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("credits", "grant", "nobody", "1", "--cause", "x"),
        ("credits", "show", "nobody"),
        ("keys", "create", "nobody"),
        ("keys", "callback-secret", "nobody"),
    ],
)
def test_an_unknown_account_is_one_line(postgres_dsn: str, arguments: tuple[str, ...]) -> None:
    result = run(postgres_dsn, *arguments)
    assert result.exit_code == 1
    assert "no account nobody" in result.output


def test_a_database_that_is_away_is_one_line(tmp_path: Path) -> None:
    result = run(f"host={tmp_path} dbname=nothing", "credits", "show", "acme")
    assert result.exit_code == 1
    assert "the database cannot be reached" in result.output


@pytest.mark.process
async def test_serve_answers_until_it_is_told_to_stop(
    processes: Processes, postgres_dsn: str, catalog_file: Path
) -> None:
    port = free_port()
    server = processes.start("serve", environment={"CARTEIRO_PORT": str(port)})
    await server.ready_at(f"http://127.0.0.1:{port}/readyz")
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        response = await client.post("/api/v1/batches", json=batch_body())
        assert response.status_code == 401
        assert "server" not in response.headers
    assert server.stop() == 0
    assert '"route": "/api/v1/batches"' in server.log()
