"""Reports of delivery and of being seen: when they are due, and posting them to where each message wants them."""

import asyncio
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any, Literal

import aiohttp

from carteiro.providers.simulator import wire_meta
from carteiro.providers.simulator.ledger import Ledger, pack, unpack
from carteiro.providers.simulator.options import Options
from carteiro.providers.simulator.plan import Plan
from carteiro.providers.simulator.standing import Standings
from carteiro.providers.simulator.wire import delivery_item, encode, seen_item

SEEN = -1
SPOILT = -2
SENT = -3
"""Beside outcomes as `ledger.pack` makes them: what a report says."""

DELIVERED = pack(5, 0)
_FAILED_FIRST = pack(9, 7051)
_FAILED_FIRST_META = pack(4, 131000)
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
    is_meta: bool = False


class Receipts:
    """Due reports are put together per address, and posted by a few workers that try again when refused."""

    def __init__(self, options: Options, ledger: Ledger, standings: Standings) -> None:
        self._options = options
        self._ledger = ledger
        self._standings = standings
        self._session: aiohttp.ClientSession | None = None
        self._posts: asyncio.Queue[_Post] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []
        self.reset()

    def reset(self) -> None:
        """Forget what is due and what waits; a post that is on its way arrives all the same."""
        self._random = Random(self._options.seed)
        self._due: list[tuple[int, int, int, int]] = []
        self._order = count()
        self._outbox: dict[tuple[str, bool], deque[Report]] = {}
        """By address, and whether it is Meta's webhook."""
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
                first = _FAILED_FIRST_META if self._ledger.is_meta(row) else _FAILED_FIRST
                steps = [(first, 0.0), (DELIVERED, 200.0)]
            case "spoilt":
                steps = [(SPOILT, 0.0), (outcome, 0.0)]
            case _:
                steps = [(outcome, 0.0)]
        if self._ledger.is_meta(row):
            steps.insert(0, (SENT, -delay_ms / 2))
        if outcome == DELIVERED and plan.receipt != "reorder" and self._random.random() < options.seen_ratio:
            steps.append((SEEN, steps[-1][1] + options.seen_delay_ms))
        now_ns = time.monotonic_ns()
        for what, later_ms in steps:
            heappush(self._due, (now_ns + int((delay_ms + later_ms) * 1e6), next(self._order), row, what))

    async def post_now(self, row: int, plan: Plan) -> None:
        """Report before the send is answered. One attempt; an address that refuses it gets no other."""
        url = self._url(row)
        outcome, now_ns = pack(plan.status_id, plan.error_id), time.time_ns()
        self._ledger.settle(row, outcome, now_ns)
        if url and self._options.receipts:
            await self._post(url, self._body([(row, outcome, now_ns)]), is_meta=self._ledger.is_meta(row))

    def hold(self) -> None:
        """Keep what becomes due from now on, until it is released or dropped."""
        self._held = True

    def release(self, order: Order) -> int:
        """Post what was held, and go on as usual; how many reports."""
        self._held = False
        for address, waiting in self._outbox.items():
            reports = list(waiting)
            if order == "reversed":
                reports.reverse()
            elif order == "shuffled":
                self._random.shuffle(reports)
            self._outbox[address] = deque(reports)
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

    def post_meta(self, notice: object) -> None:
        """The same to where Meta's webhooks go, if there is such a place."""
        if self._options.meta_webhook_url:
            self._posts.put_nowait(_Post(self._era, self._options.meta_webhook_url, encode(notice), 1, is_meta=True))

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
        elif what not in (SPOILT, SENT):
            self._ledger.settle(row, what, at_ns)

    def _put(self, report: Report) -> None:
        row = report[0]
        url = self._url(row)
        if url:
            self._outbox.setdefault((url, self._ledger.is_meta(row)), deque()).append(report)

    def _url(self, row: int) -> str:
        """Where a message's reports go; empty: nowhere."""
        if self._ledger.is_meta(row):
            return self._options.meta_webhook_url or ""
        return self._ledger.notify_url(row)

    def _flush(self) -> int:
        flushed = 0
        for (url, is_meta), waiting in self._outbox.items():
            while waiting:
                size = min(len(waiting), self._options.results_per_post)
                body = self._body([waiting.popleft() for _ in range(size)])
                self._posts.put_nowait(_Post(self._era, url, body, size, is_meta=is_meta))
                flushed += size
        self._outbox.clear()
        return flushed

    def _body(self, reports: Sequence[Report]) -> bytes:
        if self._ledger.is_meta(reports[0][0]):
            return encode(self._meta_document(reports))
        return encode({"results": [self._item(*report) for report in reports]})

    def _meta_document(self, reports: Sequence[Report]) -> dict[str, Any]:
        """A status an item, put together by number and business account."""
        accounts: dict[str, dict[str, list[dict[str, Any]]]] = {}
        for row, what, at_ns in reports:
            number = self._ledger.sender(row)
            account = self._standings.of_sender(number).account
            if what == SPOILT:
                status: dict[str, Any] = {"id": row, "status": "?"}
            else:
                word, error_id = _meta_word(what)
                status = wire_meta.status_item(
                    self._ledger, row, word, error_id, at_ns, opaque=self._options.meta_opaque
                )
            accounts.setdefault(account, {}).setdefault(number, []).append(status)
        return wire_meta.statuses_document(accounts)

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
            if await self._post(post.url, post.body, is_meta=post.is_meta):
                self.posted += post.size
                continue
            self.refused += post.size
            if post.attempt >= self._options.receipt_attempts:
                self.given_up += post.size
                continue
            pause_s = self._options.receipt_retry_ms / 1000 * 2 ** (post.attempt - 1)
            again = replace(post, attempt=post.attempt + 1)
            asyncio.get_running_loop().call_later(pause_s, self._posts.put_nowait, again)

    async def _post(self, url: str, body: bytes, *, is_meta: bool) -> bool:
        assert self._session is not None
        headers = {"Content-Type": "application/json"}
        if is_meta and self._options.meta_app_secret is not None:
            headers |= wire_meta.signature_header(self._options.meta_app_secret, body)
        try:
            async with self._session.post(url, data=body, headers=headers) as response:
                return 200 <= response.status < 300
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError):
            return False


def _meta_word(what: int) -> tuple[str, int]:
    """The status that a report is at Meta's, and its error. What is neither delivered nor failed stays sent."""
    if what == SEEN:
        return "read", 0
    if what == SENT:
        return "sent", 0
    status_id, error_id = unpack(what)
    if error_id:
        return "failed", error_id
    return ("delivered" if status_id == 5 else "sent"), 0
