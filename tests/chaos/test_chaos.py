"""A short run of the rig: kills, a lost job queue, and workers that kill themselves during a call. `make chaos` runs
all of the matrix, and longer.
"""

from pathlib import Path

import pytest

from tests.chaos.matrix import FAULTS, MATRIX, chosen
from tests.chaos.run import run
from tests.chaos.table import PAGE

SEED = 20_261
LOAD_S = 9.0


@pytest.mark.process
@pytest.mark.parametrize("faults", ["kill+truncate+fail-call"])
async def test_promises_hold_while_things_break(faults: str, tmp_path: Path) -> None:
    print(f"again: python -m tests.chaos --only {faults} --seed {SEED} --seconds {LOAD_S:g} --no-page")
    done = await run(faults, SEED, tmp_path, load_s=LOAD_S)
    assert not done.findings, "\n".join(done.findings)
    assert done.verdict.calls > 0
    assert done.verdict.witnessed > 0


def test_every_run_of_the_matrix_can_be_made() -> None:
    assert all(chosen(faults) for faults in MATRIX)


def test_faults_that_need_different_worlds_cannot_strike_together() -> None:
    with pytest.raises(ValueError, match="world of its own"):
        chosen("full-throttle+halts")


def test_the_page_names_every_fault() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert [name for name in FAULTS if f"| `{name}` |" not in page] == []
