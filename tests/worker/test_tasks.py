"""Jobs are wake-up calls: one that says nothing of use is dropped, and the queue goes on."""

import pytest
from procrastinate import PsycopgConnector
from psycopg.types.json import Jsonb
from structlog.testing import capture_logs

from carteiro.storage import jobs
from carteiro.storage.catalog import UnknownService
from carteiro.storage.pool import Pool
from carteiro.worker.supervisor import _autocommit
from carteiro.worker.tasks import duties
from tests.support.factories import value


@pytest.fixture
def pumped(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was pumped; there is no service `gone`."""
    done: list[str] = []

    async def pump(service_id: str) -> None:
        if service_id == "gone":
            raise UnknownService("there is no service gone")
        done.append(service_id)

    monkeypatch.setattr(duties, "pump", pump, raising=False)
    return done


async def test_a_job_without_a_valid_id_is_dropped_with_a_log_line(
    pool: Pool, postgres_dsn: str, pumped: list[str]
) -> None:
    arguments = [{}, {"service_id": None}, {"service_id": ""}, {"service_id": 7}, {"id": "x"}, {"service_id": "gone"}]
    async with pool.connection() as conn:
        for given in [*arguments, {"service_id": "acme-links"}]:
            await conn.execute(
                "INSERT INTO procrastinate_jobs (queue_name, task_name, args) VALUES ('pump', 'pump', %s)",
                (Jsonb(given),),
            )
    connector = PsycopgConnector(conninfo=postgres_dsn, min_size=1, max_size=2, configure=_autocommit)
    with capture_logs() as logs, jobs.app.replace_connector(connector) as running:
        async with running.open_async():
            await running.run_worker_async(
                queues=["pump"], wait=False, delete_jobs="always", install_signal_handlers=False
            )
    assert pumped == ["acme-links"]
    assert [line["event"] for line in logs if line["event"] != "request"].count("job_dropped") == len(arguments)
    assert not [line for line in logs if line["log_level"] == "error"]
    assert await value(pool, "SELECT count(*) FROM procrastinate_jobs") == 0
