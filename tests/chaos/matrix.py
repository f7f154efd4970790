"""All faults by their names, and the runs that `make chaos` makes of them."""

from tests.chaos.failpoints import FAILPOINTS
from tests.chaos.fault import Fault
from tests.chaos.faults import (
    Clocks,
    Cut,
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
from tests.chaos.world import USUAL

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

FAULTS: dict[str, type[Fault]] = {fault.name: fault for fault in [*_SINGLE, *FAILPOINTS, *TRIALS]}

TOGETHER = ["kill+freeze+truncate+errors", "terminate+resets+truncate", "cut+silence"]

MATRIX: list[str] = [
    *(fault.name for fault in _SINGLE),
    *TOGETHER,
    *(f"{fail.name}+{fail.step.along}" if fail.step.along else fail.name for fail in FAILPOINTS),
    *(trial.name for trial in TRIALS),
]


def chosen(names: str) -> list[type[Fault]]:
    """`kill+truncate`: faults that strike together. Raises KeyError for one that there is not, ValueError for two that
    need different worlds.
    """
    faults = [FAULTS[name] for name in names.split("+")]
    if len(faults) > 1 and any(fault.world is not USUAL for fault in faults):
        raise ValueError(f"{names}: each needs a world of its own")
    return faults
