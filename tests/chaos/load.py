"""Clients under way: they post, repeat what was not answered, pause, resume and cancel, all drawn from one seed."""

import asyncio
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import httpx

from tests.chaos.rig import SERVICES, Rig
from tests.support import factories

ANSWER_TIMEOUT_S = 4.0
POSTS_AT_ONCE = 6
MESSAGES_PER_S = 45.0
REPEATED = 0.1
"""Part of the posts that are sent a second time although the first was answered."""


@dataclass
class Posted:
    """One request, and the answer that it got in the end."""

    key: str
    body: dict[str, Any]
    status: int | None = None
    batch_id: UUID | None = None
    tries: int = 0

    @property
    def phones(self) -> set[str]:
        return {contact["phone"].lstrip("+") for contact in self.body["contacts"]}


@dataclass
class Halt:
    """A pause or a cancellation that was answered, and when the batch was told to go on."""

    batch_id: UUID
    what: str
    answered_ns: int
    resumed_ns: int | None = None


@dataclass
class Loader:
    rig: Rig
    seed: int
    posted: list[Posted] = field(default_factory=list)
    halts: list[Halt] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._sizes = random.Random(f"{self.seed}-sizes")
        self._choices = random.Random(f"{self.seed}-choices")
        self._next_phone = 0
        self._busy: set[UUID] = set()
        """Batches with an order under way, or with one that nobody knows the end of: it may be carried out late."""
        self._stopping = asyncio.Event()
        self._clients = [
            httpx.AsyncClient(
                base_url=f"{url}/api/v1",
                headers={"Authorization": f"Bearer {self.rig.key}"},
                timeout=ANSWER_TIMEOUT_S,
                trust_env=False,
            )
            for url in self.rig.api_urls
        ]

    async def run(self) -> None:
        """Until `stop`; what was posted by then is repeated until it is answered."""
        gate = asyncio.Semaphore(POSTS_AT_ONCE)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._steer())
            while not self._stopping.is_set():
                request = self._draw()
                await gate.acquire()
                tasks.create_task(self._post(request)).add_done_callback(lambda _: gate.release())
                pause_s = len(request.body["contacts"]) / MESSAGES_PER_S * self._sizes.uniform(0.5, 1.5)
                await self._rest(pause_s)

    def stop(self) -> None:
        self._stopping.set()

    async def close(self) -> None:
        for client in self._clients:
            await client.aclose()

    async def resume_all(self) -> None:
        """Ask for everything that is paused to go on."""
        for row in await self.rig.read("SELECT id FROM batch WHERE status = 'paused'"):
            await self._control(row["id"], "resume")

    def _draw(self) -> Posted:
        """A batch of a random size and kind, of contacts that no other has."""
        draw = self._sizes
        n = draw.choice([1, 3, 10, 25, 25, 60, 60, 120])
        options: dict[str, Any] = {}
        now = datetime.now(UTC)
        if draw.random() < 0.7:
            options["on_capacity"] = "spill"
        starts_at = now
        if draw.random() < 0.2:
            starts_at = now + timedelta(seconds=draw.uniform(1, 8))
            options["scheduled_at"] = starts_at.isoformat()
        if draw.random() < 0.2:
            options["expires_at"] = (starts_at + timedelta(seconds=draw.uniform(2, 15))).isoformat()
        if draw.random() < 0.3:
            options["callback_url"] = self.rig.simulator.callback_url
        body = factories.batch_body(n, start=self._next_phone, service=draw.choice(list(SERVICES)), **options)
        self._next_phone += n
        request = Posted(f"{self.seed}-{len(self.posted)}", body)
        self.posted.append(request)
        return request

    async def _post(self, request: Posted) -> None:
        """The same POST, through either API, until it is answered."""
        again = self._choices.random() < REPEATED
        while request.status is None or again:
            request.tries += 1
            answer = await self._ask("/batches", request.body, {"Idempotency-Key": request.key})
            if answer is None:
                # Not for ever: what does not begin in time is refused by then.
                await asyncio.sleep(self._choices.uniform(0.1, 0.6))
                continue
            if request.status is None:
                request.status = answer.status_code
            else:
                again = False
            if answer.status_code == 202:
                batch_id = UUID(answer.json()["id"])
                if request.batch_id not in (None, batch_id):
                    self.findings.append(f"key {request.key} was answered with {request.batch_id} and {batch_id}")
                request.batch_id = batch_id

    async def _steer(self) -> None:
        """Now and then pause a batch and resume it, or cancel one."""
        async with asyncio.TaskGroup() as tasks:
            while not self._stopping.is_set():
                await self._rest(self._choices.uniform(0.2, 1.0))
                alive = {request.batch_id for request in self.posted[-12:] if request.batch_id is not None}
                if free := sorted(alive - self._busy):
                    tasks.create_task(self._halt(self._choices.choice(free)))

    async def _halt(self, batch_id: UUID) -> None:
        self._busy.add(batch_id)
        if self._choices.random() < 0.25:
            if await self._control(batch_id, "cancel"):
                self.halts.append(Halt(batch_id, "cancel", time.monotonic_ns()))
            return
        done = await self._control(batch_id, "pause")
        if done:
            halt = Halt(batch_id, "pause", time.monotonic_ns())
            self.halts.append(halt)
            await self._rest(self._choices.uniform(0.2, 3.0))
            halt.resumed_ns = time.monotonic_ns()
            done = await self._control(batch_id, "resume")
        if done is not None:
            self._busy.discard(batch_id)

    async def _control(self, batch_id: UUID, what: str) -> bool | None:
        """Whether it was done: not if it was illegal by then. None: nobody knows."""
        answer = await self._ask(f"/batches/{batch_id}/{what}", {}, {})
        if answer is not None and answer.status_code not in (200, 409):
            self.findings.append(f"{what} of {batch_id} was answered with {answer.status_code}: {answer.text}")
        return None if answer is None else answer.status_code == 200

    async def _ask(self, path: str, body: Mapping[str, Any], headers: Mapping[str, str]) -> httpx.Response | None:
        """None: no answer, or one that says to try again."""
        try:
            answer = await self._choices.choice(self._clients).post(path, json=body, headers=headers)
        except httpx.TransportError:
            return None
        return None if answer.status_code >= 500 else answer

    async def _rest(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            pass
