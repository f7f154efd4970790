"""What a batch takes when it is opened: capacity and credits, all of it or a Problem."""

from carteiro.domain import capacity as arithmetic
from carteiro.domain.errors import CapacityExhausted, InsufficientCredits, Unavailable
from carteiro.domain.planning import Rotation
from carteiro.services.api_keys import Caller
from carteiro.services.dispatch.ground import manager_meters, meters_needed, sender_meter
from carteiro.settings import Settings
from carteiro.storage import batches, capacity, jobs, ledger, pools
from carteiro.storage.batches import Draft
from carteiro.storage.catalog import Service
from carteiro.storage.pool import Connection


async def hold_capacity(conn: Connection, settings: Settings, draft: Draft, rotation: Rotation, required: int) -> None:
    """Reserve what the batch needs at once, or all there is where it may spill. Raises CapacityExhausted.

    Locks the meters of everybody who could send it; the caller has locked the service.
    """
    if not required:
        return
    candidates = await pools.read_candidates(
        conn,
        account_id=draft.account_id,
        service_id=draft.service_id,
        template_name=draft.template_name,
        template_language=draft.template_language,
        signature=draft.template_signature,
    )
    needed = meters_needed(candidates)
    meters = await capacity.lock_meters(conn, needed, keep_s=settings.window_s + settings.bucket_s)
    managers = manager_meters(candidates, meters)
    senders = [sender_meter(candidate, meters) for candidate in candidates]
    available = arithmetic.available(managers, senders)
    if draft.on_capacity == "reject" and available is not None and available < required:
        raise CapacityExhausted(available=available, required=required)
    holds = arithmetic.plan_holds(required, managers, senders, rotation)
    await capacity.hold(conn, draft.id, holds, {manager.id: manager.limit for manager in managers})


async def open_batch(conn: Connection, caller: Caller, service: Service, draft: Draft) -> None:
    """Make the draft a batch that clients see, take what it costs, and have it pumped unless it waits for moderation.

    The caller has locked the service and holds the capacity. Locks the batch, then the account. Raises Unavailable
    where the draft is gone, or InsufficientCredits.
    """
    event = "moderated" if service.test_mode else "opened"
    if not await batches.open_draft(conn, draft.id, event=event, debited=draft.price):
        raise Unavailable("The batch took too long to load.", retry_after_s=1)
    await _debit(conn, caller, draft)
    if not service.test_mode:
        await jobs.defer_pump(conn, service.id)


async def _debit(conn: Connection, caller: Caller, draft: Draft) -> None:
    """All or none. Raises InsufficientCredits."""
    if not draft.price:
        return
    left = await ledger.debit(
        conn, draft.billing_account_id, draft.price, batch_id=draft.id, cause="created", actor=caller.actor
    )
    if left is None:
        balance = await ledger.read_balance(conn, draft.billing_account_id)
        raise InsufficientCredits(balance=balance or 0, required=draft.price)
