"""Creating a batch from a request that is in memory as a whole."""

import asyncio

from carteiro.domain.errors import FieldError, InvalidRequest
from carteiro.domain.requests import BatchRequest, RequestSignature, refuse_faults
from carteiro.services.api_keys import Caller
from carteiro.services.create.order import CONTACTS_MAX, Ground, Order, read_ground
from carteiro.services.create.place import Creation, find_under_key, place_order
from carteiro.settings import Settings
from carteiro.storage.idempotency import Key
from carteiro.storage.pool import Pool

SIGNED_AT_ONCE = 10_000


async def create_batch(
    pool: Pool, settings: Settings, caller: Caller, request: BatchRequest, *, key: Key | None = None
) -> Creation:
    """Accept a batch, or raise a Problem and leave nothing behind. Locks as `place_order`."""
    if key is not None and (earlier := await find_under_key(pool, caller, key)) is not None:
        return Creation(earlier, replayed=True)
    if len(request.contacts) > CONTACTS_MAX:
        told = f"{CONTACTS_MAX:,} contacts at most in one JSON request; stream more as application/x-ndjson or CSV."
        raise InvalidRequest(errors=[FieldError("/contacts", "too-many", told)])
    ground = await read_ground(pool, settings, caller, request)
    order = await asyncio.to_thread(make_order, ground, request)
    return await place_order(pool, settings, caller, order, key)


def make_order(ground: Ground, request: BatchRequest) -> Order:
    """Raises InvalidRequest, naming what is wrong. Takes long for many contacts: run it in a thread."""
    screening = ground.screening()
    screened = screening.screen(request.contacts)
    refuse_faults(ground.faults(), screening, ground.service.min_batch_size)
    signature = RequestSignature(ground.service.account_id, request)
    for start in range(0, len(screened.rows), SIGNED_AT_ONCE):
        signature.add(screened.rows[start : start + SIGNED_AT_ONCE])
    draft = ground.draft(total=len(screened.rows), request_signature=signature.digest(), skipped=screening.report())
    return ground.order(draft, screened)
