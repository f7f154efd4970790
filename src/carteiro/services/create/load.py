"""Loading rows into a draft, which neither clients nor pumps see."""

import asyncio
from collections.abc import Collection, Sequence
from types import TracebackType
from typing import NamedTuple

from carteiro.domain.contacts import Row, Screened
from carteiro.domain.errors import Unavailable
from carteiro.domain.suppression import scopes_of
from carteiro.services.api_keys import Caller
from carteiro.services.create.drafts import discard_draft
from carteiro.storage import batches, messages, suppression
from carteiro.storage.batches import Draft
from carteiro.storage.messages import CopyText
from carteiro.storage.pool import Connection, Pool, transact


class Piece(NamedTuple):
    """Rows that are loaded together, ready to be copied."""

    first_seq: int
    last_seq: int
    guarded: frozenset[int]
    text: CopyText


def make_piece(draft: Draft, screened: Screened) -> Piece:
    """Of at least one row. Takes long for thousands: run it in a thread."""
    rows: Sequence[Row] = screened.rows
    return Piece(rows[0].seq, rows[-1].seq, screened.guarded, messages.copy_text(draft.id, rows))


async def load_piece(conn: Connection, draft: Draft, piece: Piece) -> int:
    """Insert the rows, and withdraw those whose contact is suppressed. Answers how many take no capacity: those, and
    the ones that the guard will fail.

    Here and not when the draft is opened: of a large batch they may be many, and the locks are held then.
    """
    await messages.load_messages(conn, piece.text)
    return await withdraw_suppressed(conn, draft, piece.guarded, piece.first_seq, piece.last_seq)


async def withdraw_suppressed(
    conn: Connection, draft: Draft, guarded: Collection[int], first_seq: int, last_seq: int
) -> int:
    """Withdraw those of the inserted rows whose contact is suppressed. Answers how many take no capacity, as
    `load_piece` does.
    """
    suppressed = await suppression.find_in_batch(
        conn,
        draft.id,
        draft.account_id,
        scopes_of(draft.template_content["category"]),
        first_seq=first_seq,
        last_seq=last_seq,
        at=draft.scheduled_at,
    )
    await suppression.withdraw(conn, draft.id, suppressed)
    return len({*guarded, *suppressed})


class Loader:
    """Loads a draft piece by piece, each in a transaction of its own, while the caller prepares the next one.

    A context: left by an exception, it deletes the draft. Killed meanwhile, it leaves a draft that the sweep collects.
    """

    def __init__(self, pool: Pool, caller: Caller, draft: Draft) -> None:
        self._pool = pool
        self._caller = caller
        self._draft = draft
        self._begun = False
        self._loading: asyncio.Task[int] | None = None
        self._idle = 0

    async def __aenter__(self) -> "Loader":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._loading is not None:
            await asyncio.gather(self._loading, return_exceptions=True)
        if error is not None:
            await self.discard()

    async def add(self, piece: Piece) -> None:
        """Returns as soon as the piece before is in: no more than two are in memory. Raises Unavailable."""
        await self._wait()
        self._loading = asyncio.create_task(self._load(piece))

    async def complete(self, draft: Draft) -> int:
        """Once at least one piece was added: note on the draft what is known by now. Answers how many of its rows take
        no capacity.
        """
        await self._wait()
        async with transact(self._pool) as conn:
            await batches.complete_draft(conn, draft)
        return self._idle

    async def discard(self) -> None:
        if self._begun:
            await discard_draft(self._pool, self._draft.id)

    async def _wait(self) -> None:
        if self._loading is not None:
            loading, self._loading = self._loading, None
            self._idle += await loading

    async def _load(self, piece: Piece) -> int:
        async with transact(self._pool) as conn:
            await batches.set_actor(conn, self._caller.actor)
            if not self._begun:
                await batches.add_draft(conn, self._draft)
                self._begun = True
            elif not await batches.hold_draft(conn, self._draft.id):
                raise Unavailable("The batch took too long to load.", retry_after_s=1)
            return await load_piece(conn, self._draft, piece)
