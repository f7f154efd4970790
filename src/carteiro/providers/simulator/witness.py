"""A look into Carteiro's Postgres at the moment a call arrives: is its message about to be sent, and under which claim?

For the rig that breaks things under load (tests/chaos); no provider has such a thing. Started by `--witness-dsn` only,
and only then psycopg is imported.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Self

import msgspec

from carteiro.domain.outcomes import parse_followup_key, parse_message_key

if TYPE_CHECKING:
    from psycopg import AsyncConnection

_TIMEOUT_S = 0.2
"""A database that is away must not hold up the answers."""
_CONNECT_TIMEOUT_S = 2

_SEQ_MAX = 2**31 - 1

_LOOK = """
SELECT coalesce(m.status, f.status), coalesce(m.claim_id, f.claim_id), coalesce(c.closed_at IS NULL, false)
FROM unnest(%s::uuid[], %s::int[], %s::bool[]) WITH ORDINALITY AS asked (batch_id, seq, followup, place)
LEFT JOIN message m ON m.batch_id = asked.batch_id AND m.seq = asked.seq AND NOT asked.followup
LEFT JOIN follow_up f ON f.batch_id = asked.batch_id AND f.seq = asked.seq AND asked.followup
LEFT JOIN claim c ON c.id = coalesce(m.claim_id, f.claim_id)
ORDER BY asked.place
"""


class Sight(msgspec.Struct, frozen=True):
    """What was committed about one message. `status` None: there is no such message."""

    status: str | None = None
    claim_id: int | None = None
    claim_open: bool = False


class Witness:
    """One connection; calls that arrive during a look share the next one."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._asked: list[tuple[str, asyncio.Future[Sight | None]]] = []
        self._wake = asyncio.Event()

    @classmethod
    @contextlib.asynccontextmanager
    async def running(cls, dsn: str) -> AsyncIterator[Self]:
        witness = cls(dsn)
        looking = asyncio.create_task(witness._run())
        try:
            yield witness
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)

    async def look(self, message_id: str) -> Sight | None:
        """What is committed now. None: Postgres did not say so in time."""
        answer: asyncio.Future[Sight | None] = asyncio.get_running_loop().create_future()
        self._asked.append((message_id, answer))
        self._wake.set()
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                return await answer
        except TimeoutError:
            return None

    async def _run(self) -> None:
        import psycopg

        while True:
            with contextlib.suppress(psycopg.Error, OSError):
                async with await psycopg.AsyncConnection.connect(
                    self._dsn,
                    autocommit=True,
                    application_name="simulator-witness",
                    connect_timeout=_CONNECT_TIMEOUT_S,
                ) as conn:
                    await self._serve(conn)
            self._tell([], self._take())
            await asyncio.sleep(_TIMEOUT_S / 4)

    async def _serve(self, conn: "AsyncConnection[Any]") -> None:
        """Until the connection breaks."""
        while True:
            await self._wake.wait()
            asked = self._take()
            try:
                self._tell(await _read(conn, [message_id for message_id, _ in asked]), asked)
            except BaseException:
                self._tell([], asked)
                raise

    def _take(self) -> list[tuple[str, "asyncio.Future[Sight | None]"]]:
        asked, self._asked = self._asked, []
        self._wake.clear()
        return asked

    @staticmethod
    def _tell(sights: list[Sight], asked: list[tuple[str, "asyncio.Future[Sight | None]"]]) -> None:
        for place, (_, answer) in enumerate(asked):
            if not answer.done():  # its caller may have given up
                answer.set_result(sights[place] if sights else None)


async def _read(conn: "AsyncConnection[Any]", message_ids: list[str]) -> list[Sight]:
    """One for each id, in their order."""
    follow_ups = [parse_followup_key(message_id) for message_id in message_ids]
    keys = [of or parse_message_key(message_id) for of, message_id in zip(follow_ups, message_ids, strict=True)]
    batch_ids, seqs = [key and key[0] for key in keys], [key and min(key[1], _SEQ_MAX) for key in keys]
    cursor = await conn.execute(_LOOK, (batch_ids, seqs, [of is not None for of in follow_ups]))
    return [Sight(*row) for row in await cursor.fetchall()]
