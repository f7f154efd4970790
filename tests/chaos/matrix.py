"""All faults by their names, and the runs that `make chaos` makes of them."""

from collections.abc import Sequence

from tests.chaos.failpoints import FAILPOINTS
from tests.chaos.fault import Fault
from tests.chaos.faults import (
    Clocks,
    Company,
    Cut,
    Doors,
    Freeze,
    Kill,
    Nothing,
    PostgresKill,
    PostgresRestart,
    RollingStop,
    Terminate,
    Truncate,
)
from tests.chaos.provider_faults import Errors, LogDown, Outage, Resets, Silence, Throttle
from tests.chaos.trials import TRIALS
from tests.chaos.world import USUAL, World

_SINGLE: list[type[Fault]] = [
    Nothing,
    Kill,
    RollingStop,
    Freeze,
    PostgresRestart,
    PostgresKill,
    Terminate,
    Truncate,
    Cut,
    Outage,
    Throttle,
    Resets,
    Silence,
    LogDown,
    Errors,
    Clocks,
]

_ALL: list[type[Fault]] = [*_SINGLE, Doors, Company, *FAILPOINTS, *TRIALS]
FAULTS: dict[str, type[Fault]] = {fault.name: fault for fault in _ALL}

DOORS = [Doors.name, *(f"{Doors.name}+{name}" for name in ("kill", "resets", "postgres-restart"))]

COMPANY = [Company.name, *(f"{Company.name}+{name}" for name in ("kill", "resets", "errors"))]

TOGETHER = ["kill+freeze+truncate+errors", "terminate+resets+truncate", "cut+silence", "halts+terminate"]

MATRIX: list[str] = [
    *(fault.name for fault in _SINGLE),
    *TOGETHER,
    *DOORS,
    *COMPANY,
    *(f"{fail.name}+{fail.step.along}" if fail.step.along else fail.name for fail in FAILPOINTS),
    *(trial.name for trial in TRIALS),
]


def chosen(names: str) -> list[type[Fault]]:
    """`kill+truncate`: faults that strike together. Raises KeyError for one that there is not, ValueError for two that
    need different worlds.
    """
    faults = [FAULTS[name] for name in names.split("+")]
    world_of(faults)
    return faults


def world_of(faults: Sequence[type[Fault] | Fault]) -> World:
    """The one that one of them needs, else the usual one. Raises ValueError when two need different ones."""
    needed = [fault.world for fault in faults if fault.world is not USUAL]
    if len(needed) > 1:
        raise ValueError(f"{' and '.join(fault.name for fault in faults)}: each needs a world of its own")
    return needed[0] if needed else USUAL
