"""`carteiro migrate`, as a process."""

import os
import subprocess
import sys

import pytest

from carteiro.embedded import Cluster
from carteiro.storage.revisions import head_revision


def run(dsn: str | None) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CARTEIRO_")}
    if dsn is not None:
        environment["CARTEIRO_DATABASE_URL"] = dsn
    return subprocess.run(
        [sys.executable, "-m", "carteiro", "migrate"], env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.process
def test_migrate_says_what_it_did_and_can_be_repeated(own_cluster: Cluster) -> None:
    first = run(own_cluster.dsn())
    assert (first.returncode, first.stdout) == (0, f"migrated from nothing to {head_revision()}\n")
    second = run(own_cluster.dsn())
    assert (second.returncode, second.stdout) == (0, f"already at revision {head_revision()}\n")


@pytest.mark.process
def test_without_a_database_it_says_which_variable_is_missing() -> None:
    done = run(None)
    assert done.returncode == 1
    assert done.stderr == "carteiro: CARTEIRO_DATABASE_URL is not set: it says which Postgres to use\n"


@pytest.mark.process
def test_an_unreachable_database_is_an_error_without_a_traceback() -> None:
    done = run("host=/nonexistent")
    assert done.returncode == 1
    assert "cannot be reached" in done.stderr
    assert "Traceback" not in done.stderr
