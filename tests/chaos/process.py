"""A process of Carteiro as the rig starts it: `python -m tests.chaos.process worker`.

The real command with two things wrapped from outside: each call to the provider says in its User-Agent under which
claim it is made and when it began, and the process kills itself at a named step when it is told to.
"""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from importlib import import_module
from pathlib import Path
from typing import Any

from aiohttp import http_writer

from carteiro.cli import main
from carteiro.domain.outcomes import message_key
from carteiro.providers.transport import Transport
from carteiro.services import callback
from carteiro.services.dispatch import send
from carteiro.storage import receipts
from tests.chaos.steps import ARMED, FIRED, ORDER_VARIABLE, READ, STEPS, STORED, WRITTEN, Commit

CALLBACK_MARGIN_S = 1.0
"""A constant in production, scaled down as the settings are."""
ON_THE_WIRE_S = 0.005
"""From a request being written to its last byte having left the process; its answer takes several times as long."""

_claim: ContextVar[tuple[int, int] | None] = ContextVar("claim", default=None)
_messages: ContextVar[str | None] = ContextVar("messages", default=None)
_counts: ContextVar[list[bool] | None] = ContextVar("counts", default=None)


def name_calls() -> None:
    """`carteiro claim/<id> asked/<instant> at/<instant>`: when it was asked whether the call may start, which is the
    last check, and when it started; in nanoseconds of the monotonic clock.
    """
    real_call, real_post = send._call, Transport.post

    async def call(piece: Any, group: Any, *rest: Any) -> Any:
        _claim.set((piece.claim_id, time.monotonic_ns()))
        _messages.set(",".join(message_key(due.outgoing.batch_id, due.outgoing.seq) for due in group))
        return await real_call(piece, group, *rest)

    async def post(self: Any, url: Any, body: bytes) -> Any:
        if (claim := _claim.get()) is not None:
            claim_id, asked_ns = claim
            caller = f"carteiro claim/{claim_id} asked/{asked_ns} at/{time.monotonic_ns()}"
            # Read before anything is waited for: no other call sees them.
            self._headers = self._headers | {"User-Agent": caller}
        return await real_post(self, url, body)

    send._call = call  # type: ignore[assignment]
    Transport.post = post  # type: ignore[method-assign]


class Failpoint:
    """Dies at the n-th hit of one point."""

    def __init__(self, order: str) -> None:
        self.point, hits, home = order.split(" ", 2)
        self._left = int(hits)
        self._home = Path(home)

    def hit(self, point: str) -> bool:
        """Whether to die now."""
        if point != self.point or not (self._home / ARMED).exists():
            return False
        self._left -= 1
        return self._left == 0

    def die(self, detail: str = "-") -> None:
        line = f"{self.point} {os.getpid()} {time.monotonic_ns()} {detail}\n"
        told = os.open(self._home / FIRED, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.write(told, line.encode())
        os.kill(os.getpid(), signal.SIGKILL)

    def reach(self, point: str) -> None:
        if self.hit(point):
            self.die()

    def wrap_commit(self, commit: Commit) -> None:
        module, of = import_module(commit.module), import_module(commit.of)
        real_transact, real_mark = module.transact, getattr(of, commit.marks)
        before, after = commit.points

        @asynccontextmanager
        async def transact(pool: Any) -> AsyncIterator[Any]:
            counts = [False]
            token = _counts.set(counts)
            try:
                async with real_transact(pool) as conn:
                    yield conn
                    if counts[0]:
                        self.reach(before)
            finally:
                _counts.reset(token)
            if counts[0]:
                self.reach(after)

        async def mark(*args: Any, **named: Any) -> Any:
            done = await real_mark(*args, **named)
            counts = _counts.get()
            if counts is not None and (commit.even_idle or done is None or bool(done)):
                counts[0] = True
            return done

        module.transact = transact  # type: ignore[attr-defined]
        setattr(of, commit.marks, mark)

    def wrap_store(self) -> None:
        """A statement that is a transaction by itself."""
        real = receipts.store_payloads

        async def store(*args: Any) -> set[int]:
            self.reach(f"{STORED}.before")
            stored = await real(*args)
            self.reach(f"{STORED}.after")
            return stored

        receipts.store_payloads = store  # type: ignore[assignment]

    def wrap_call(self) -> None:
        real_write, real_post = http_writer.StreamWriter.write_eof, Transport.post

        async def write(writer: Any, chunk: bytes = b"") -> None:
            await real_write(writer, chunk)
            if (messages := _messages.get()) is not None and self.hit(WRITTEN):
                asyncio.get_running_loop().call_later(ON_THE_WIRE_S, self.die, messages)

        async def post(transport: Any, url: Any, body: bytes) -> Any:
            response = await real_post(transport, url, body)
            if (messages := _messages.get()) is not None and self.hit(READ):
                self.die(messages)
            return response

        http_writer.StreamWriter.write_eof = write  # type: ignore[assignment, method-assign]
        Transport.post = post  # type: ignore[assignment, method-assign]


def arm(order: str) -> None:
    failpoint = Failpoint(order)
    if failpoint.point in (WRITTEN, READ):
        failpoint.wrap_call()
    elif failpoint.point.startswith(f"{STORED}."):
        failpoint.wrap_store()
    else:
        commits = [commit for step in STEPS.values() for commit in step.commits]
        failpoint.wrap_commit(next(commit for commit in commits if failpoint.point in commit.points))


if __name__ == "__main__":
    callback.LEASE_MARGIN_S = CALLBACK_MARGIN_S
    name_calls()
    if given := os.environ.get(ORDER_VARIABLE):
        arm(given)
    main()
