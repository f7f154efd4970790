"""One run: load, faults, drain, judgement."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.faults import RollingStop, chosen
from tests.chaos.judge import Verdict, judge
from tests.chaos.load import Loader
from tests.chaos.rig import Rig, running_rig

LOAD_S = 35.0
DRAIN_S = 150.0
"""How long after the last fault everything may take to be settled: several windows of the daily limits."""
RECOVERY_S = 10.0


@dataclass(frozen=True, slots=True)
class Run:
    """`seconds` from the first post until everything was settled."""

    faults: str
    seed: int
    seconds: float
    verdict: Verdict
    findings: list[str]


async def run(faults: str, seed: int, home: Path, *, load_s: float = LOAD_S) -> Run:
    """Logs of the processes are left in `home`. Raises KeyError for an unknown fault."""
    kinds = chosen(faults)
    environments: dict[int, Mapping[str, str]] = {}
    for kind in kinds:
        environments |= kind.worker_environments(home)
    proxied = any(kind.proxied for kind in kinds)
    async with running_rig(home, seed=seed, proxied=proxied, worker_environments=environments) as rig:
        began_s = time.monotonic()
        loader = Loader(rig, seed)
        loading = asyncio.create_task(loader.run())
        striking = [kind(seed) for kind in kinds]
        for fault in striking:
            await fault.start(rig)
        await asyncio.wait([loading], timeout=load_s)
        loader.stop()
        for fault in striking:
            await fault.stop(rig)
        drained = await _drain(rig, loader, loading)
        seconds = time.monotonic() - began_s
        verdict = await judge(rig, loader)
        findings = list(verdict.findings)
        if not drained:
            findings.append(f"not settled within {DRAIN_S:g} s after the last fault\n{rig.log_tails()}")
        if faults == RollingStop.name and verdict.lapsed:
            findings.append(f"{verdict.lapsed} messages were left under a lease by workers that were asked to stop")
        for child in rig.processes:
            if not child.running:
                findings.append(f"{child.name} is not running: {child.returncode}\n{child.log_tail(1_000)}")
        if verdict.recovery_s is not None and verdict.recovery_s > RECOVERY_S:
            findings.append(f"no call for {verdict.recovery_s:.1f} s after Postgres was back")
        await loader.close()
        return Run(faults, seed, seconds, verdict, findings)


async def _drain(rig: Rig, loader: Loader, loading: "asyncio.Task[None]") -> bool:
    """Everything answered, resumed and settled, and no claim open; False: not in time."""
    ends_s = time.monotonic() + DRAIN_S
    while time.monotonic() < ends_s:
        if loading.done():
            loading.result()
            await loader.resume_all()
            left = await rig.read(
                "SELECT (SELECT count(*) FROM batch WHERE status <> 'draft' AND settled_at IS NULL)"
                " + (SELECT count(*) FROM claim WHERE closed_at IS NULL)"
                " + (SELECT count(*) FROM receipt_inbox) AS n"
            )
            if left[0]["n"] == 0:
                return True
        await asyncio.sleep(0.25)
    loading.cancel()
    await asyncio.gather(loading, return_exceptions=True)
    return False
