"""Place a batch: one transaction takes money and capacity for it, or replays the batch that is there already."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from carteiro.domain.contacts import Screened
from carteiro.domain.errors import IdempotencyKeyReused
from carteiro.domain.planning import Rotation
from carteiro.services.api_keys import Caller
from carteiro.services.create.load import Loader, Piece, load_piece, make_piece
from carteiro.services.create.order import Order
from carteiro.services.create.taking import (
    announce,
    ask_meters,
    confirm,
    hold_capacity,
    open_batch,
    take_credits,
    who_could_send,
)
from carteiro.settings import Settings
from carteiro.storage import batches, claims, idempotency
from carteiro.storage.idempotency import Key
from carteiro.storage.later import Later
from carteiro.storage.pool import Connection, Pool, retry_serialization, transact
from carteiro.storage.pools import Candidate

ROWS_AT_ONCE = 1_000
"""Larger batches load their rows in transactions of their own, into a draft that nobody sees."""
ROWS_IN_PIECE = 10_000


@dataclass(frozen=True, slots=True)
class Creation:
    """`replayed`: the batch was there already; nothing was taken."""

    batch_id: UUID
    replayed: bool


async def place_order(pool: Pool, settings: Settings, caller: Caller, order: Order, key: Key | None) -> Creation:
    """Accept an order of any door, or raise a Problem and leave nothing behind.

    Locks, in this order: idempotency key, service, capacity meters, batch, account. Above ROWS_AT_ONCE the rows are
    loaded before, and a process killed in between leaves a draft, which the sweep collects.
    """
    screened = Screened(order.rows, order.guarded)
    if len(order.rows) <= ROWS_AT_ONCE:
        piece = make_piece(order.draft, screened)
        return await _place(pool, settings, caller, order, key, piece, 0)
    async with Loader(pool, caller, order.draft) as loader:
        for start in range(0, len(order.rows), ROWS_IN_PIECE):
            part = screened.cut(start, start + ROWS_IN_PIECE)
            await loader.add(await asyncio.to_thread(make_piece, order.draft, part))
        return await place_loaded(pool, settings, caller, order, key, loader)


async def place_loaded(
    pool: Pool, settings: Settings, caller: Caller, order: Order, key: Key | None, loader: Loader
) -> Creation:
    """Accept an order whose rows are loaded by now."""
    idle = await loader.complete(order.draft)
    placed = await _place(pool, settings, caller, order, key, None, idle)
    if placed.replayed:
        await loader.discard()
    return placed


async def is_used(pool: Pool, caller: Caller, name: str) -> bool:
    """Whether an earlier request came with this Idempotency-Key; one that is being placed is waited for."""
    key = Key(name, b"")
    async with pool.connection() as conn:
        await idempotency.lock_key(conn, caller.account_id, key)
        return await idempotency.find_key(conn, caller.account_id, key) is not None


async def find_under_key(pool: Pool, caller: Caller, key: Key) -> UUID | None:
    """The batch of an earlier request under this key; one that is being placed is waited for.

    Asked before anything is checked: what made the first request valid may be over by the time a client that got no
    answer repeats it, such as `expires_at`. Raises IdempotencyKeyReused.
    """
    async with pool.connection() as conn:
        await idempotency.lock_key(conn, caller.account_id, key)
        earlier = _read_used(key, await idempotency.find_key(conn, caller.account_id, key))
    if earlier is not None:
        await confirm(pool, earlier)
    return earlier


def _read_used(key: Key, used: tuple[bytes, UUID] | None) -> UUID | None:
    """The batch of an earlier request under this key, which must have been the same."""
    if used is None:
        return None
    request_hash, batch_id = used
    if request_hash != key.request_hash:
        raise IdempotencyKeyReused()
    return batch_id


class _Replayed(Exception):
    """There is a batch already: whatever this transaction did is rolled back."""

    def __init__(self, batch_id: UUID) -> None:
        super().__init__(batch_id)
        self.batch_id = batch_id


async def _place(
    pool: Pool, settings: Settings, caller: Caller, order: Order, key: Key | None, piece: Piece | None, idle: int
) -> Creation:
    """Take what the order needs, and have it kept before it is answered.

    `piece`: rows that are not loaded yet. They are inserted before the locks are taken, which nobody else notices:
    the locks are held as long for any number of them. `idle`: rows that were loaded and take no capacity.
    """

    async def attempt() -> None:
        async with transact(pool) as conn:
            await batches.set_actor(conn, caller.actor)
            without_capacity = idle
            if piece is not None:
                await batches.add_draft(conn, order.draft)
                without_capacity = await load_piece(conn, order.draft, piece)
            required = order.draft.total - without_capacity if order.starts_now else 0
            candidates = await who_could_send(conn, order.draft) if required else []
            await _take(conn, settings, caller, order, key, candidates, required)

    try:
        await retry_serialization(attempt)
    except _Replayed as replayed:
        await confirm(pool, replayed.batch_id)
        return Creation(replayed.batch_id, replayed=True)
    await announce(pool, order.service, order.batch_id)
    return Creation(order.batch_id, replayed=False)


async def _take(
    conn: Connection,
    settings: Settings,
    caller: Caller,
    order: Order,
    key: Key | None,
    candidates: Sequence[Candidate],
    required: int,
) -> None:
    """Everything under the locks, for which others wait: in two exchanges with the server, and the commit.

    Raises _Replayed where the key or the signature has a batch already, IdempotencyKeyReused, and as `hold_capacity`,
    `open_batch` and `take_credits`.
    """
    account_id, batch_id = caller.account_id, order.batch_id
    async with conn.pipeline():
        await batches.unlock_early(conn)
        opened = await open_batch(conn, order.service, order.draft)
        if key is not None:
            await idempotency.lock_key(conn, account_id, key)
        await claims.lock_service(conn, order.service.id)
        used = await idempotency.ask_key(conn, account_id, key) if key is not None else None
        signed = await _claim_signature(conn, settings, caller, order) if order.signed else None
        locked = await ask_meters(conn, settings, candidates) if required else None

        if key is not None and used is not None and (earlier := _read_used(key, await used)) is not None:
            raise _Replayed(earlier)
        if signed is not None and (owner := await signed) != batch_id and not order.allow_duplicate:
            raise _Replayed(owner)
        held = None
        if locked is not None:
            rotation = Rotation(order.service.rotation)
            held = await hold_capacity(conn, order.draft, rotation, candidates, await locked, required)
        if key is not None:
            await idempotency.put_key(conn, account_id, key, batch_id)
        paid = await take_credits(conn, caller, order.draft)
        if order.write_beside is not None:
            await order.write_beside(conn)
    if held is not None:
        await held
    await opened
    await paid


async def _claim_signature(conn: Connection, settings: Settings, caller: Caller, order: Order) -> Later[UUID]:
    return await idempotency.claim_signature(
        conn, caller.account_id, order.draft.request_signature, order.batch_id, ttl_s=settings.signature_ttl_s
    )
