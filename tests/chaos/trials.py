"""Runs with a world of their own, that measure one promise."""

import asyncio
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.chaos.fault import Fault, Record
from tests.chaos.rig import Moment, Rig
from tests.chaos.world import JITTER_MS, LATENCY_MS, MANAGERS, World
from tests.support.evidence import Arrival

UNLIMITED: dict[str, Any] = {"manager_limits": {}, "sender_limits": {}}


class FullThrottle(Fault):
    """Work always waits, and the limits are all that bounds it."""

    name = "full-throttle"
    does = "more work than the limits allow, for six windows: accepted >= 0.97 x limit x elapsed / window"
    windows = 6
    world = World(
        window_s=20.0,
        bucket_s=0.1,
        call_timeout_s=0.3,
        lateness_s=0.1,
        manager_limits=dict.fromkeys(MANAGERS, 100),
        sender_limits={},
        messages_per_s=40.0,
        sizes=(300,),
        plain=True,
        orders_every_s=None,
    )
    load_s = world.window_s * windows + 2.0
    every_s = (1.0, 1.0)
    least = 0.97
    counted_windows = 5

    async def strike(self, rig: Rig) -> None:
        """Look that there is always work."""
        waiting = await rig.read("SELECT coalesce(sum(pending), 0)::int AS n FROM batch_tally")
        self.did["seconds with work waiting"] += bool(waiting[0]["n"])
        self.did["seconds"] += 1

    async def stop(self, rig: Rig) -> None:
        await super().stop(rig)
        self.ended_ns = time.monotonic_ns()
        for row in await rig.read("SELECT id FROM batch WHERE status IN ('pending', 'processing')"):
            await rig.steering.order(row["id"], "cancel")

    def judge(self, record: Record) -> Iterable[str]:
        manager_of = {row["id"]: row["business_manager_id"] for row in record.book.tables["senders"]}
        shares = []
        accepted = record.evidence.accepted.arrivals
        for manager, limit in self.world.manager_limits.items():
            times_s = [call.at_s for call in accepted if manager_of[call.sender] == manager]
            shares.append(self._least_share(times_s, limit))
        self.did[f"{min(shares):.4f} of the limits used at least"] = 1
        if min(shares) < self.least:
            yield f"of the limits {min(shares):.4f} were used, less than {self.least}"
        if self.did["seconds with work waiting"] < self.did["seconds"] - 1:
            yield f"there was not always work: {dict(self.did)}"

    def _least_share(self, times_s: list[float], limit: int) -> float:
        """The least, over all instants at least five windows after the first call, of accepted / (limit x elapsed /
        window).
        """
        first_s, ends_s = times_s[0], self.ended_ns / 1e9
        shares = [
            place / (limit * (at_s - first_s) / self.world.window_s)
            for place, at_s in enumerate([*times_s, ends_s])
            if at_s - first_s >= self.world.window_s * self.counted_windows and at_s <= ends_s
        ]
        return min(shares)


class KillAtRate(Fault):
    """One worker that sends all there is, killed again and again."""

    name = "kill-at-rate"
    does = "kill -9 of the only worker at full rate R: unknown <= R x 0.5 s + calls in flight"
    world = World(
        workers=1, rate_per_s=75, messages_per_s=130.0, sizes=(60, 120, 240), **UNLIMITED, orders_every_s=None
    )
    load_s = 40.0
    every_s = (2.5, 4.5)
    before_s = 0.5

    async def strike(self, rig: Rig) -> None:
        (worker,) = rig.workers
        worker.kill()
        rig.killed.append((worker.pid, Moment.now()))
        self.did["killed"] += 1
        worker.start()

    def judge(self, record: Record) -> Iterable[str]:
        yield from super().judge(record)
        most = 0
        for pid, at in record.rig.killed:
            calls = [call for call in record.evidence.arrivals if _pid(record, call) == pid]
            answered_s = (LATENCY_MS + JITTER_MS) / 1000 * 2
            in_flight = sum(call.arrived_ns > at.monotonic_ns - answered_s * 1e9 for call in calls)
            unknown = len(record.book.lapsed.get(pid, ()))
            most = max(most, unknown)
            allowed = self.world.total_rate_per_s * self.before_s + in_flight
            if unknown > allowed:
                yield f"{unknown} messages unknown after kill -9, {in_flight} calls were in flight: above {allowed:.0f}"
        self.did[f"{most} unknown at most, at {self.world.total_rate_per_s}/s"] = 1
        if not most:
            yield "no kill left anything unknown: none struck a worker at work"


def _pid(record: Record, call: Arrival) -> int | None:
    claim = record.book.claims.get(call.claim_id or 0)
    return None if claim is None else claim.pid


class Halts(Fault):
    """Pauses and cancellations of batches whose calls are going out at this moment."""

    name = "halts"
    does = "200 pauses and 200 cancellations of batches at work: no call starts after the answer"
    world = World(rate_per_s=60, messages_per_s=150.0, sizes=(60, 120), **UNLIMITED, plain=True, orders_every_s=None)
    load_s = 300.0
    """At most."""
    every_s = (0.05, 0.3)
    lanes = 4
    wanted = 200
    at_work = "SELECT DISTINCT batch_id FROM claim WHERE closed_at IS NULL"

    def __init__(self, seed: int, home: Path) -> None:
        super().__init__(seed, home)
        self._asked = {"pause": 0, "cancel": 0}

    async def _run(self, rig: Rig) -> None:
        lane = super()._run
        await asyncio.gather(*(lane(rig) for _ in range(self.lanes)))

    async def strike(self, rig: Rig) -> None:
        free = sorted({row["batch_id"] for row in await rig.read(self.at_work)} - rig.steering.busy)
        if not free:
            return
        batch_id = self.random.choice(free)
        if self.random.random() < 0.5:
            await rig.steering.pause(batch_id, self.random.uniform(0.1, 0.5))
        else:
            await rig.steering.cancel(batch_id)
        for what in self._asked:
            self._asked[what] = sum(halt.what == what for halt in rig.steering.halts)

    def is_done(self) -> bool:
        return min(self._asked.values()) >= self.wanted

    def judge(self, record: Record) -> Iterable[str]:
        for what in self._asked:
            halts = [halt for halt in record.rig.steering.halts if halt.what == what]
            self.did[f"{what}s"] = len(halts)
            self.did[f"{what}s with calls on their way"] = sum(halt.on_their_way > 0 for halt in halts)
            if len(halts) < self.wanted:
                yield f"{len(halts)} of {self.wanted} {what}s were answered in time"


TRIALS = [FullThrottle, KillAtRate, Halts]
