"""Place a batch: one transaction takes money and capacity for it, or replays the batch that is there already."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from carteiro.domain.errors import IdempotencyKeyReused, Unavailable
from carteiro.domain.planning import Rotation
from carteiro.domain.requests import BatchRequest
from carteiro.domain.suppression import scopes_of
from carteiro.services.api_keys import Caller
from carteiro.services.create.drafts import discard_draft
from carteiro.services.create.order import Order, make_order, read_ground
from carteiro.services.create.taking import debit, hold_capacity
from carteiro.settings import Settings
from carteiro.storage import batches, claims, idempotency, jobs, messages, suppression
from carteiro.storage.idempotency import Key
from carteiro.storage.pool import Connection, Pool, retry_serialization, transact

ROWS_UNDER_LOCK = 1_000
"""Larger batches load their rows before they take the locks, into a draft that nobody sees."""


@dataclass(frozen=True, slots=True)
class Creation:
    """`replayed`: the batch was there already; nothing was taken."""

    batch_id: UUID
    replayed: bool


async def create_batch(
    pool: Pool, settings: Settings, caller: Caller, request: BatchRequest, *, key: Key | None = None
) -> Creation:
    """Accept a batch, or raise a Problem and leave nothing behind. Locks as `place_order`."""
    if key is not None and (earlier := await find_under_key(pool, caller, key)) is not None:
        return Creation(earlier, replayed=True)
    service, template = await read_ground(pool, caller, request)
    order = await asyncio.to_thread(make_order, request, service, template, settings, datetime.now(UTC))
    return await place_order(pool, settings, caller, order, key)


async def place_order(pool: Pool, settings: Settings, caller: Caller, order: Order, key: Key | None) -> Creation:
    """Accept an order of any door, or raise a Problem and leave nothing behind.

    Locks, in this order: idempotency key, service, capacity meters, batch, account. Above ROWS_UNDER_LOCK the rows are
    loaded before, and a process killed in between leaves a draft, which the sweep collects.
    """
    if len(order.rows) <= ROWS_UNDER_LOCK:
        return await retry_serialization(lambda: _place(pool, settings, caller, order, key, loaded=None))
    async with transact(pool) as conn:
        suppressed = await _load(conn, caller, order)
    placed: Creation | None = None
    try:
        placed = await retry_serialization(lambda: _place(pool, settings, caller, order, key, loaded=suppressed))
    finally:
        if placed is None or placed.replayed:
            await discard_draft(pool, order.batch_id)
    return placed


async def find_under_key(pool: Pool, caller: Caller, key: Key) -> UUID | None:
    """The batch of an earlier request under this key; one that is being placed is waited for.

    Asked before anything is checked: what made the first request valid may be over by the time a client that got no
    answer repeats it, such as `expires_at`. Raises IdempotencyKeyReused.
    """
    async with pool.connection() as conn:
        await idempotency.lock_key(conn, caller.account_id, key)
        return await _read_key(conn, caller, key)


async def _read_key(conn: Connection, caller: Caller, key: Key) -> UUID | None:
    used = await idempotency.find_key(conn, caller.account_id, key)
    if used is None:
        return None
    request_hash, batch_id = used
    if request_hash != key.request_hash:
        raise IdempotencyKeyReused()
    return batch_id


async def _load(conn: Connection, caller: Caller, order: Order) -> list[int]:
    """Insert the draft with its rows, and withdraw those whose contact is suppressed; answers their seqs.

    Here and not when the draft is opened: of a large batch they may be many, and the locks are held then.
    """
    draft = order.draft
    await batches.set_actor(conn, caller.actor)
    await batches.add_draft(conn, draft)
    await messages.load_messages(conn, draft.id, order.rows)
    scopes = scopes_of(draft.template_content["category"])
    suppressed = await suppression.find_in_batch(conn, draft.id, draft.account_id, scopes, at=draft.scheduled_at)
    await suppression.withdraw(conn, draft.id, suppressed)
    return suppressed


async def _place(
    pool: Pool, settings: Settings, caller: Caller, order: Order, key: Key | None, *, loaded: Sequence[int] | None
) -> Creation:
    """`loaded` None: the rows are not inserted yet; else the seqs that were withdrawn when they were."""
    async with transact(pool) as conn:
        earlier = await _find_earlier(conn, settings, caller, order, key)
        if earlier is not None:
            return Creation(earlier, replayed=True)
        suppressed = await _load(conn, caller, order) if loaded is None else loaded
        await batches.set_actor(conn, caller.actor)
        await hold_capacity(conn, settings, order.draft, Rotation(order.service.rotation), order.capacity(suppressed))
        if not await batches.open_draft(conn, order.batch_id, event=order.event, debited=order.price):
            raise Unavailable("The batch took too long to load.", retry_after_s=1)
        if order.write_beside is not None:
            await order.write_beside(conn)
        await debit(conn, caller, order.draft)
        if order.event == "opened":
            await jobs.defer_pump(conn, order.service.id)
    return Creation(order.batch_id, replayed=False)


async def _find_earlier(
    conn: Connection, settings: Settings, caller: Caller, order: Order, key: Key | None
) -> UUID | None:
    """Take the locks, then claim key and signature; the batch that has one of them already, if there is one."""
    account_id = caller.account_id
    if key is not None:
        await idempotency.lock_key(conn, account_id, key)
    await claims.lock_service(conn, order.service.id)
    if key is not None and (earlier := await _read_key(conn, caller, key)) is not None:
        return earlier
    batch_id = order.batch_id
    if order.signed:
        owner = await idempotency.claim_signature(
            conn, account_id, order.draft.request_signature, order.batch_id, ttl_s=settings.signature_ttl_s
        )
        batch_id = order.batch_id if order.allow_duplicate else owner
    if key is not None:
        await idempotency.put_key(conn, account_id, key, batch_id)
    return batch_id if batch_id != order.batch_id else None
