"""Reports of delivery and of being seen: when they are due, and posting them to where each message wants them."""

import asyncio
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any, Literal

import aiohttp

from carteiro.providers.simulator.ledger import Ledger, pack
from carteiro.providers.simulator.options import Options
from carteiro.providers.simulator.plan import Plan
from carteiro.providers.simulator.wire import delivery_item, encode, seen_item

SEEN = -1
SPOILT = -2
"""Beside outcomes as `ledger.pack` makes them: what a report says."""

DELIVERED = pack(5, 0)
_FAILED_FIRST = pack(9, 7051)
_TICK_S = 0.01
_POST_TIMEOUT_S = 10.0

Report = tuple[int, int, int]
"""(row, what, wall ns)."""
Order = Literal["given", "reversed", "shuffled"]


@dataclass(frozen=True, slots=True)
class _Post:
    """One post of `size` reports."""

    era: object
    """A reset begins a new one; posts of an old one are not made."""
    url: str
    body: bytes
    size: int
    attempt: int = 1


class Receipts:
    """Due reports are put together per address, and posted by a few workers that try again when refused."""

    def __init__(self, options: Options, ledger: Ledger) -> None:
        self._options = options
        self._ledger = ledger
        self._session: aiohttp.ClientSession | None = None
        self._posts: asyncio.Queue[_Post] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []
        self.reset()

    def reset(self) -> None:
        """Forget what is due and what waits; a post that is on its way arrives all the same."""
        self._random = Random(self._options.seed)
        self._due: list[tuple[int, int, int, int]] = []
        self._order = count()
        self._outbox: dict[str, deque[Report]] = {}
        self._held = False
        self.posted = self.refused = self.given_up = 0
        self._era = object()

    async def start(self) -> None:
        timeout = aiohttp.ClientTimeout(total=_POST_TIMEOUT_S)
        self._session = aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0))
        workers = [self._work() for _ in range(self._options.receipt_connections)]
        self._tasks = [asyncio.create_task(part) for part in (self._pump(), *workers)]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._session is not None:
            await self._session.close()

    def plan(self, row: int, plan: Plan) -> None:
        """Put the reports of an accepted message into the future; `early` ones are the caller's to post."""
        options = self._options
        if not options.receipts or plan.receipt in ("none", "early"):
            return
        delay_ms = options.receipt_delay_ms + plan.receipt_delay_ms
        if options.receipt_jitter_ms:
            delay_ms += self._random.random() * options.receipt_jitter_ms
        outcome = pack(plan.status_id, plan.error_id)
        match plan.receipt:
            case "repeat":
                steps = [(outcome, 0.0), (outcome, 50.0), (outcome, 100.0)]
            case "reorder":
                steps = [(SEEN, 0.0), (outcome, 200.0)]
            case "contradict":
                steps = [(_FAILED_FIRST, 0.0), (DELIVERED, 200.0)]
            case "spoilt":
                steps = [(SPOILT, 0.0), (outcome, 0.0)]
            case _:
                steps = [(outcome, 0.0)]
        if outcome == DELIVERED and plan.receipt != "reorder" and self._random.random() < options.seen_ratio:
            steps.append((SEEN, steps[-1][1] + options.seen_delay_ms))
        now_ns = time.monotonic_ns()
        for what, later_ms in steps:
            heappush(self._due, (now_ns + int((delay_ms + later_ms) * 1e6), next(self._order), row, what))

    async def post_now(self, row: int, plan: Plan) -> None:
        """Report before the send is answered. One attempt; an address that refuses it gets no other."""
        url = self._ledger.notify_url(row)
        outcome, now_ns = pack(plan.status_id, plan.error_id), time.time_ns()
        self._ledger.settle(row, outcome, now_ns)
        if url and self._options.receipts:
            await self._post(url, self._body([(row, outcome, now_ns)]))

    def hold(self) -> None:
        """Keep what becomes due from now on, until it is released or dropped."""
        self._held = True

    def release(self, order: Order) -> int:
        """Post what was held, and go on as usual; how many reports."""
        self._held = False
        for url, waiting in self._outbox.items():
            reports = list(waiting)
            if order == "reversed":
                reports.reverse()
            elif order == "shuffled":
                self._random.shuffle(reports)
            self._outbox[url] = deque(reports)
        return self._flush()

    def drop(self) -> int:
        """Lose what was held; how many reports."""
        lost = sum(map(len, self._outbox.values()))
        self._outbox.clear()
        return lost

    def repeat(self, rows: Iterable[int]) -> int:
        """Report again what was reported of these rows; how many reports."""
        before = sum(map(len, self._outbox.values()))
        for row in rows:
            outcome, done_ns = self._ledger.outcome(row), self._ledger.done_wall_ns(row)
            if outcome:
                self._put((row, outcome, done_ns))
            if self._ledger.is_seen(row):
                self._put((row, SEEN, done_ns))
        repeated = sum(map(len, self._outbox.values())) - before
        if not self._held:
            self._flush()
        return repeated

    def emit(self, row: int, what: int, at_wall_ns: int) -> None:
        """Report anything of one message, now."""
        self._settle(row, what, at_wall_ns)
        self._put((row, what, at_wall_ns))
        if not self._held:
            self._flush()

    def post_notice(self, url: str, notice: object) -> None:
        """Post a webhook of its own kind, tried again when refused like any other."""
        self._posts.put_nowait(_Post(self._era, url, encode(notice), 1))

    def state(self) -> dict[str, Any]:
        return {
            "due_later": len(self._due),
            "held": sum(map(len, self._outbox.values())),
            "waiting_posts": self._posts.qsize(),
            "posted": self.posted,
            "refused": self.refused,
            "given_up": self.given_up,
        }

    async def _pump(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            now_ns = time.monotonic_ns()
            wall_ns = time.time_ns()
            while self._due and self._due[0][0] <= now_ns:
                due_ns, _, row, what = heappop(self._due)
                at_ns = wall_ns - (now_ns - due_ns)
                self._settle(row, what, at_ns)
                self._put((row, what, at_ns))
            if not self._held and self._outbox:
                self._flush()

    def _settle(self, row: int, what: int, at_ns: int) -> None:
        if what == SEEN:
            self._ledger.note_seen(row)
        elif what != SPOILT:
            self._ledger.settle(row, what, at_ns)

    def _put(self, report: Report) -> None:
        url = self._ledger.notify_url(report[0])
        if url:
            self._outbox.setdefault(url, deque()).append(report)

    def _flush(self) -> int:
        flushed = 0
        for url, waiting in self._outbox.items():
            while waiting:
                size = min(len(waiting), self._options.results_per_post)
                body = self._body([waiting.popleft() for _ in range(size)])
                self._posts.put_nowait(_Post(self._era, url, body, size))
                flushed += size
        self._outbox.clear()
        return flushed

    def _body(self, reports: Iterable[Report]) -> bytes:
        return encode({"results": [self._item(*report) for report in reports]})

    def _item(self, row: int, what: int, at_ns: int) -> dict[str, Any]:
        if what == SEEN:
            return seen_item(self._ledger, row, at_ns)
        if what == SPOILT:
            return {"messageId": row, "status": "?"}
        return delivery_item(self._ledger, row, what, at_ns)

    async def _work(self) -> None:
        while True:
            post = await self._posts.get()
            if post.era is not self._era:
                continue
            if await self._post(post.url, post.body):
                self.posted += post.size
                continue
            self.refused += post.size
            if post.attempt >= self._options.receipt_attempts:
                self.given_up += post.size
                continue
            pause_s = self._options.receipt_retry_ms / 1000 * 2 ** (post.attempt - 1)
            again = replace(post, attempt=post.attempt + 1)
            asyncio.get_running_loop().call_later(pause_s, self._posts.put_nowait, again)

    async def _post(self, url: str, body: bytes) -> bool:
        assert self._session is not None
        try:
            async with self._session.post(url, data=body, headers={"Content-Type": "application/json"}) as response:
                return 200 <= response.status < 300
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError):
            return False
