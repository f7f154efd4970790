"""Erasure of one person: who it was, and what was written to them, is taken out of everything that is kept.

States, counts and money stay as they are; the audit keeps a salted hash of the phone and that it was erased.
"""

from dataclasses import dataclass
from uuid import UUID

from carteiro.domain.erasure import redact, spellings
from carteiro.domain.lifecycle import MessageState
from carteiro.domain.outcomes import followup_key, message_key
from carteiro.domain.phones import Phone
from carteiro.storage import batches, erasure, follow_ups, outcomes
from carteiro.storage.erasure import START, PayloadId
from carteiro.storage.pool import Connection, Pool, retry_serialization, transact

PAGE = 1_000
"""Raw receipts that one statement looks through."""
ON_THEIR_WAY = (MessageState.PENDING_SEND, MessageState.UNKNOWN)


@dataclass(slots=True)
class Erasure:
    """What was done. `waiting` above 0: do it again in a moment."""

    messages: int = 0
    withdrawn: int = 0
    """Of these, messages that had not left; they are refunded when their batch is settled."""
    on_their_way: int = 0
    """Messages and follow-ups that may be under way at this moment: no further call of them will be made."""
    payloads: int = 0
    """Raw receipts and inbound messages from which the person was taken out."""
    waiting: int = 0
    """Raw receipts that mention the person and were left, because they are not merged yet."""


async def erase_contact(pool: Pool, phone: Phone, *, actor: str, reason: str | None = None) -> Erasure:
    """Erase a contact from the batches of every account. Safe to repeat; killed anywhere, the repeat goes on.

    One transaction a batch: locks the batch (FOR KEY SHARE), its message, what follows that. Raw receipts are looked
    through page by page, all of them. The suppression list keeps the phone: without it, nobody would know whom not to
    write to.
    """
    done = Erasure()
    # Again until nothing is found: what was copied into a retry before its parent's turn came is there by now.
    while found := await _find_batches(pool, phone):
        for batch_id in found:

            async def attempt(batch_id: UUID = batch_id) -> Erasure:
                async with transact(pool) as conn:
                    return await _erase_from_batch(conn, batch_id, phone, actor, reason)

            _add(done, await retry_serialization(attempt))
    after: PayloadId | None = START
    while after is not None:
        async with pool.connection() as conn:
            mentioning, after = await erasure.scan_payloads(conn, after, spellings(phone), limit=PAGE)
        for payload in mentioning:
            async with transact(pool) as conn:
                _add(done, await _redact(conn, payload, spellings(phone)))
    async with transact(pool) as conn:
        await batches.set_actor(conn, actor)
        await erasure.note(conn, phone.identity, payloads=done.payloads, reason=reason)
    return done


async def _find_batches(pool: Pool, phone: Phone) -> list[UUID]:
    async with pool.connection() as conn:
        return await erasure.find_batches(conn, phone.identity)


async def _erase_from_batch(conn: Connection, batch_id: UUID, phone: Phone, actor: str, reason: str | None) -> Erasure:
    await batches.set_actor(conn, actor)
    await outcomes.share_batch(conn, batch_id)
    found = await erasure.lock_message(conn, batch_id, phone.identity)
    if found is None:
        return Erasure()
    seq, status = found
    # Before its ids are read: whoever is recording one has committed it, or sees that the contact is gone.
    following = (await follow_ups.lock(conn, batch_id, [seq])).values()
    on_their_way = sum(state in ON_THEIR_WAY for state in (status, *(row.status for row in following)))
    done = Erasure(messages=1, on_their_way=on_their_way)
    done.withdrawn = await erasure.withdraw(conn, batch_id, [seq])
    # A receipt may name the message and not the phone, where the contact hides it.
    words = [
        *spellings(phone),
        message_key(batch_id, seq),
        followup_key(batch_id, seq),
        *await erasure.read_provider_ids(conn, batch_id, seq),
    ]
    await erasure.forget_contact(conn, batch_id, seq)
    await follow_ups.forget_contact(conn, batch_id, seq)
    for payload in await erasure.find_payloads(conn, batch_id, seq):
        _add(done, await _redact(conn, payload, words))
    await erasure.note(conn, phone.identity, batch_id=batch_id, messages=1, payloads=done.payloads, reason=reason)
    return done


async def _redact(conn: Connection, payload: PayloadId, words: list[str]) -> Erasure:
    """Locks the payload."""
    locked = await erasure.lock_payload(conn, payload)
    if locked is None:
        return Erasure()
    body, waits = locked
    redacted = redact(body, words)
    if redacted is None:
        return Erasure()
    if waits:
        return Erasure(waiting=1)
    await erasure.put_payload(conn, payload, redacted)
    return Erasure(payloads=1)


def _add(done: Erasure, more: Erasure) -> None:
    for name in Erasure.__dataclass_fields__:
        setattr(done, name, getattr(done, name) + getattr(more, name))
