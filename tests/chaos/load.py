"""Clients that post batches, and repeat what was not answered, all drawn from one seed."""

import asyncio
import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from tests.chaos.doors import Doors
from tests.chaos.rig import Rig
from tests.support import factories

POSTS_AT_ONCE = 6
REPEATED = 0.1
"""Part of the posts that are sent a second time although the first was answered."""
FOLLOWED_UP = 0.5
"""Part of the batches that follow up answers, where all doors are open."""
RECENT = 12
"""So many of the latest batches are steered."""


@dataclass
class Posted:
    """One request, and the answer that it got in the end."""

    key: str
    body: dict[str, Any]
    status: int | None = None
    batch_id: UUID | None = None
    tries: int = 0
    answered_at: datetime | None = None

    @property
    def came_too_late(self) -> bool:
        """It had expired by the time that it was answered: it may have been refused for that."""
        expires_at = self.body.get("expires_at")
        answered_at = self.answered_at
        return expires_at is not None and answered_at is not None and datetime.fromisoformat(expires_at) < answered_at

    @property
    def phones(self) -> set[str]:
        return {contact["phone"].lstrip("+") for contact in self.body["contacts"]}


@dataclass
class Loader:
    rig: Rig
    seed: int
    posted: list[Posted] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._sizes = random.Random(f"{self.seed}-sizes")
        self._choices = random.Random(f"{self.seed}-choices")
        self._next_phone = 0
        self.doors = Doors(self.rig, self.seed) if self.rig.world.doors else None

    async def run(self) -> None:
        """Until `stop`; what was posted by then is repeated until it is answered."""
        gate = asyncio.Semaphore(POSTS_AT_ONCE)
        world, steering = self.rig.world, self.rig.steering
        async with asyncio.TaskGroup() as tasks:
            if world.orders_every_s is not None:
                tasks.create_task(steering.run(self._recent, world.orders_every_s, world.cancels))
            if self.doors is not None:
                tasks.create_task(self.doors.run(self._followed))
            while not steering.stopping.is_set():
                request = self._draw()
                await gate.acquire()
                tasks.create_task(self._post(request)).add_done_callback(lambda _: gate.release())
                pause_s = len(request.body["contacts"]) / world.messages_per_s
                await steering.rest(pause_s * self._sizes.uniform(0.5, 1.5))

    def stop(self) -> None:
        self.rig.steering.stopping.set()

    def _followed(self) -> set[str]:
        return {each.batch_id.hex for each in self.posted if each.batch_id is not None and "follow_up" in each.body}

    def _recent(self) -> set[UUID]:
        recent = {request.batch_id for request in self.posted[-RECENT:] if request.batch_id is not None}
        return recent if self.doors is None else recent | self.doors.recent_broadcasts()

    def _draw(self) -> Posted:
        """A batch of a random size and kind, of contacts that no other has."""
        draw = self._sizes
        n = draw.choice(self.rig.world.sizes)
        options: dict[str, Any] = {"on_capacity": "spill"} if self.rig.world.plain else self._draw_options()
        body = factories.batch_body(n, start=self._next_phone, service=draw.choice(self.rig.world.services), **options)
        self._next_phone += n
        request = Posted(f"{self.seed}-{len(self.posted)}", body)
        self.posted.append(request)
        return request

    def _draw_options(self) -> dict[str, Any]:
        draw = self._sizes
        options: dict[str, Any] = {}
        if draw.random() < 0.7:
            options["on_capacity"] = "spill"
        starts_at = now = datetime.now(UTC)
        if draw.random() < 0.2:
            starts_at = now + timedelta(seconds=draw.uniform(1, 8))
            options["scheduled_at"] = starts_at.isoformat()
        if draw.random() < 0.2:
            options["expires_at"] = (starts_at + timedelta(seconds=draw.uniform(2, 15))).isoformat()
        if draw.random() < 0.4:
            options["callback_url"] = self.rig.simulator.callback_url
        if self.rig.world.doors and draw.random() < FOLLOWED_UP:
            options["follow_up"] = {"text": "Here are the details."}
        return options

    async def _post(self, request: Posted) -> None:
        """The same POST, through either API, until it is answered."""
        again = self._choices.random() < REPEATED
        while request.status is None or again:
            request.tries += 1
            answer = await self.rig.steering.ask("/batches", request.body, {"Idempotency-Key": request.key})
            if answer is None:
                await asyncio.sleep(self._choices.uniform(0.1, 0.6))
                continue
            if request.status is None:
                request.status, request.answered_at = answer.status_code, datetime.now(UTC)
            else:
                again = False
            if answer.status_code == 202:
                batch_id = UUID(answer.json()["id"])
                if request.batch_id not in (None, batch_id):
                    self.findings.append(f"key {request.key} was answered with {request.batch_id} and {batch_id}")
                request.batch_id = batch_id
