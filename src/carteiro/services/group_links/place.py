"""From a request to a batch of one, in one short transaction; the same reference twice is one send."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from uuid import UUID

from carteiro.domain import phones
from carteiro.domain.contacts import Row
from carteiro.domain.errors import Conflict, FieldError, IdempotencyKeyReused, InvalidRequest
from carteiro.domain.group_links import (
    Door,
    GroupLinkRequest,
    Invitation,
    extra_of,
    request_faults,
    request_hash,
    template_faults,
)
from carteiro.domain.phones import Phone
from carteiro.domain.requests import OnCapacity
from carteiro.services.api_keys import Caller
from carteiro.services.create import Creation, Key
from carteiro.services.create.order import (
    Order,
    begin_draft,
    category_faults,
    forbidden_terms_of,
    read_usable_template,
)
from carteiro.services.create.place import find_under_key, place_order
from carteiro.settings import Settings
from carteiro.storage import catalog, group_links, outcomes
from carteiro.storage.batches import Draft
from carteiro.storage.catalog import Service, Template
from carteiro.storage.pool import Connection, Pool

SCOPE = "group-link"
"""Of references among an account's idempotency keys."""
PRIORITY = 10
"""Above bulk, which has 0."""


class ReferenceReused(IdempotencyKeyReused):
    code = "reference-reused"
    title = "This reference was used with another request"

    def __init__(self) -> None:
        super().__init__(
            self.title, errors=[FieldError("/reference", self.code, "Take another, or repeat the same request.")]
        )


@dataclass(frozen=True, slots=True)
class Ground:
    """What a request is checked against. `now` is the database's clock."""

    service: Service
    template: Template
    now: datetime


async def post_link(pool: Pool, settings: Settings, caller: Caller, request: GroupLinkRequest) -> Creation:
    """Accept a group link, or raise a Problem and leave nothing behind. Locks as `place_order`."""
    key = key_of(Door.GROUP_LINK, request)
    if (earlier := await find_earlier(pool, caller, key)) is not None:
        return Creation(earlier, replayed=True)
    ground = await read_ground(pool, settings, caller, request)
    scheduled_at = ground.now + timedelta(milliseconds=request.delay_ms) if request.delay_ms else None
    draft = draft_of(
        Door.GROUP_LINK,
        request,
        ground,
        scheduled_at=scheduled_at,
        max_attempts=request.max_attempts,
        retry_base_s=settings.group_link_retry_base_s,
    )
    return await place(pool, settings, caller, request, ground, draft, key)


def key_of(door: Door, request: Invitation) -> Key | None:
    if request.reference is None:
        return None
    return Key(request.reference, request_hash(door, request), SCOPE)


async def find_earlier(pool: Pool, caller: Caller, key: Key | None) -> UUID | None:
    """The batch of an earlier request of this reference. Raises ReferenceReused."""
    if key is None:
        return None
    try:
        return await find_under_key(pool, caller, key)
    except IdempotencyKeyReused:
        raise ReferenceReused() from None


async def read_ground(pool: Pool, settings: Settings, caller: Caller, request: Invitation) -> Ground:
    """The service and template of a valid request. Raises InvalidRequest, Conflict, UnknownTemplate or
    TemplateNotApproved.
    """
    if errors := list(request_faults(request)):
        raise InvalidRequest(errors=errors)
    async with pool.connection() as conn:
        service = await catalog.read_group_link_service(conn, caller.account_id, request.flow)
        if service is None:
            raise Conflict(f"This account has no active service for group links of flow {request.flow}.")
        name, language = request.template.name, request.template.language
        template = await read_usable_template(conn, service.id, name, language)
        now = await outcomes.read_clock(conn)
    errors = [
        *template_faults(request, template.content, forbidden_terms_of(service, settings)),
        *category_faults(service, template, "/template"),
    ]
    if errors:
        raise InvalidRequest(errors=errors)
    return Ground(service, template, now)


def draft_of(
    door: Door,
    request: Invitation,
    ground: Ground,
    *,
    scheduled_at: datetime | None = None,
    expires_at: datetime | None = None,
    max_attempts: int | None = None,
    retry_base_s: float | None = None,
) -> Draft:
    return replace(
        begin_draft(ground.service, ground.template, total=1, request_signature=request_hash(door, request)),
        reference=request.reference,
        on_capacity=OnCapacity.SPILL,
        max_attempts=max_attempts,
        scheduled_at=scheduled_at,
        expires_at=expires_at,
        priority=PRIORITY,
        door=door,
        retry_base_s=retry_base_s,
    )


async def place(
    pool: Pool,
    settings: Settings,
    caller: Caller,
    request: Invitation,
    ground: Ground,
    draft: Draft,
    key: Key | None,
) -> Creation:
    """Raises InsufficientCredits or ReferenceReused. Locks as `place_order`."""

    async def write_beside(conn: Connection) -> None:
        await group_links.add(conn, draft.id, draft.account_id, request.flow)

    phone = phones.parse(request.phone)
    assert isinstance(phone, Phone)
    content = ground.template.content
    placeholders = [request.name, request.group_link]
    order = Order(
        service=ground.service,
        draft=draft,
        rows=[Row(1, phone.identity, phone.address, placeholders, extra_of(request, content))],
        starts_now=draft.scheduled_at is None and not ground.service.test_mode,
        guarded=frozenset(),
        allow_duplicate=True,
        signed=False,
        write_beside=write_beside,
    )
    try:
        return await place_order(pool, settings, caller, order, key)
    except IdempotencyKeyReused:
        raise ReferenceReused() from None
