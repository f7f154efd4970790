"""`carteiro up`, as a process on a database of the test's."""

import os
import re
import signal
import socket
from pathlib import Path

import httpx
import pytest

from carteiro.storage.pool import Pool
from tests.support.factories import SERVICE, add_catalog, value
from tests.support.processes import ChildProcess, Processes, free_port
from tests.support.waiting import until


@pytest.mark.process
async def test_up_runs_what_it_says_starts_again_what_died_and_keeps_its_key(
    processes: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    processes.environment["CARTEIRO_PORT"] = str(free_port())
    up = await _started(processes)
    key_file = tmp_path / ".carteiro" / "api-key"
    key = key_file.read_text()
    assert key_file.stat().st_mode & 0o777 == 0o600

    os.kill(await _worker_pid(up), signal.SIGKILL)
    batches_url = _told(up, r"curl -sS (http://\S+/batches) ")
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {key.strip()}"}, trust_env=False) as client:
        posted = await client.post(batches_url, content=_told(up, r"(?s)-d '(.+?)'"))
        assert posted.status_code == 202, posted.text
        batch = posted.json()

        async def settled() -> bool:
            return (await client.get(f"{batches_url}/{batch['id']}")).json()["settled_at"] is not None

        await until(settled, 60, "the batch is settled by a new worker")
        assert up.stop(60) == 0
        assert "started again" in up.log()

        again = await _started(processes)
        assert key_file.read_text() == key
        credits = await client.get(batches_url.replace("/batches", "/credits"))
        assert credits.json()["balance"] == 100_000 - batch["total"]
        assert again.stop(60) == 0


@pytest.mark.process
def test_a_taken_port_is_said_and_nothing_is_started(processes: Processes, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        up = processes.start("up", environment={"CARTEIRO_PORT": str(port)})
        assert up.wait(30) == 1
    assert f"port {port} for the API is taken" in up.log()


@pytest.mark.process
async def test_a_database_with_a_catalog_of_its_own_is_left_alone(
    processes: Processes, pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    await add_catalog(pool)
    up = processes.start(
        "up", "--simulator-port", str(free_port()), environment={"CARTEIRO_PORT": str(free_port()), "COLUMNS": "300"}
    )
    assert up.wait(30) == 1
    assert "applying its catalog would end" in up.log()
    assert await value(pool, "SELECT active FROM service WHERE id = %s", SERVICE)
    assert await value(pool, "SELECT count(*) FROM account") == 1


async def _started(processes: Processes) -> ChildProcess:
    up = processes.start("up", "--simulator-port", str(free_port()))
    await up.ready(lambda: "Ctrl-C ends everything" in up.log(), timeout_s=60)
    return up


async def _worker_pid(up: ChildProcess) -> int:
    """Waits until the worker has started."""
    await up.ready(lambda: "worker_started" in up.log())
    for pid in Path(f"/proc/{up.pid}/task/{up.pid}/children").read_text().split():
        if Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[-2] == b"worker":
            return int(pid)
    raise AssertionError("there is no worker")


def _told(up: ChildProcess, pattern: str) -> str:
    found = re.search(pattern, up.log())
    assert found is not None, up.log_tail()
    return found[1]
