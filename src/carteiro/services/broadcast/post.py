"""Posting a broadcast: may its owner, with what, to whom; then it is placed as any batch is."""

import asyncio
from dataclasses import dataclass, replace
from uuid import UUID

from carteiro.domain.broadcasts import BroadcastRequest, placeholders_of, recipients, request_faults, request_hash
from carteiro.domain.errors import Conflict, FieldError, Forbidden, InvalidRequest
from carteiro.services.api_keys import Caller
from carteiro.services.broadcast.directory import Directory
from carteiro.services.broadcast.public_ids import new_public_id
from carteiro.services.create.order import (
    CONTACTS_MAX,
    Order,
    begin_draft,
    category_faults,
    forbidden_terms_of,
    read_usable_template,
)
from carteiro.services.create.place import find_under_key, place_order
from carteiro.settings import Settings
from carteiro.storage import broadcasts, catalog
from carteiro.storage.broadcasts import Broadcast
from carteiro.storage.catalog import Service, Template
from carteiro.storage.idempotency import Key
from carteiro.storage.pool import Connection, Pool

MAY_NOT = "The owner of this API key may not address this group: it takes an active leader of its team, or its owner."


@dataclass(frozen=True, slots=True)
class Posted:
    """`replayed`: the broadcast was there already; nothing was taken."""

    batch_id: UUID
    public_id: str
    total: int
    replayed: bool


async def post_broadcast(
    pool: Pool, settings: Settings, directory: Directory, caller: Caller, request: BroadcastRequest, *, key: Key | None
) -> Posted:
    """Accept a broadcast, or raise a Problem and leave nothing behind. Locks as `place_order`.

    Whoever may not address the group is told so in the same words whether there is such a group or not, and before
    anything else is said. The directory is read with nothing of ours open.
    """
    if caller.owner_id is None:
        raise Forbidden(MAY_NOT)
    if key is not None and (earlier := await find_under_key(pool, caller, key)) is not None:
        return await _posted(pool, caller, earlier, replayed=True)
    if not await directory.may_address(owner_id=caller.owner_id, group_id=request.group_id):
        raise Forbidden(MAY_NOT)
    service, template = await _read_ground(pool, settings, caller, request)
    written = await directory.read_phones(request.group_id, most=CONTACTS_MAX)
    if len(written) > CONTACTS_MAX:
        told = f"The group has more than {CONTACTS_MAX:,} active members: {CONTACTS_MAX:,} at most in one broadcast."
        raise InvalidRequest(errors=[FieldError("/group_id", "too-many", told)])
    order = await asyncio.to_thread(make_order, request, service, template, caller.owner_id, written)
    placed = await place_order(pool, settings, caller, order, key)
    return await _posted(pool, caller, placed.batch_id, replayed=placed.replayed)


def make_order(
    request: BroadcastRequest, service: Service, template: Template, owner_id: str, written: list[str]
) -> Order:
    """The group as rows. Raises InvalidRequest where too few are left. Takes long for many: run it in a thread."""
    rows, left_out = recipients(written, placeholders_of(request))
    if len(rows) < service.min_batch_size:
        told = f"The group has {len(rows)} active members with a usable phone; {service.min_batch_size} at least."
        raise InvalidRequest(told, errors=[FieldError("/group_id", "too-few", told)])
    draft = replace(
        begin_draft(service, template, total=len(rows), request_signature=request_hash(owner_id, request)),
        on_capacity="spill",
        skipped=left_out,
        door="broadcast",
    )
    broadcast = Broadcast(draft.id, new_public_id(), owner_id, request.group_id, request.variables)

    async def write_beside(conn: Connection) -> None:
        await broadcasts.add(conn, broadcast)

    return Order(
        service=service,
        draft=draft,
        rows=rows,
        starts_now=not service.test_mode,
        guarded=frozenset(),
        allow_duplicate=False,
        signed=False,
        write_beside=write_beside,
    )


async def _read_ground(
    pool: Pool, settings: Settings, caller: Caller, request: BroadcastRequest
) -> tuple[Service, Template]:
    """The account's service for broadcasts, and the template. Raises Conflict or InvalidRequest."""
    async with pool.connection() as conn:
        service = await catalog.read_broadcast_service(conn, caller.account_id)
        if service is None:
            raise Conflict("This account has no active service of kind broadcast.")
        template = await read_usable_template(
            conn, service.id, request.template_name, request.language, pointer="/template_name"
        )
    errors = [
        *category_faults(service, template, "/template_name"),
        *request_faults(request, template.content, forbidden=forbidden_terms_of(service, settings)),
    ]
    if errors:
        raise InvalidRequest(errors=errors)
    return service, template


async def _posted(pool: Pool, caller: Caller, batch_id: UUID, *, replayed: bool) -> Posted:
    async with pool.connection() as conn:
        found = await broadcasts.find(conn, caller.account_id, caller.owner_id, batch_id=batch_id)
    assert found is not None
    return Posted(batch_id, found.public_id, found.total, replayed)
