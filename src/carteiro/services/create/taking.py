"""What a batch takes when it is opened: capacity and credits, all of it or a Problem."""

from carteiro.domain import capacity as arithmetic
from carteiro.domain.capacity import ManagerMeter, SenderMeter
from carteiro.domain.errors import CapacityExhausted, InsufficientCredits
from carteiro.domain.planning import Rotation
from carteiro.services.api_keys import Caller
from carteiro.settings import Settings
from carteiro.storage import capacity, ledger, pools
from carteiro.storage.batches import Draft
from carteiro.storage.capacity import MeterId
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
    limits = {candidate.business_manager_id: candidate.bm_limit for candidate in candidates}
    ids: set[MeterId] = {("bm", bm) for bm in limits} | {("sender", candidate.sender_id) for candidate in candidates}
    meters = await capacity.lock_meters(conn, ids, keep_s=settings.window_s + settings.bucket_s)
    managers = [ManagerMeter(bm, limits[bm], meters["bm", bm].used, meters["bm", bm].held) for bm in sorted(limits)]
    senders = [
        SenderMeter(
            candidate.sender_id,
            candidate.business_manager_id,
            candidate.quality,
            candidate.daily_limit,
            meters["sender", candidate.sender_id].used,
        )
        for candidate in candidates
    ]
    available = arithmetic.available(managers, senders)
    if draft.on_capacity == "reject" and available is not None and available < required:
        raise CapacityExhausted(available=available, required=required)
    holds = arithmetic.plan_holds(required, managers, senders, rotation)
    await capacity.hold(conn, draft.id, holds, limits)


async def debit(conn: Connection, caller: Caller, draft: Draft) -> None:
    """Take what the batch costs, all or none. Locks the account. Raises InsufficientCredits."""
    if not draft.price:
        return
    left = await ledger.debit(
        conn, draft.billing_account_id, draft.price, batch_id=draft.id, cause="created", actor=caller.actor
    )
    if left is None:
        balance = await ledger.read_balance(conn, draft.billing_account_id)
        raise InsufficientCredits(balance=balance or 0, required=draft.price)
