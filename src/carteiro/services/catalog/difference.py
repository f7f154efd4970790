"""What applying a catalog would change, row by row and field by field. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from carteiro.services.catalog.entries import KEYS, TABLES
from carteiro.storage.catalog import Row


class Sign(StrEnum):
    ADDED = "+"
    REMOVED = "-"
    CHANGED = "~"


@dataclass(frozen=True, slots=True)
class Change:
    """One row that is to be written; `fields` are (column, before, after) of a changed one."""

    sign: Sign
    table: str
    key: str
    row: Row
    fields: tuple[tuple[str, Any, Any], ...] = ()

    def lines(self) -> list[str]:
        """For people: the row, then a line a field."""
        told = [f"{self.sign} {self.table} {self.key}"]
        told += [f"    {name}: {_shown(before)} -> {_shown(after)}" for name, before, after in self.fields]
        return told


def find_changes(present: Mapping[str, Sequence[Row]], wanted: Mapping[str, Sequence[Row]]) -> list[Change]:
    """In the order in which they can be written. What vanished from the file comes last, from the leaves upwards.

    Accounts that vanished stay: they own money. Services, business managers and senders are deactivated once.
    """
    changes: list[Change] = []
    for table in TABLES:
        old = _by_key(table, present[table])
        for key, row in _by_key(table, wanted[table]).items():
            if key not in old:
                changes.append(Change(Sign.ADDED, table, " ".join(key), row))
            elif fields := _differences(old[key], row):
                changes.append(Change(Sign.CHANGED, table, " ".join(key), row, fields))
    for table in reversed(TABLES):
        kept = _by_key(table, wanted[table])
        for key, row in _by_key(table, present[table]).items():
            if key not in kept and table != "account" and row.get("active", True):
                changes.append(Change(Sign.REMOVED, table, " ".join(key), row))
    return changes


def faults_of(change: Change) -> Iterator[str]:
    """What no file may change, because batches, money and history stand on it."""
    for name, before, after in change.fields:
        if (change.table, name) == ("service", "account_id"):
            yield (
                f"service {change.key}: it belongs to account {before}, with its batches and their money, and cannot "
                f"become {after}'s. Give {after} a service with another id."
            )


def _by_key(table: str, rows: Sequence[Row]) -> dict[tuple[str, ...], Row]:
    return {tuple(str(row[name]) for name in KEYS[table]): row for row in rows}


def _differences(before: Row, after: Row) -> tuple[tuple[str, Any, Any], ...]:
    """A template's content is compared member by member."""
    found = []
    for name, value in after.items():
        if name == "content":
            old = before[name]
            found += [(part, old.get(part), new) for part, new in value.items() if old.get(part) != new]
        elif before[name] != value:
            found.append((name, before[name], value))
    return tuple(found)


def _shown(value: Any) -> str:
    if isinstance(value, bytes):
        return value.hex()[:12]
    return "none" if value is None else str(value)
