"""What the import rules of pyproject.toml cannot see: a clock or an environment read by a built-in, a hidden commit."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import carteiro

PACKAGE = Path(carteiro.__file__).parent

# Attribute calls, by their last two names.
CLOCK_AND_ENVIRONMENT = {
    ("datetime", "now"),
    ("datetime", "today"),
    ("datetime", "utcnow"),
    ("date", "today"),
    ("time", "time"),
    ("time", "time_ns"),
    ("time", "monotonic"),
    ("os", "getenv"),
    ("os", "environ"),
    ("uuid", "uuid1"),
    ("uuid", "uuid4"),
    ("random", "random"),
    ("random", "choice"),
    ("secrets", "token_bytes"),
}


def modules(layer: str) -> list[Path]:
    return sorted((PACKAGE / layer).rglob("*.py"))


def attributes(path: Path) -> Iterator[tuple[str, str, int]]:
    """(owner, attribute, line) for each `owner.attribute` in a file, the owner by its own last name."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute):
            owner = node.value
            name = owner.id if isinstance(owner, ast.Name) else owner.attr if isinstance(owner, ast.Attribute) else ""
            yield name, node.attr, node.lineno


@pytest.mark.parametrize("path", modules("domain"), ids=lambda path: path.stem)
def test_the_domain_reads_no_clock_no_environment_and_no_chance(path: Path) -> None:
    found = [f"{path.name}:{line}" for owner, name, line in attributes(path) if (owner, name) in CLOCK_AND_ENVIRONMENT]
    assert found == []


@pytest.mark.parametrize(
    "path",
    [path for path in modules("storage") if path.stem not in {"pool", "migrations"}],
    ids=lambda path: path.stem,
)
def test_storage_leaves_the_transaction_to_its_caller(path: Path) -> None:
    found = [f"{path.name}:{line}" for _, name, line in attributes(path) if name in {"commit", "rollback"}]
    assert found == []
