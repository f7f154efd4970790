"""What the owner of a broadcast reads of it. Another's is not found, of whatever account."""

from dataclasses import dataclass
from uuid import UUID

from carteiro.domain.broadcasts import (
    STATUS_OF_BATCH,
    BroadcastStatus,
    Progress,
    RecipientStatus,
    progress_of,
    states_of,
)
from carteiro.domain.errors import Gone, NotFound
from carteiro.services import reading
from carteiro.services.api_keys import Caller
from carteiro.services.broadcast.public_ids import is_public_id
from carteiro.services.reading import BatchView
from carteiro.storage import broadcasts, retention
from carteiro.storage.broadcasts import Found, Recipient
from carteiro.storage.pool import Connection, Pool


@dataclass(frozen=True, slots=True)
class BroadcastView:
    public_id: str
    group_id: str
    status: BroadcastStatus
    progress: Progress
    batch: BatchView


async def read_broadcast(pool: Pool, caller: Caller, id: str) -> BroadcastView:
    """By its id or its public id. Raises NotFound."""
    async with pool.connection() as conn:
        found = await _find(conn, caller, id)
    batch = await reading.read_batch(pool, caller.account_id, found.batch_id)
    return BroadcastView(
        public_id=found.public_id,
        group_id=found.group_id,
        status=STATUS_OF_BATCH[batch.report.status],
        progress=progress_of(batch.counts),
        batch=batch,
    )


async def read_recipients(
    pool: Pool, caller: Caller, id: str, *, after_seq: int, status: RecipientStatus | None, limit: int
) -> list[Recipient]:
    """In order, after `after_seq`. Raises NotFound, or Gone where they were dropped for their age."""
    async with pool.connection() as conn:
        found = await _find(conn, caller, id)
        if await retention.is_dropped(conn, found.batch_id):
            raise Gone("The broadcast's recipients were dropped for their age. Its counts are kept.")
        return await broadcasts.read_recipients(
            conn, found.batch_id, after_seq=after_seq, states=states_of(status) if status else None, limit=limit
        )


async def _find(conn: Connection, caller: Caller, id: str) -> Found:
    batch_id, public_id = _read_id(id)
    found = await broadcasts.find(conn, caller.account_id, caller.owner_id, batch_id=batch_id, public_id=public_id)
    if found is None:
        raise NotFound("There is no such broadcast of this API key's owner.")
    return found


def _read_id(id: str) -> tuple[UUID | None, str | None]:
    """(id, public id), one of them; neither where it is none."""
    if is_public_id(id):
        return None, id
    try:
        return UUID(id), None
    except ValueError:
        return None, None
