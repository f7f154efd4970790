"""Send the failed messages of a settled batch again: as a batch of its own, which its parent has at most one of."""

from dataclasses import dataclass, replace
from hashlib import sha256
from uuid import UUID

from carteiro.domain.errors import Conflict, Gone, NotFound, Unavailable
from carteiro.domain.planning import Rotation
from carteiro.services.api_keys import Caller
from carteiro.services.create.drafts import discard_draft
from carteiro.services.create.load import withdraw_suppressed
from carteiro.services.create.order import begin_draft
from carteiro.services.create.place import Creation
from carteiro.services.create.refusals import NothingToRetry, NotSettled, TemplateNotUsable
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
from carteiro.storage import batches, catalog, claims, retention, retries
from carteiro.storage.batches import Draft
from carteiro.storage.catalog import Service, Template
from carteiro.storage.pool import Connection, Pool, retry_serialization, transact
from carteiro.storage.retries import Parent

TRIES = 3
"""How often the rows are copied, when contacts of the parent are erased meanwhile."""


@dataclass(frozen=True, slots=True)
class _Loaded:
    draft: Draft
    sending: int
    """Messages that need capacity: neither suppressed nor refused by the guard."""
    erasures: int


class _ErasedMeanwhile(Exception):
    """A contact was erased from the parent after its rows were copied: nothing was taken, copy again."""


async def retry_failed(pool: Pool, settings: Settings, caller: Caller, batch_id: UUID) -> Creation:
    """Place a batch with the failed messages of a settled one, or find the one that was placed before.

    It costs and holds what any batch does, and waits for moderation where its service asks for that. Raises NotFound,
    Gone, a Conflict that says what is in the way, InsufficientCredits or CapacityExhausted, and leaves nothing behind.

    The rows are copied into a draft first, so that the locks are held for milliseconds: service, capacity meters,
    parent and child, account. Two requests at once may both copy; whoever comes second under the service's lock is
    answered with the other's batch. A process killed in between leaves a draft, which the sweep collects.
    """
    for _ in range(TRIES):
        parent, service = await _read_ground(pool, caller, batch_id)
        if service is None:
            assert parent.retried_as is not None
            await confirm(pool, parent.retried_as)
            return Creation(parent.retried_as, replayed=True)
        loaded = await _load(pool, caller, parent, _draft(parent, service))
        placed: Creation | None = None
        try:
            placed = await _open(pool, settings, caller, service, loaded)
        except _ErasedMeanwhile:
            continue
        finally:
            if placed is None or placed.replayed:
                await discard_draft(pool, loaded.draft.id)
        return placed
    raise Unavailable("Contacts of the batch are being erased.", retry_after_s=1)


async def _read_ground(pool: Pool, caller: Caller, batch_id: UUID) -> tuple[Parent, Service | None]:
    """The parent with its service; None instead of that: it has been retried, and nothing else matters."""
    async with pool.connection() as conn:
        parent = await retries.read_parent(conn, caller.account_id, batch_id)
        if parent is None:
            raise NotFound("There is no such batch in this account.")
        if parent.retried_as is not None:
            return parent, None
        if parent.door != "batch":
            raise Conflict("Only what was posted to /api/v1/batches can be retried as a whole.")
        if parent.settled_at is None:
            raise NotSettled(parent.status)
        await _check_kept(conn, parent.id)
        service = await catalog.read_service(conn, parent.service_id)
        assert service is not None  # services are deactivated, never deleted
        if not service.active:
            raise Conflict(f"The service {service.id} is not active.")
        frozen = _frozen(parent)
        if not await catalog.is_usable(conn, frozen, service.id):
            raise TemplateNotUsable(frozen.name, frozen.language)
    return parent, service


async def _check_kept(conn: Connection, parent_id: UUID) -> None:
    if await retention.is_dropped(conn, parent_id):
        raise Gone("The batch's messages were dropped for their age: there is nothing left to send again.")


def _frozen(parent: Parent) -> Template:
    content = parent.template_content
    return Template(
        parent.template_name, parent.template_language, content["category"], content, parent.template_signature
    )


def _draft(parent: Parent, service: Service) -> Draft:
    """All but the total. What is sent is the parent's, as it was frozen; what it costs is the service's, as it is."""
    # No request has it: it keeps nobody from posting the same contacts.
    request_signature = sha256(f"retry-failed {parent.id}".encode()).digest()
    return replace(
        begin_draft(service, _frozen(parent), total=0, request_signature=request_signature),
        header=parent.header,
        reference=parent.reference,
        callback_url=parent.callback_url,
        on_capacity=parent.on_capacity,
        max_attempts=parent.max_attempts,
        priority=parent.priority,
        door=parent.door,
        parent_batch_id=parent.id,
        retry_base_s=parent.retry_base_s,
        follow_up=parent.follow_up,
    )


async def _load(pool: Pool, caller: Caller, parent: Parent, draft: Draft) -> _Loaded:
    """Copy the rows into the draft, and withdraw those whose contact is suppressed. Raises Gone or NothingToRetry."""
    async with transact(pool) as conn:
        await batches.set_actor(conn, caller.actor)
        copied = await retries.copy_failed(conn, parent.id, draft.id)
        # After the copy: what is decided before it began to read is gone, or may be in the middle of it.
        await _check_kept(conn, parent.id)
        if not copied.total:
            raise NothingToRetry()
        draft = replace(draft, total=copied.total)
        await batches.add_draft(conn, draft)
        idle = await withdraw_suppressed(conn, draft, copied.guarded, 1, copied.total)
    return _Loaded(draft, copied.total - idle, copied.erasures)


async def _open(pool: Pool, settings: Settings, caller: Caller, service: Service, loaded: _Loaded) -> Creation:
    draft = loaded.draft
    assert draft.parent_batch_id is not None
    parent_id = draft.parent_batch_id

    async def attempt() -> Creation:
        required = 0 if service.test_mode else loaded.sending
        async with transact(pool) as conn:
            await batches.set_actor(conn, caller.actor)
            candidates = await who_could_send(conn, draft) if required else []
            await claims.lock_service(conn, service.id)
            earlier = await retries.find_child(conn, parent_id)
            if earlier is not None:
                return Creation(earlier, replayed=True)
            if required:
                meters = await (await ask_meters(conn, settings, candidates))
                rotation = Rotation(service.rotation)
                await (await hold_capacity(conn, draft, rotation, candidates, meters, required))
            if await retries.lock_parent(conn, parent_id) != loaded.erasures:
                raise _ErasedMeanwhile
            await (await open_batch(conn, service, draft))
            await (await take_credits(conn, caller, draft))
        return Creation(draft.id, replayed=False)

    placed = await retry_serialization(attempt)
    if placed.replayed:
        await confirm(pool, placed.batch_id)
    else:
        await announce(pool, service, placed.batch_id)
    return placed
