"""Record what a claim's calls came to: one transaction a flush, set by set, fenced by the claim."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from carteiro.domain.outcomes import (
    Accepted,
    Ambiguous,
    Fact,
    FactKind,
    Kind,
    NotSent,
    RefusedTogether,
    Rejected,
    Scope,
    Throttled,
    message_key,
)
from carteiro.domain.retries import attempt_delay_s
from carteiro.services.dispatch.model import Result, Slice
from carteiro.services.dispatch.waking import wake_waiting
from carteiro.settings import Settings
from carteiro.storage import capacity, outcomes
from carteiro.storage.capacity import Unit, meters_of
from carteiro.storage.facts import merge_facts, note_returned
from carteiro.storage.outcomes import Move
from carteiro.storage.pool import Connection, Pool, retry_serialization, transact

THROTTLE_WAIT_S = 2.0
"""How long a service or sender waits when the provider says "too many" without saying for how long."""
PAIR_WAIT_MAX_S = 900.0
PAIR_WAIT_BASE = 4.0
"""A contact who gets too many from one sender waits this to the power of how often that was said before, in seconds."""
ATTEMPTS_MAX = 100
"""Attempts of a message whose batch sets no `max_attempts`: what never leaves must not keep its batch open for ever."""
ACCOUNT_WAIT_S = 300.0
"""How long a service waits after the provider refused its account; an operator has to look at it."""
BLACKOUT_AFTER = 15
"""Infrastructure failures in a row after which a service is suspended, and tried with single messages."""

NOT_THE_CONTACTS_FAULT = (Kind.TEMPLATE, Kind.SENDER, Kind.ACCOUNT)
"""Refusals that say nothing against the contact: its message goes back, and what was refused is stopped."""


@dataclass(slots=True)
class Verdicts:
    """The results of one flush, sorted by what is to be written."""

    facts: list[Fact] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)
    refused: set[int] = field(default_factory=set)
    stopped_senders: set[str] = field(default_factory=set)
    stopped_bms: set[str] = field(default_factory=set)
    account_refused: bool = False
    throttle_s: float | None = None
    sender_waits_s: dict[str, float] = field(default_factory=dict)
    pairs: set[int] = field(default_factory=set)
    """Rows whose contact gets too many from their sender."""
    notes: dict[str, list[int]] = field(default_factory=dict)
    """Codes of accepted messages that the provider keeps back."""
    failures: int = 0
    """Infrastructure failures since the last answer."""
    answered: bool = False
    latencies_s: list[float] = field(default_factory=list)

    def hear(self) -> None:
        """An answer of the provider itself ends a run of failures, whatever it says."""
        self.answered = True
        self.failures = 0


async def record(pool: Pool, piece: Slice, results: Sequence[Result], flush: int, settings: Settings) -> None:
    """Write one flush. Calling it again with the same `flush` and results is harmless: after a lost answer to the
    commit the repeat finds the flush taken.

    Locks: the claim, the capacity meters of units that come back, the batch (FOR KEY SHARE), messages in order of seq.
    """

    async def attempt() -> list[Unit]:
        async with transact(pool) as conn:
            if await outcomes.begin_flush(conn, piece.claim_id, flush, len(results)):
                return await _write(conn, piece, results, settings)
        return []

    returned = await retry_serialization(attempt)
    if returned:
        await wake_waiting(pool, (unit.business_manager for unit in returned))


async def _write(conn: Connection, piece: Slice, results: Sequence[Result], settings: Settings) -> list[Unit]:
    """Answers the units that came back."""
    verdicts = judge(results)
    units = {result.due.outgoing.seq: result.due.unit for result in results if result.due.unit is not None}
    may_return = {move.seq for move in verdicts.moves if move.event != "lost"} | verdicts.refused
    if may_return:
        meters = meters_of(units[seq] for seq in may_return)
        await capacity.lock_meters(conn, meters, keep_s=settings.window_s + settings.bucket_s)

    batch = await outcomes.share_batch(conn, piece.batch_id)
    attempts = {result.due.outgoing.seq: result.due.attempt for result in results}
    pair_waits_s = await wait_for_pairs(conn, piece, verdicts.pairs)
    moves = [
        final_move(
            move,
            attempts[move.seq],
            message_key(piece.batch_id, move.seq),
            pair_wait_s=pair_waits_s.get(move.seq, 0.0),
            max_attempts=batch.max_attempts,
            retry_base_s=batch.retry_base_s,
            sends=batch.sends,
        )
        for move in verdicts.moves
    ]

    merged = await merge_facts(conn, piece.batch_id, verdicts.facts, claim_id=piece.claim_id)
    moved = await outcomes.move_claimed(
        conn, piece.batch_id, piece.claim_id, moves, look_after_s=settings.reconcile_after_s
    )

    for code, seqs in sorted(verdicts.notes.items()):
        await outcomes.note_code(conn, piece.batch_id, piece.claim_id, seqs, code)
    duplicates = [move.seq for move in verdicts.moves if move.duplicate]
    await outcomes.note_duplicates(conn, piece.batch_id, piece.claim_id, duplicates)

    given_back = [row.unit for row in moved if row.event == "given_back"]
    ended = [row.unit for row in moved if row.event in ("dropped", "exhausted")]
    refused = [row for row in merged if row.seq in verdicts.refused and row.moved and row.unit]
    await note_returned(conn, piece.batch_id, [row.seq for row in refused])
    ended += [row.unit for row in refused if row.unit]
    await capacity.give_back(conn, piece.batch_id, given_back, restore_holds=batch.sends)
    await capacity.give_back(conn, piece.batch_id, ended, restore_holds=False)
    await note_service(conn, piece, verdicts, settings)
    return given_back + ended


def judge(results: Sequence[Result]) -> Verdicts:
    """Sort results into facts and moves. Pure: what each outcome means is said here and nowhere else."""
    verdicts = Verdicts()
    for result in results:
        outgoing, seq, together = result.due.outgoing, result.due.outgoing.seq, result.due.together
        if result.latency_s is not None:
            verdicts.latencies_s.append(result.latency_s)
        match result.outcome:
            case None:
                verdicts.moves.append(Move(seq, "given_back", together=together))
            case RefusedTogether(code, messages):
                # Halves of it go next, each in slots of its own, until the message that is to blame is alone.
                verdicts.hear()
                verdicts.moves.append(Move(seq, "given_back", code, together=messages // 2))
            case Accepted(provider_id, note):
                verdicts.hear()
                if note is not None:
                    verdicts.notes.setdefault(note, []).append(seq)
                verdicts.facts.append(Fact(outgoing.batch_id, seq, FactKind.SENT, result.at, provider_id))
            case Rejected(code, kind, _) if kind in _not_the_contacts_fault(result):
                verdicts.hear()
                verdicts.moves.append(Move(seq, "given_back", code, delay_s=1.0, together=together))
                if kind is Kind.SENDER:
                    verdicts.stopped_senders.add(result.due.sender_id)
                elif kind is Kind.TEMPLATE and result.due.unit is not None:
                    verdicts.stopped_bms.add(result.due.unit.business_manager)
                else:
                    verdicts.account_refused = True
            case Rejected(code, kind, _):
                verdicts.hear()
                verdicts.refused.add(seq)
                verdicts.facts.append(Fact(outgoing.batch_id, seq, FactKind.FAILED, result.at, None, code, kind))
            case Throttled(retry_after_s, code, Scope.CONTACT):
                verdicts.hear()
                verdicts.pairs.add(seq)
                verdicts.moves.append(Move(seq, "given_back", code, delay_s=retry_after_s or 0.0, together=together))
            case Throttled(retry_after_s, code, Scope.SENDER):
                verdicts.hear()
                sender, wait_s = result.due.sender_id, retry_after_s if retry_after_s is not None else THROTTLE_WAIT_S
                verdicts.sender_waits_s[sender] = max(wait_s, verdicts.sender_waits_s.get(sender, 0.0))
                # Another sender may take it at once.
                verdicts.moves.append(Move(seq, "given_back", code, delay_s=min(wait_s, 1.0), together=together))
            case Throttled(retry_after_s, code):
                verdicts.hear()
                wait_s = retry_after_s if retry_after_s is not None else THROTTLE_WAIT_S
                verdicts.throttle_s = max(wait_s, verdicts.throttle_s or 0.0)
                verdicts.moves.append(Move(seq, "given_back", code, delay_s=wait_s, together=together))
            case NotSent(code, _, tries_max):
                verdicts.failures += result.stands_for_request
                verdicts.moves.append(Move(seq, "given_back", code, attempts=1, tries_max=tries_max, together=together))
            case Ambiguous(code, _, duplicate):
                if duplicate:
                    verdicts.hear()
                else:
                    verdicts.failures += result.stands_for_request
                verdicts.moves.append(Move(seq, "lost", code, duplicate=duplicate))
    return verdicts


def _not_the_contacts_fault(result: Result) -> Sequence[Kind]:
    """A follow-up has no template that could be at fault."""
    return NOT_THE_CONTACTS_FAULT if result.due.unit is not None else (Kind.SENDER, Kind.ACCOUNT)


def final_move(
    move: Move,
    earlier: int,
    key: str,
    *,
    pair_wait_s: float,
    max_attempts: int | None = None,
    retry_base_s: float | None = None,
    sends: bool = True,
) -> Move:
    """The last of its attempts fails, an earlier one waits, as does a contact who gets too many; a row given back to a
    batch that no longer sends is dropped. `earlier` attempts there were before, of the message that goes by `key`.
    """
    if move.event != "given_back":
        return move
    attempt = earlier + move.attempts
    if move.attempts and attempt >= min(max_attempts or ATTEMPTS_MAX, move.tries_max or ATTEMPTS_MAX):
        return replace(move, event="exhausted")
    if not sends:
        return replace(move, event="dropped")
    if move.attempts:
        return replace(move, delay_s=attempt_delay_s(retry_base_s, attempt, key))
    return replace(move, delay_s=max(move.delay_s, pair_wait_s)) if pair_wait_s else move


async def wait_for_pairs(conn: Connection, piece: Slice, seqs: set[int]) -> dict[int, float]:
    """How long each of these rows waits: longer each time."""
    waits = await outcomes.note_pair_waits(conn, piece.batch_id, sorted(seqs))
    return {seq: min(PAIR_WAIT_MAX_S, PAIR_WAIT_BASE ** min(n - 1, 10)) for seq, n in waits.items()}


async def note_service(conn: Connection, piece: Slice, verdicts: Verdicts, settings: Settings) -> None:
    """What the calls told about service, senders and submissions. Last, because every worker of the service writes
    here.
    """
    if verdicts.stopped_senders:
        await outcomes.stop_senders(conn, sorted(verdicts.stopped_senders))
    if verdicts.sender_waits_s:
        await outcomes.wait_senders(conn, verdicts.sender_waits_s, reason="throttled")
    if verdicts.stopped_bms:
        await outcomes.stop_submissions(conn, piece.batch_id, sorted(verdicts.stopped_bms))
    if not verdicts.latencies_s:
        return
    failures = await outcomes.note_health(
        conn,
        piece.service_id,
        latency_s=sum(verdicts.latencies_s) / len(verdicts.latencies_s),
        answered=verdicts.answered,
        failures=verdicts.failures,
    )
    if verdicts.account_refused:
        await outcomes.wait_service(conn, piece.service_id, wait_s=ACCOUNT_WAIT_S, reason="account_refused")
    elif failures >= BLACKOUT_AFTER:
        await outcomes.black_out(
            conn, piece.service_id, first_s=settings.blackout_first_s, longest_s=settings.blackout_longest_s
        )
    elif verdicts.throttle_s:
        await outcomes.wait_service(conn, piece.service_id, wait_s=verdicts.throttle_s, reason="throttled")
