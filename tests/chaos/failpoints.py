"""Processes that kill themselves at a named step, each at a hit that the seed chooses."""

import asyncio
import signal
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.chaos.fault import Fault, Record
from tests.chaos.rig import Rig
from tests.chaos.steps import ARMED, FIRED, ORDER_VARIABLE, STEPS, WRITTEN, Step

LOOK_EVERY_S = 0.05
HITTING_S = 0.1
"""From a process seeing that it is armed to its end."""


class Failpoint(Fault):
    """Every process of the step's kind, again and again, at one of its points after the other."""

    step: Step

    def __init__(self, seed: int, home: Path) -> None:
        super().__init__(seed, home)
        self._turn = self.random.randrange(len(self.step.points))
        home.mkdir(parents=True, exist_ok=True)
        (home / ARMED).touch()

    def environment(self, kind: str, place: int) -> Mapping[str, str]:
        return self._order() if kind == self.step.process else {}

    async def stop(self, rig: Rig) -> None:
        (self.home / ARMED).unlink()
        await super().stop(rig)
        await asyncio.sleep(HITTING_S)
        for child in rig.of_kind(self.step.process):
            if not child.running:
                child.start()

    async def _run(self, rig: Rig) -> None:
        while not self._stopping.is_set():
            await self.rest(LOOK_EVERY_S, LOOK_EVERY_S)
            for child in rig.of_kind(self.step.process):
                if child.running or self._stopping.is_set():
                    continue
                if child.returncode != -signal.SIGKILL:
                    rig.findings.append(f"{child.name} ended with {child.returncode}")
                child.environment.update(self._order())
                child.start()

    def _order(self) -> dict[str, str]:
        """The next point in turn."""
        point = self.step.points[self._turn % len(self.step.points)]
        self._turn += 1
        return {ORDER_VARIABLE: f"{point} {self.random.randint(1, self.step.hits)} {self.home}"}

    def judge(self, record: Record) -> Iterable[str]:
        """Every point was reached and killed; what was written arrived."""
        fired = self.home / FIRED
        lines = [line.split() for line in fired.read_text().splitlines()] if fired.exists() else []
        for point, *_ in lines:
            self.did[point] += 1
        for point in self.step.points:
            if not self.did[point]:
                yield f"{point} never killed"
        arrived = {call.message_id for call in record.evidence.arrivals}
        written = {message for point, *_, messages in lines if point == WRITTEN for message in messages.split(",")}
        lost = sorted(written - arrived)
        if lost:
            yield f"written, and never arrived: {lost}"


def _failpoint(name: str, step: Step) -> type[Failpoint]:
    does = f"{'APIs' if step.process == 'serve' else 'workers'} that kill themselves at {', '.join(step.points)}"
    return type(f"Fail{name}", (Failpoint,), {"name": f"fail-{name}", "does": does, "step": step, "world": step.world})


FAILPOINTS = [_failpoint(name, step) for name, step in STEPS.items()]
