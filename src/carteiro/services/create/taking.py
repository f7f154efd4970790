"""What a batch takes when it is opened: capacity and credits, all of it or a Problem."""

from collections.abc import Mapping, Sequence
from uuid import UUID

from carteiro.domain import capacity as arithmetic
from carteiro.domain.errors import CapacityExhausted, InsufficientCredits, Unavailable
from carteiro.domain.planning import Rotation
from carteiro.services.api_keys import Caller
from carteiro.services.dispatch.ground import manager_meters, meters_needed, sender_meter
from carteiro.settings import Settings
from carteiro.storage import batches, capacity, jobs, ledger, pools
from carteiro.storage.batches import Draft
from carteiro.storage.capacity import Meter, MeterId
from carteiro.storage.catalog import Service
from carteiro.storage.later import Later
from carteiro.storage.pool import Connection, Pool
from carteiro.storage.pools import Candidate


async def who_could_send(conn: Connection, draft: Draft) -> list[Candidate]:
    """Asked before the locks: who is stopped from now on gives up what is held on him when the batch is dispatched."""
    return await pools.read_candidates(
        conn,
        account_id=draft.account_id,
        service_id=draft.service_id,
        template_name=draft.template_name,
        template_language=draft.template_language,
        signature=draft.template_signature,
    )


async def ask_meters(
    conn: Connection, settings: Settings, candidates: Sequence[Candidate]
) -> Later[dict[MeterId, Meter]]:
    """Lock the meters of the candidates; the caller has locked the service."""
    return await capacity.ask_meters(conn, meters_needed(candidates), keep_s=settings.window_s + settings.bucket_s)


async def hold_capacity(
    conn: Connection,
    draft: Draft,
    rotation: Rotation,
    candidates: Sequence[Candidate],
    meters: Mapping[MeterId, Meter],
    required: int,
) -> Later[None]:
    """Reserve what the batch needs at once, or all there is where it may spill. Raises CapacityExhausted.

    The meters are those of the candidates, locked. What is answered is to be awaited before the commit.
    """
    managers = manager_meters(candidates, meters)
    senders = [sender_meter(candidate, meters) for candidate in candidates]
    available = arithmetic.available(managers, senders)
    if draft.on_capacity == "reject" and available is not None and available < required:
        raise CapacityExhausted(available=available, required=required)
    holds = arithmetic.plan_holds(required, managers, senders, rotation)
    return await capacity.ask_hold(conn, draft.id, holds, {manager.id: manager.limit for manager in managers})


async def open_batch(conn: Connection, service: Service, draft: Draft) -> Later[None]:
    """Make the draft a batch that clients see. Its row may be locked before the service: nobody waits for a draft's.

    What is answered is to be awaited before the commit: it raises Unavailable where the draft is gone.
    """
    event = "moderated" if service.test_mode else "opened"
    opened = await batches.open_draft(conn, draft.id, event=event, debited=draft.price)

    async def check() -> None:
        if not await opened:
            raise Unavailable("The batch took too long to load.", retry_after_s=1)

    return Later(check)


async def take_credits(conn: Connection, caller: Caller, draft: Draft) -> Later[None]:
    """Take what the batch costs: all or none. Locks the account.

    What is answered is to be awaited before the commit: it raises InsufficientCredits.
    """
    left = None
    if draft.price:
        left = await ledger.debit(
            conn, draft.billing_account_id, draft.price, batch_id=draft.id, cause="created", actor=caller.actor
        )

    async def check() -> None:
        if left is not None and await left is None:
            balance = await ledger.read_balance(conn, draft.billing_account_id)
            raise InsufficientCredits(balance=balance or 0, required=draft.price)

    return Later(check)


async def announce(pool: Pool, service: Service, batch_id: UUID) -> None:
    """After the commit of a batch that was opened, and before anybody is told: have it on disk, and pumped unless it
    waits for moderation.

    Not within it: a job notifies workers, and transactions that notify commit one after the other, those of all
    services, with whatever they have locked. A process killed before this costs the batch the second until the next
    sweep. Raises Unavailable as `confirm` does.
    """
    async with pool.connection() as conn:
        if service.test_mode or not await jobs.defer_pump(conn, service.id):
            # No job was written, whose own commit would have had the batch on disk.
            await batches.reach_disk(conn)
        await _check_survived(conn, batch_id)


async def confirm(pool: Pool, batch_id: UUID) -> None:
    """Before a batch is answered that another request opened, perhaps just now: it is on disk. Raises Unavailable where
    it was lost before.
    """
    async with pool.connection() as conn:
        await batches.reach_disk(conn)
        await _check_survived(conn, batch_id)


async def _check_survived(conn: Connection, batch_id: UUID) -> None:
    """After the disk was waited for: what is there now stays. A Postgres that crashed between the batch's commit and
    that wait has lost the batch, and the pool, or a pooler, connects to the next one without a word.
    """
    if await batches.read_owner(conn, batch_id) is None:
        raise Unavailable("The database was restarted and lost the batch. Post it again.", retry_after_s=1)
