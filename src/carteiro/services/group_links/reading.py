"""Group links and reminders as their account sees them, in the words of their door."""

from dataclasses import dataclass
from uuid import UUID

from carteiro.domain.errors import Gone, NotFound
from carteiro.domain.group_links import LinkState, link_state
from carteiro.services.codes import describe_code
from carteiro.services.create import Key
from carteiro.services.group_links.place import SCOPE
from carteiro.storage import batches, group_links, idempotency
from carteiro.storage.group_links import LinkRow
from carteiro.storage.pool import Pool


@dataclass(frozen=True, slots=True)
class LinkView:
    row: LinkRow
    state: LinkState
    code: str | None
    """Of the last call that failed, or of what ended it. None once it was sent."""
    detail: str | None


async def read_link(pool: Pool, account_id: str, link_id: UUID) -> LinkView:
    """Raises NotFound, for another account's as for none, or Gone for one that is older than what is kept."""
    async with pool.connection() as conn:
        found = await group_links.read_page(conn, account_id, first_id=link_id, last_id=link_id)
        if not found and await group_links.was_link(conn, account_id, link_id):
            raise Gone("It was dropped for its age. Its batch is kept.")
    if not found:
        raise NotFound("There is no such group link in this account.")
    return view(found[0])


async def read_links(
    pool: Pool, account_id: str, *, reference: str | None, before_id: UUID | None, limit: int
) -> list[LinkView]:
    """Newest first, those created before `before_id`; of a reference the one that has it."""
    first_id, last_id = batches.LOWEST_ID, UUID(int=max(1, before_id.int) - 1) if before_id else batches.HIGHEST_ID
    async with pool.connection() as conn:
        if reference is not None:
            used = await idempotency.find_key(conn, account_id, Key(reference, b"", SCOPE))
            if used is None or used[1] > last_id:
                return []
            first_id = last_id = used[1]
        found = await group_links.read_page(conn, account_id, first_id=first_id, last_id=last_id, limit=limit)
    return [view(row) for row in found]


def view(row: LinkRow) -> LinkView:
    """What follows from one row. Pure."""
    state = link_state(row.batch_status, row.message_status)
    code = row.error_code or row.code
    if state is LinkState.SENT or code is None:
        return LinkView(row, state, None, None)
    return LinkView(row, state, code, row.reason if code == row.error_code else _told(row, code))


def _told(row: LinkRow, code: str) -> str:
    meaning = describe_code(code) or f"the last call was answered with {code}"
    if row.attempts and row.max_attempts:
        return f"{row.attempts} of {row.max_attempts} calls did not leave; {meaning}"
    return meaning
