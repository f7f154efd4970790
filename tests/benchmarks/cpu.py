"""How much CPU a process and all its children have used."""

import os
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")
PARENT, USER, SYSTEM, REAPED_USER, REAPED_SYSTEM = 1, 11, 12, 13, 14
"""Fields of /proc/PID/stat after the name."""


def tree_s(root: int) -> float:
    """Seconds of a process, its living descendants, and of its children that ended."""
    found = {int(path.name): stat for path in Path("/proc").iterdir() if path.name.isdigit() and (stat := _read(path))}
    ticks = 0
    for pid, stat in found.items():
        ancestor = pid
        while ancestor != root and ancestor in found:
            ancestor = found[ancestor][PARENT]
        if ancestor == root:
            ticks += stat[USER] + stat[SYSTEM]
    if root in found:
        ticks += found[root][REAPED_USER] + found[root][REAPED_SYSTEM]
    return ticks / _TICK


def _read(path: Path) -> list[int] | None:
    try:
        fields = (path / "stat").read_text().rpartition(")")[2].split()
    except OSError:  # it ended meanwhile
        return None
    return [int(field) if field.lstrip("-").isdigit() else 0 for field in fields]
