"""What providers post, stored together: one commit for all that came within a few milliseconds.

Nothing is promised before that commit: whoever posted waits for it, and is answered only then. A process that is killed
before it has answered nobody; the provider posts again. What is stored and not answered is posted twice, and merging
repetitions changes nothing.
"""

import asyncio
import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from carteiro.domain.errors import Unavailable
from carteiro.storage import receipts
from carteiro.storage.pool import Pool
from carteiro.storage.receipts import Posted

log = structlog.get_logger(__name__)

APART_S = 0.01
"""Between the beginnings of two groups. The first payload after a pause is stored at once."""
GROUP_MAX, GROUP_BYTES_MAX = 500, 8 * 2**20
"""Payloads, and bytes of them or the one that exceeds it, in one statement."""
WAITING_MAX, WAITING_BYTES_MAX = 5_000, 64 * 2**20
"""Of all that waits to be stored. What comes beyond it is refused, and the provider posts it again."""
RETRY_AFTER_S = 5

_TOKEN = re.compile(r"[!-~]{1,200}")
"""What a token may look like: Postgres takes no NUL, and would refuse a whole group for it."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    posted: Posted
    stored: asyncio.Future[bool]


class Intake:
    """Stores payloads for all requests of one process."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._waiting: deque[_Waiting] = deque()
        self._bytes = 0
        self._storing: asyncio.Task[None] | None = None
        self._began_s = 0.0

    async def store_payload(self, provider: str, token: str, body: bytes) -> bool:
        """Keep the body as it came; committed when this returns. False: no service of that provider has the token.

        Raises Unavailable when it could not be stored, or too much waits already.
        """
        return _TOKEN.fullmatch(token) is not None and await self._store(Posted(provider, token, body))

    async def store_posted(self, provider: str, body: bytes) -> None:
        """The same of a provider that has one address for everybody: whose it is says each item."""
        await self._store(Posted(provider, None, body))

    async def _store(self, posted: Posted) -> bool:
        if len(self._waiting) >= WAITING_MAX or self._bytes + len(posted.body) > WAITING_BYTES_MAX:
            raise Unavailable("More is being posted than can be stored.", retry_after_s=RETRY_AFTER_S)
        waiting = _Waiting(posted, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._bytes += len(posted.body)
        if self._storing is None:
            self._storing = asyncio.create_task(self._store_all())
        return await waiting.stored

    async def _store_all(self) -> None:
        """Until nothing waits. Whatever ends it, nobody is left waiting."""
        loop = asyncio.get_running_loop()
        try:
            while self._waiting:
                await asyncio.sleep(max(0.0, self._began_s + APART_S - loop.time()))
                self._began_s = loop.time()
                await self._store_group(self._take_group())
        except Exception:
            # Who waits behind a group that failed is refused too: one that waits for Postgres takes ten seconds to.
            pass
        finally:
            self._storing = None
            while self._waiting:
                _refuse(self._take_group())

    def _take_group(self) -> list[_Waiting]:
        """The oldest; one at least."""
        group = [self._waiting.popleft()]
        size = len(group[0].posted.body)
        while self._waiting and len(group) < GROUP_MAX:
            size += len(self._waiting[0].posted.body)
            if size > GROUP_BYTES_MAX:
                break
            group.append(self._waiting.popleft())
        self._bytes -= sum(len(waiting.posted.body) for waiting in group)
        return group

    async def _store_group(self, group: Sequence[_Waiting]) -> None:
        """One statement, hence one transaction: all of the group is stored, or nothing."""
        try:
            async with self._pool.connection() as conn:
                found = await receipts.store_payloads(conn, [waiting.posted for waiting in group])
        except BaseException as error:
            log.warning("payloads_not_stored", payloads=len(group), error=type(error).__name__)
            _refuse(group)
            raise
        for place, waiting in enumerate(group):
            if not waiting.stored.done():  # who posted it may have gone
                waiting.stored.set_result(place in found)


def _refuse(group: Sequence[_Waiting]) -> None:
    for waiting in group:
        if not waiting.stored.done():
            waiting.stored.set_exception(
                Unavailable("It could not be stored. Post it again.", retry_after_s=RETRY_AFTER_S)
            )
