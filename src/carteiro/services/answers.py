"""What contacts write to us, as answers: each message of a two-step batch is followed up once, by its first answer."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from carteiro.domain.outcomes import FactKind, Inbound, parse_followup_key, parse_message_key
from carteiro.services.suppression import identity_of
from carteiro.storage import aliases, follow_ups
from carteiro.storage.aliases import Alias
from carteiro.storage.follow_ups import Answer, Found
from carteiro.storage.pool import Connection
from carteiro.storage.receipts import Known, Payload, Receipt, Result

SEQ_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Written:
    """One thing that a contact wrote, and the payload that told it. Stop words are none."""

    payload: Payload
    accounts: tuple[str, ...]
    """Whose the number is that it was written to."""
    inbound: Inbound


async def note_answers(conn: Connection, written: Sequence[Written], *, window_s: float) -> list[Receipt]:
    """Make the follow-ups that these call for, in the caller's transaction; what became of each.

    An answer is attributed by the message that it names, else by who wrote it and when: by the time of the answer
    itself, so that it comes to the same however late and often it is told. One without a time names its message or
    none.
    """
    named = await _find_named(conn, [one.inbound.context_id for one in written if one.inbound.context_id])
    asked = [(n, answer) for n, one in enumerate(written) for answer in _answers(one, named)]
    by_place = await follow_ups.find_answered(conn, [answer for _, answer in asked], window_s=window_s)
    found: dict[int, tuple[Answer, Found]] = {}
    for place, message in by_place.items():
        n, answer = asked[place]
        # Of several accounts that share the number the one that wrote last is meant.
        if n not in found or found[n][1].slot_at < message.slot_at:
            found[n] = answer, message
    made = await follow_ups.note_answers(conn, [pair for pair in found.values() if pair[1].due], window_s=window_s)
    told: list[Receipt] = []
    for n, one in enumerate(written):
        at = one.inbound.at or one.payload.received_at
        if n not in found:
            told.append(Receipt(one.payload, Result.IGNORED, "inbound", at=at))
            continue
        message = found[n][1]
        key = message.batch_id, message.seq
        told.append(Receipt(one.payload, _result(message, made), "inbound", *key, at=at))
        # Of several first ones in this transaction one made it.
        made.discard(key)
    return told


async def lock_known(conn: Connection, batch_id: UUID, seqs: Collection[int]) -> dict[int, Known]:
    """Lock follow-ups of one batch and read what is known, as `receipts.lock_messages` does of messages."""
    return {
        seq: Known(
            row.status,
            row.claim_id is not None,
            {kind: at for kind in FactKind if (at := row.known.at(kind)) is not None},
            row.number,
        )
        for seq, row in (await follow_ups.lock(conn, batch_id, seqs)).items()
    }


def _result(message: Found, made: set[tuple[UUID, int]]) -> Result:
    if not message.due:
        return Result.IGNORED
    return Result.APPLIED if (message.batch_id, message.seq) in made else Result.REPEATED


async def _find_named(conn: Connection, context_ids: Sequence[str]) -> dict[str, Alias]:
    """What the ids stand for, ours and those of the provider that we know."""
    named = await aliases.find(conn, sorted(set(context_ids)))
    for context_id in context_ids:
        if key := parse_message_key(context_id):
            named[context_id] = Alias(*key, followup=False)
        elif key := parse_followup_key(context_id):
            named[context_id] = Alias(*key, followup=True)
    return {context_id: alias for context_id, alias in named.items() if alias.seq <= SEQ_MAX}


def _answers(one: Written, known: Mapping[str, Alias]) -> list[Answer]:
    """One for each account that may be meant; none to what followed already, or where nothing tells what it answers."""
    inbound = one.inbound
    named = known.get(inbound.context_id) if inbound.context_id else None
    if (named is not None and named.followup) or (named is None and inbound.at is None):
        return []
    return [
        Answer(
            account_id,
            _no_later(inbound.at, one.payload.received_at),
            (named.batch_id, named.seq) if named else None,
            identity_of(inbound.phone),
            inbound.sender,
        )
        for account_id in one.accounts
    ]


def _no_later(at: datetime | None, received_at: datetime) -> datetime:
    """Nobody wrote in the future: a window must not open longer than it is."""
    return received_at if at is None else min(at, received_at)
