"""The other doors under load: broadcasts, group links, reminders; and contacts who answer what follows up."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import httpx
import msgspec
import psycopg

from tests.chaos.rig import Rig
from tests.support import factories
from tests.support.directories import GROUP
from tests.support.evidence import Evidence
from tests.support.group_links import link_body

FIRST_LINK = 600_000
"""Number of the phone of the first link; each has one of its own, and no batch has it."""
BROADCAST_EVERY_S, LINK_EVERY_S, REMINDER_EVERY_S, ANSWER_EVERY_S = 4.0, 0.6, 1.2, 0.5
ANSWERED = 0.6
"""Part of the contacts of a batch that follows up who answer; half of the others only react."""
UNSENT_AGAIN = 0.5
"""Part of the reminders that are asked for again after they were told to be unsent."""
TOLD_AGAIN_S = 60.0
"""How long after the load answers are told again that nothing came of."""
NOT_SENT = "reminder-not-sent"
RECENT = 3

Followed = Callable[[], set[str]]
"""The batches that follow up, by their 32 hex digits."""


@dataclass
class Asked:
    """One person asked for at one door under one reference, and what was answered."""

    door: str
    reference: str
    body: dict[str, Any]
    ids: list[UUID] = field(default_factory=list)
    """Of the batches that answers named, each once."""
    sent: list[UUID] = field(default_factory=list)
    """Told to be sent."""
    unsent: list[UUID] = field(default_factory=list)
    """Told to be neither sent now nor ever."""
    ended: bool = False
    """An answer came that says what became of it."""

    @property
    def phone(self) -> str:
        return str(self.body["phone"]).lstrip("+")

    def note(self, id: str, told: list[UUID] | None = None) -> None:
        for found in (self.ids, told):
            if found is not None and UUID(id) not in found:
                found.append(UUID(id))


class Doors:
    """Clients of all doors but that for batches, drawn from the seed."""

    def __init__(self, rig: Rig, seed: int) -> None:
        self.rig = rig
        self.seed = seed
        self.random = random.Random(f"{seed}-doors")
        self.broadcasts: dict[str, UUID | None] = {}
        """By their Idempotency-Key; None: not answered so far."""
        self.asked: list[Asked] = []
        self.answered: set[str] = set()
        """Ids of the messages that a contact was made to answer."""
        self.findings: list[str] = []

    def recent_broadcasts(self) -> set[UUID]:
        return {id for id in list(self.broadcasts.values())[-RECENT:] if id is not None}

    async def run(self, followed: Followed) -> None:
        """Until `stopping`; what was asked by then is repeated until it is answered."""
        async with asyncio.TaskGroup() as tasks:
            for every_s, one in (
                (BROADCAST_EVERY_S, self._broadcast),
                (LINK_EVERY_S, self._ask_for_link),
                (REMINDER_EVERY_S, self._ask_for_reminder),
            ):
                tasks.create_task(self._again_and_again(tasks, every_s, one))
            tasks.create_task(self._answer(followed))

    async def _again_and_again(self, tasks: asyncio.TaskGroup, every_s: float, one: Callable[[], Any]) -> None:
        steering = self.rig.steering
        while not steering.stopping.is_set():
            tasks.create_task(one())
            await steering.rest(every_s * self.random.uniform(0.5, 1.5))

    async def _broadcast(self) -> None:
        key = f"{self.seed}-broadcast-{len(self.broadcasts)}"
        self.broadcasts[key] = None
        body = {"group_id": GROUP, "template_name": factories.TEMPLATE, "variables": {"1": "all", "2": key}}
        again = self.random.random() < 0.2
        while self.broadcasts[key] is None or again:
            answer = await self.rig.steering.ask("/broadcasts", body, {"Idempotency-Key": key})
            if answer is None:
                await self._pause()
                continue
            if answer.status_code != 202:
                self.findings.append(f"broadcast {key} was answered with {answer.status_code}: {answer.text}")
                return
            id = UUID(answer.json()["broadcast_id"])
            if self.broadcasts[key] is not None:
                again = False
                if self.broadcasts[key] != id:
                    self.findings.append(f"key {key} was answered with {self.broadcasts[key]} and {id}")
            self.broadcasts[key] = id

    async def _ask_for_link(self) -> None:
        delay_ms = self.random.choice([0, 0, 500, 3_000, 8_000])
        asked = self._draw("group_link", delay_ms=delay_ms, max_attempts=self.random.choice([1, 3, 5]))
        again = self.random.random() < 0.2
        while not asked.ended or again:
            answer = await self.rig.steering.ask("/group-links", asked.body, {})
            if answer is None:
                await self._pause()
                continue
            if answer.status_code not in (200, 202):
                self._refused(asked, answer)
                return
            again = again and not asked.ended
            asked.ended = True
            asked.note(answer.json()["id"])

    async def _ask_for_reminder(self) -> None:
        asked = self._draw("reminder")
        while not asked.ended:
            answer = await self.rig.steering.post("/sendreminder", asked.body, {})
            if answer is None:
                await self._pause()
                continue
            told = _object(answer)
            if answer.status_code in (200, 202):
                asked.ended = True
                asked.note(told["id"], asked.sent if told["status"] == "sent" else None)
            elif answer.status_code == 503 and NOT_SENT in str(told.get("type", "")):
                if told.get("id"):
                    asked.note(told["id"], asked.unsent)
                asked.ended = self.random.random() >= UNSENT_AGAIN
                await self._pause()
            elif answer.status_code >= 500:
                await self._pause()
            else:
                self._refused(asked, answer)
                return

    def _draw(self, door: str, **fields: Any) -> Asked:
        number = len(self.asked)
        flow = self.random.choice(["personal", "business"])
        reference = f"{self.seed}-{door}-{number}"
        asked = Asked(door, reference, link_body(FIRST_LINK + number, flow=flow, reference=reference, **fields))
        self.asked.append(asked)
        return asked

    def _refused(self, asked: Asked, answer: httpx.Response) -> None:
        self.findings.append(f"{asked.door} {asked.reference} was answered with {answer.status_code}: {answer.text}")

    async def _answer(self, followed: Followed) -> None:
        """Contacts answer what reached them, in every way that there is; in the end again where nothing came of it."""
        since, open_keys = 0, list[str]()
        steering = self.rig.steering
        while not steering.stopping.is_set():
            await steering.rest(ANSWER_EVERY_S)
            lines = (await self.rig.simulator.http.get("/calls", params={"since": since, "limit": 10_000})).content
            since += lines.count(b"\n")
            arrived = Evidence.read(lines).accepted.where(lambda call: bool(call.template)).arrivals
            open_keys += [call.message_id for call in arrived]
            batches = followed()
            mine = [key for key in open_keys if key.partition("-")[0] in batches]
            open_keys = [key for key in open_keys if key.partition("-")[0] not in batches]
            answering = [key for key in mine if self.random.random() < ANSWERED]
            reacting = [key for key in mine if key not in answering and self.random.random() < 0.5]
            await self._write(answering, self.random.choice(["text", "button", "image"]))
            await self._write(reacting, "reaction")
            self.answered.update(answering)
        async with asyncio.timeout(TOLD_AGAIN_S):
            while missing := await self._not_followed_up():
                await self.rig.simulator.http.post("/answers", json={"message_ids": missing})
                await asyncio.sleep(1.0)

    async def _write(self, keys: list[str], kind: str) -> None:
        if not keys:
            return
        order: dict[str, Any] = {"message_ids": keys, "kind": kind}
        if kind != "reaction":
            order |= {"times": self.random.choice([1, 1, 3, 10]), "posts": self.random.choice([1, 2])}
            order |= self.random.choice([{}, {}, {"context": False}, {"context": False, "short": True}])
        answer = await self.rig.simulator.http.post("/answers", json=order)
        assert answer.status_code == 200, answer.text

    async def _not_followed_up(self) -> list[str]:
        """What was answered and has no follow-up. All of it while Postgres is away."""
        try:
            made = await self.rig.read("SELECT batch_id, seq FROM follow_up")
        except psycopg.OperationalError:
            return sorted(self.answered)
        return sorted(self.answered - {f"{row['batch_id'].hex}-{row['seq']}" for row in made})

    async def _pause(self) -> None:
        await asyncio.sleep(self.random.uniform(0.1, 0.6))


def _object(answer: httpx.Response) -> dict[str, Any]:
    """Its body; empty where it is no object of JSON."""
    try:
        return msgspec.json.decode(answer.content, type=dict[str, Any])
    except msgspec.DecodeError:
        return {}
