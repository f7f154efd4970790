"""One run: load, faults, drain, judgement."""

import asyncio
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.fault import Fault
from tests.chaos.judge import Verdict, judge
from tests.chaos.load import Loader
from tests.chaos.matrix import chosen, world_of
from tests.chaos.rig import Rig, running_rig

LOAD_S = 35.0
DRAIN_S = 150.0
"""How long after the last fault everything may take to be settled: several windows of the daily limits."""
LOOK_EVERY_S = 0.2

LEFT = (
    "SELECT (SELECT count(*) FROM batch WHERE status <> 'draft' AND settled_at IS NULL)"
    " + (SELECT count(*) FROM claim WHERE closed_at IS NULL)"
    " + (SELECT count(*) FROM callback WHERE delivered_at IS NULL AND gave_up_at IS NULL)"
    " + (SELECT count(*) FROM receipt_inbox)"
    " + (SELECT count(*) FROM follow_up WHERE status IN ('pending', 'pending_send', 'unknown')) AS n"
)
"""What is still to come to its end."""


@dataclass(frozen=True, slots=True)
class Run:
    """`seconds` from the first post until everything was settled. `did`: what the faults did, and how often."""

    faults: str
    seed: int
    seconds: float
    verdict: Verdict
    did: Counter[str]
    findings: list[str]


async def run(faults: str, seed: int, home: Path, *, load_s: float = LOAD_S) -> Run:
    """Logs of the processes are left in `home`. Raises KeyError for an unknown fault."""
    striking = [kind(seed, home) for kind in chosen(faults)]
    load_s = max([load_s if fault.load_s is None else fault.load_s for fault in striking])

    def environments(kind: str, place: int) -> dict[str, str]:
        return {name: value for fault in striking for name, value in fault.environment(kind, place).items()}

    proxied = any(fault.proxied for fault in striking)
    async with running_rig(world_of(striking), home, seed=seed, proxied=proxied, environments=environments) as rig:
        began_s = time.monotonic()
        loader = Loader(rig, seed)
        loading = asyncio.create_task(loader.run())
        for fault in striking:
            await fault.start(rig)
        await _load(loading, striking, began_s + load_s)
        loader.stop()
        for fault in striking:
            await fault.stop(rig)
        drained = await _drain(rig, loading)
        seconds = time.monotonic() - began_s
        verdict, record = await judge(rig, loader, may_be_blind=any(fault.strikes_postgres for fault in striking))
        findings = list(verdict.findings)
        if not drained:
            findings.append(f"not settled within {DRAIN_S:g} s after the last fault\n{rig.log_tails()}")
        for fault in striking:
            findings += fault.judge(record)
        for child in rig.processes:
            if not child.running:
                findings.append(f"{child.name} is not running: {child.returncode}\n{child.log_tail(1_000)}")
        return Run(faults, seed, seconds, verdict, sum((fault.did for fault in striking), Counter()), findings)


async def _load(loading: "asyncio.Task[None]", striking: list[Fault], ends_s: float) -> None:
    """Until the time is up, a fault has had enough, or the load broke off."""
    while time.monotonic() < ends_s and not loading.done() and not any(fault.is_done() for fault in striking):
        await asyncio.wait([loading], timeout=LOOK_EVERY_S)


async def _drain(rig: Rig, loading: "asyncio.Task[None]") -> bool:
    """Everything answered, resumed and settled, and no claim open; False: not in time."""
    ends_s = time.monotonic() + DRAIN_S
    while time.monotonic() < ends_s:
        if loading.done():
            loading.result()
            for row in await rig.read("SELECT id FROM batch WHERE status = 'paused'"):
                await rig.steering.order(row["id"], "resume")
            if (await rig.read(LEFT))[0]["n"] == 0:
                return True
        await asyncio.sleep(LOOK_EVERY_S)
    loading.cancel()
    await asyncio.gather(loading, return_exceptions=True)
    return False
