import subprocess
import sys

import psycopg

from carteiro.embedded import Cluster
from carteiro.storage.migrations import current_revision, include_name, migrate
from carteiro.storage.revisions import head_revision


def test_an_empty_database_is_brought_to_the_newest_revision(own_cluster: Cluster) -> None:
    assert current_revision(own_cluster.dsn()) is None
    assert migrate(own_cluster.dsn()) == (None, head_revision())
    assert current_revision(own_cluster.dsn()) == head_revision()


def test_processes_that_migrate_at_once_all_succeed(own_cluster: Cluster) -> None:
    code = "import sys; from carteiro.storage.migrations import migrate; print(migrate(sys.argv[1])[0])"
    started = [
        subprocess.Popen([sys.executable, "-c", code, own_cluster.dsn()], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    before = sorted(process.communicate()[0].strip() for process in started)
    assert [process.returncode for process in started] == [0, 0, 0]
    assert before == sorted(["None", head_revision(), head_revision()])


def test_the_lock_is_free_afterwards(own_cluster: Cluster) -> None:
    migrate(own_cluster.dsn())
    with psycopg.connect(own_cluster.dsn()) as session:
        assert session.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").fetchone() == (0,)


def test_the_queues_tables_and_partitions_are_not_compared() -> None:
    names = ["batch", "message", "message_p20261123", "procrastinate_jobs", "alembic_version"]
    assert [name for name in names if include_name(name, "table", {})] == ["batch", "message"]
