"""Which schema this release needs. Apart from the migrations: a process that only asks need not load Alembic."""

from functools import cache
from pathlib import Path

PACKAGE_DIR = Path(__file__).parents[1]


@cache
def head_revision() -> str:
    """The newest revision. The files are named by their revisions, which rise."""
    return max(path.name.partition("_")[0] for path in (alembic_dir() / "versions").glob("[0-9]*.py"))


def alembic_dir() -> Path:
    """Inside the installed package, or beside `src` in a checkout."""
    for candidate in (PACKAGE_DIR / "_alembic", PACKAGE_DIR.parents[1] / "alembic"):
        if (candidate / "env.py").is_file():
            return candidate
    raise FileNotFoundError("the alembic folder is neither in the package nor in a checkout")
