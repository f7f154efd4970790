"""The embedded Postgres, through what tests and the demo rely on: it starts, it dies, it comes back with its data."""

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import psycopg
import pytest

from carteiro.embedded import Cluster, ClusterError
from tests.support.databases import chosen_binaries
from tests.support.processes import free_port
from tests.support.waiting import until


@pytest.mark.parametrize("ending", ["stop", "stop_immediately", "kill"])
def test_committed_rows_survive_every_way_of_ending(own_cluster: Cluster, ending: str) -> None:
    with psycopg.connect(own_cluster.dsn(), autocommit=True) as session:
        session.execute("CREATE TABLE t AS SELECT generate_series(1, 1000) AS n")
        address = own_cluster.dsn()
        getattr(own_cluster, ending)()
    assert own_cluster.pid is None
    own_cluster.start()
    assert own_cluster.dsn() == address
    with psycopg.connect(own_cluster.dsn()) as session:
        assert session.execute("SELECT count(*) FROM t").fetchone() == (1000,)


def test_it_starts_again_while_a_session_of_the_killed_server_is_still_busy(own_cluster: Cluster) -> None:
    session = psycopg.connect(own_cluster.dsn())
    session.pgconn.send_query(b"SELECT count(*) FROM generate_series(1, 3000000)")
    own_cluster.kill()
    own_cluster.start()
    session.close()
    with psycopg.connect(own_cluster.dsn()) as session:
        assert session.execute("SELECT 1").fetchone() == (1,)


def test_starting_a_running_server_does_nothing(own_cluster: Cluster) -> None:
    pid = own_cluster.pid
    own_cluster.start()
    assert own_cluster.pid == pid


def test_clients_come_in_by_a_private_socket_only(own_cluster: Cluster) -> None:
    with psycopg.connect(own_cluster.dsn()) as session:
        assert session.execute("SHOW listen_addresses").fetchone() == ("",)
        assert session.execute("SHOW timezone").fetchone() == ("UTC",)
        (sockets,) = session.execute("SHOW unix_socket_directories").fetchone() or ("",)
    assert Path(sockets).stat().st_mode & 0o777 == 0o700


def test_a_path_too_long_for_a_socket_gets_a_short_socket_folder(own_cluster: Cluster) -> None:
    long_dir = own_cluster.data_dir.parent / ("x" * 120) / "data"
    with Cluster(long_dir, durable=False, binaries=chosen_binaries()) as cluster:
        with psycopg.connect(cluster.dsn()) as session:
            (sockets,) = session.execute("SHOW unix_socket_directories").fetchone() or ("",)
        assert Path(sockets).stat().st_mode & 0o777 == 0o700
    assert not Path(sockets).exists()


def test_a_tcp_port_is_opened_on_request_and_asks_for_the_password(own_cluster: Cluster) -> None:
    data_dir = own_cluster.data_dir.with_name("with_tcp")
    with Cluster(data_dir, durable=False, tcp_port=free_port(), binaries=chosen_binaries()) as cluster:
        with psycopg.connect(cluster.tcp_dsn()) as session:
            assert session.execute("SELECT host(inet_server_addr())").fetchone() == ("127.0.0.1",)
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(f"postgresql://postgres:wrong@127.0.0.1:{cluster.port}/postgres")


def test_a_server_that_cannot_start_says_why(own_cluster: Cluster) -> None:
    own_cluster.stop()
    broken = Cluster(own_cluster.data_dir, settings={"shared_buffers": "nonsense"}, binaries=chosen_binaries())
    with pytest.raises(ClusterError, match="shared_buffers"):
        broken.start()
    assert broken.pid is None


def test_a_creation_that_was_interrupted_is_begun_anew(own_cluster: Cluster) -> None:
    data_dir = own_cluster.data_dir.with_name("interrupted")
    leftover = data_dir.with_name("interrupted.unfinished")
    leftover.mkdir()
    (leftover / "PG_VERSION").write_text("half")
    with Cluster(data_dir, durable=False, binaries=chosen_binaries()) as cluster:
        assert cluster.pid is not None
    assert not leftover.exists()


def test_only_a_cluster_for_throwing_away_runs_without_fsync(own_cluster: Cluster) -> None:
    with psycopg.connect(own_cluster.dsn()) as session:
        assert session.execute("SHOW fsync").fetchone() == ("off",)
    with (
        Cluster(own_cluster.data_dir.with_name("durable"), binaries=chosen_binaries()) as durable,
        psycopg.connect(durable.dsn()) as session,
    ):
        assert session.execute("SHOW fsync").fetchone() == ("on",)


def test_it_must_be_started_in_the_main_thread(own_cluster: Cluster) -> None:
    own_cluster.stop()
    caught: list[BaseException] = []

    def start() -> None:
        try:
            own_cluster.start()
        except RuntimeError as error:
            caught.append(error)

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert len(caught) == 1


CHILD = """
import signal, sys
from pathlib import Path
from carteiro.embedded import throwaway_cluster
from tests.support.databases import chosen_binaries
with throwaway_cluster(binaries=chosen_binaries()) as cluster:
    print(cluster.pid, cluster.data_dir.parent, flush=True)
    signal.pause()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's parent-death signal is Linux's")
async def test_the_server_ends_when_its_starter_is_killed() -> None:
    starter = subprocess.Popen([sys.executable, "-c", CHILD], stdout=subprocess.PIPE, text=True)
    try:
        assert starter.stdout is not None
        pid, home = starter.stdout.readline().split()
        socket_file = Path(home) / "data" / ".s.PGSQL.5432"
        assert socket_file.exists()
        starter.kill()
        starter.wait()
        await until(lambda: not socket_file.exists(), 10, f"server {pid} gone")
    finally:
        starter.kill()
        shutil.rmtree(home)


def test_a_ctrl_c_of_the_terminal_does_not_reach_the_server(own_cluster: Cluster) -> None:
    assert own_cluster.pid is not None
    assert os.getpgid(own_cluster.pid) != os.getpgid(0)
