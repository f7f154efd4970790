"""Orders to batches under way: pause, resume, cancel; and when each was answered."""

import asyncio
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import httpx

ANSWER_TIMEOUT_S = 4.0


@dataclass
class Halt:
    """A pause or a cancellation that was answered, and when the batch was told to go on."""

    batch_id: UUID
    what: str
    answered_ns: int
    on_their_way: int
    resumed_ns: int | None = None


class Steering:
    """A client of both APIs that halts batches. `halts` holds what was answered."""

    def __init__(self, api_urls: list[str], key: str, seed: int) -> None:
        self.random = random.Random(f"{seed}-steering")
        self.halts: list[Halt] = []
        self.findings: list[str] = []
        self.busy: set[UUID] = set()
        """Batches with an order under way, or with one that nobody knows the end of: it may be carried out late."""
        self.stopping = asyncio.Event()
        self._clients = [
            httpx.AsyncClient(
                base_url=f"{url}/api/v1",
                headers={"Authorization": f"Bearer {key}"},
                timeout=ANSWER_TIMEOUT_S,
                trust_env=False,
            )
            for url in api_urls
        ]

    async def close(self) -> None:
        for client in self._clients:
            await client.aclose()

    async def run(self, alive: Callable[[], set[UUID]], every_s: tuple[float, float], cancels: float) -> None:
        """Until `stopping`: now and then pause a batch and resume it, or cancel one."""
        async with asyncio.TaskGroup() as tasks:
            while not self.stopping.is_set():
                await self.rest(self.random.uniform(*every_s))
                if free := sorted(alive() - self.busy):
                    batch_id = self.random.choice(free)
                    if self.random.random() < cancels:
                        tasks.create_task(self.cancel(batch_id))
                    else:
                        tasks.create_task(self.pause(batch_id, self.random.uniform(0.2, 3.0)))

    async def pause(self, batch_id: UUID, for_s: float) -> None:
        """Pause it, and resume it after so long."""
        self.busy.add(batch_id)
        done = await self.order(batch_id, "pause")
        if done:
            halt = self._note(batch_id, "pause", done)
            await self.rest(for_s)
            halt.resumed_ns = time.monotonic_ns()
            done = await self.order(batch_id, "resume")
        if done is not None:
            self.busy.discard(batch_id)

    async def cancel(self, batch_id: UUID) -> None:
        self.busy.add(batch_id)
        if done := await self.order(batch_id, "cancel"):
            self._note(batch_id, "cancel", done)

    async def order(self, batch_id: UUID, what: str) -> dict[str, Any] | None:
        """The answer; empty if the order was illegal by then. None: nobody knows."""
        answer = await self.ask(f"/batches/{batch_id}/{what}", {}, {})
        if answer is not None and answer.status_code not in (200, 409):
            self.findings.append(f"{what} of {batch_id} was answered with {answer.status_code}: {answer.text}")
        if answer is None:
            return None
        told: dict[str, Any] = answer.json() if answer.status_code == 200 else {}
        return told

    async def ask(self, path: str, body: Mapping[str, Any], headers: Mapping[str, str]) -> httpx.Response | None:
        """POST to either API. None: no answer, or one that says to try again."""
        answer = await self.post(path, body, headers)
        return None if answer is None or answer.status_code >= 500 else answer

    async def post(self, path: str, body: Mapping[str, Any], headers: Mapping[str, str]) -> httpx.Response | None:
        """POST to either API, once. None: no answer."""
        try:
            return await self.random.choice(self._clients).post(path, json=body, headers=headers)
        except httpx.TransportError:
            return None

    async def rest(self, seconds: float) -> None:
        """Wait, but not longer than until the load ends."""
        try:
            async with asyncio.timeout(seconds):
                await self.stopping.wait()
        except TimeoutError:
            pass

    def _note(self, batch_id: UUID, what: str, told: Mapping[str, Any]) -> Halt:
        halt = Halt(batch_id, what, time.monotonic_ns(), told["already_on_their_way"])
        self.halts.append(halt)
        return halt
