"""Creating a batch from contacts that are still on their way: they are screened and loaded as they come."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from carteiro.domain.contacts import Contact, Screened, Screening
from carteiro.domain.errors import FieldError, InvalidRequest, Unavailable
from carteiro.domain.requests import BatchTerms, RequestSignature, refuse_faults
from carteiro.services.api_keys import Caller
from carteiro.services.create.load import Loader, Piece, make_piece
from carteiro.services.create.order import read_ground
from carteiro.services.create.place import Creation, find_under_key, is_used, place_loaded
from carteiro.settings import Settings
from carteiro.storage.batches import Draft
from carteiro.storage.idempotency import Key
from carteiro.storage.pool import Pool

CONTACTS_MAX = 1_000_000


class Lines(NamedTuple):
    """Some lines of a body, decoded."""

    contacts: list[Contact]
    numbers: Sequence[int]
    """The line of each contact."""
    faults: list[FieldError]
    """Of lines that hold no contact."""


@dataclass(frozen=True, slots=True)
class Upload:
    """A request whose contacts come line by line."""

    terms: BatchTerms
    parts: AsyncIterator[Callable[[], Lines]]
    """Each decodes some thousands of lines; called in a thread. May raise a Problem, or whatever ends the request."""
    key: str | None
    digest: Callable[[], bytes]
    """SHA-256 of the whole request, once `parts` is exhausted: what comes with the key."""


async def create_streamed(pool: Pool, settings: Settings, caller: Caller, upload: Upload) -> Creation:
    """Accept a batch, or raise a Problem and leave nothing behind.

    Memory is bounded: two pieces of rows, and about 100 bytes a contact to tell repeated phones. No transaction is open
    while the client's bytes are waited for. Locks as `place_order`; a process killed meanwhile leaves a draft.
    """
    if upload.key is not None and await is_used(pool, caller, upload.key):
        return await _replay(pool, caller, upload, upload.key)
    ground = await read_ground(pool, settings, caller, upload.terms)
    screening = ground.screening()
    if faults := list(ground.faults()):
        refuse_faults(faults, screening, 0)
    signature = RequestSignature(ground.service.account_id, upload.terms)
    draft = ground.draft(total=1, request_signature=b"", skipped=None)
    async with Loader(pool, caller, draft) as loader:
        async for decode in upload.parts:
            piece = await asyncio.to_thread(_screen, decode, screening, signature, draft)
            if piece is not None:
                await loader.add(piece)
        screening.errors.sort(key=lambda error: error.line or 0)
        refuse_faults((), screening, ground.service.min_batch_size)
        complete = replace(
            draft, total=screening.rows, request_signature=signature.digest(), skipped=screening.report()
        )
        key = Key(upload.key, upload.digest()) if upload.key is not None else None
        order = ground.order(complete, Screened([], frozenset()))
        return await place_loaded(pool, settings, caller, order, key, loader)


def _screen(
    decode: Callable[[], Lines], screening: Screening, signature: RequestSignature, draft: Draft
) -> Piece | None:
    """None: there is nothing to load, or no use in it any more. What is wrong is noted, and reading goes on."""
    contacts, numbers, faults = decode()
    for fault in faults:
        screening.refuse(fault)
    screened = screening.screen(contacts, numbers)
    if screening.contacts > CONTACTS_MAX:
        line = numbers[CONTACTS_MAX - screening.contacts]
        told = f"{CONTACTS_MAX:,} contacts at most in one request."
        raise InvalidRequest(errors=[FieldError("", "too-many", told, line)])
    if not screened.rows or screening.error_count:
        return None
    signature.add(screened.rows)
    return make_piece(draft, screened)


async def _replay(pool: Pool, caller: Caller, upload: Upload, key: str) -> Creation:
    """The key was used: read the request only to tell whether it is the same."""
    async for _ in upload.parts:
        pass
    earlier = await find_under_key(pool, caller, Key(key, upload.digest()))
    if earlier is None:
        raise Unavailable("The Idempotency-Key was forgotten just now.", retry_after_s=1)
    return Creation(earlier, replayed=True)
