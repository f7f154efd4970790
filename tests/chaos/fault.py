"""What every fault has: a name, a world to strike in, strikes that are counted, and its own judgement."""

import asyncio
import random
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from tests.chaos.book import Book
from tests.chaos.rig import Rig
from tests.chaos.world import USUAL, World
from tests.support.evidence import Evidence


@dataclass(frozen=True, slots=True)
class Record:
    """What a run left behind."""

    rig: Rig
    evidence: Evidence
    book: Book


class Fault:
    """Strikes again and again, at random intervals. A strike that has begun is finished, and undone, before `stop`
    returns.
    """

    name: ClassVar[str]
    does: ClassVar[str]
    every_s: ClassVar[tuple[float, float]]
    world: ClassVar[World] = USUAL
    load_s: ClassVar[float | None] = None
    """How long the load has to last; None: as long as the caller says."""
    proxied: ClassVar[bool] = False
    """Workers, all but one, reach Postgres through the proxy."""
    strikes_postgres: ClassVar[bool] = False
    """The witness cannot always look."""

    def __init__(self, seed: int, home: Path) -> None:
        self.random = random.Random(f"{seed}-{self.name}")
        self.home = home
        self.did: Counter[str] = Counter()
        """What it did, and how often: told beside the result. One that did nothing is a finding."""
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def environment(self, kind: str, place: int) -> Mapping[str, str]:
        """More variables of the n-th process of a kind, when it is first started."""
        return {}

    async def start(self, rig: Rig) -> None:
        self._task = asyncio.create_task(self._run(rig))

    async def stop(self, rig: Rig) -> None:
        self._stopping.set()
        if self._task is not None:
            await self._task

    async def strike(self, rig: Rig) -> None:
        raise NotImplementedError

    def is_done(self) -> bool:
        """Whether the load may end before its time."""
        return False

    def judge(self, record: Record) -> Iterable[str]:
        """What this fault in particular must not lead to, and whether it struck at all."""
        if not self.did:
            yield f"{self.name} never struck"

    async def _run(self, rig: Rig) -> None:
        while not self._stopping.is_set():
            await self.rest(*self.every_s)
            if not self._stopping.is_set():
                await self.strike(rig)

    async def rest(self, least_s: float, most_s: float) -> None:
        """Wait a random time, or until the fault is to end."""
        try:
            async with asyncio.timeout(self.random.uniform(least_s, most_s)):
                await self._stopping.wait()
        except TimeoutError:
            pass
