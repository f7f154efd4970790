"""A short run of the rig with faults that strike together. `make chaos` runs all of them, and longer."""

from pathlib import Path

import pytest

from tests.chaos.run import run

SEED = 20_261


@pytest.mark.parametrize("faults", ["kill+truncate+resets"])
async def test_promises_hold_while_things_break(faults: str, tmp_path: Path) -> None:
    print(f"again: python -m tests.chaos --only {faults} --seed {SEED} --seconds 12")
    done = await run(faults, SEED, tmp_path, load_s=12.0)
    assert not done.findings, "\n".join(done.findings)
    assert done.verdict.calls > 0
