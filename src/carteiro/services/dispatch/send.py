"""Send a claimed slice: its rows leave at their slots, alone or several in one request to the provider, with no
connection to Postgres held.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import structlog

from carteiro.domain.outcomes import Ambiguous, FreeForm, Outcome, Outgoing
from carteiro.providers.contract import Provider
from carteiro.services.dispatch.clock import from_us, monotonic_s, to_us
from carteiro.services.dispatch.model import Due, Result, Slice

log = structlog.get_logger(__name__)

Note = Callable[[Slice, Result], None]

SHORTEST_SLEEP_S = 0.002
"""Rows whose slots are closer than that leave after one sleep: a timer costs more than what lies between them, and
uvloop's go by the millisecond.
"""
GATHER = 0.4
"""Part of the tolerated lateness for which a row waits past its slot for others to leave with. The rest is for lags."""


@dataclass(frozen=True, slots=True)
class Calls:
    """What the calls of one worker process share."""

    limit: asyncio.Semaphore
    """Calls in flight at once."""
    may_start: Callable[[], bool]
    """False once the worker is told to stop."""
    lateness_s: float
    timeout_s: float
    """Hard total deadline of one call."""


async def send_slice(piece: Slice, provider: Provider, calls: Calls, note: Note) -> None:
    """Send every row at its slot and note what came of it, in the order of the answers.

    A row that is too late for its slot, whose lease may end before the call does or whose slice was halted is noted as
    not started.
    """
    most = min(piece.messages_per_request, provider.messages_per_request_max)
    running: set[asyncio.Task[None]] = set()

    def finished(task: asyncio.Task[None]) -> None:
        running.discard(task)
        calls.limit.release()

    for group in in_requests(piece.due, most, round(calls.lateness_s * GATHER * 1e6)):
        await _until(piece, group[-1])
        if piece.halted:
            # At once, without waiting for a call in flight to make room: what is not on its way is soon seen to be so.
            _note_unstarted(piece, group, note, piece.reading.latest_us(monotonic_s()))
            continue
        await calls.limit.acquire()
        task = asyncio.create_task(_call(piece, group, provider, calls, note))
        running.add(task)
        task.add_done_callback(finished)
    while running:
        await asyncio.wait(running)


def in_requests(due: Sequence[Due], most: int, gather_us: int) -> Iterator[list[Due]]:
    """Rows in order of slot, cut into requests of at most `most`: each leaves at the slot of its last row, which is no
    more than `gather_us` after the slot of its first.
    """
    group: list[Due] = []
    limit = most
    for row in due:
        limit = min(limit, row.together or most)
        if group and (len(group) >= limit or row.slot_us - group[0].slot_us > gather_us):
            yield group
            group, limit = [], min(most, row.together or most)
        group.append(row)
    if group:
        yield group


async def _until(piece: Slice, due: Due) -> None:
    """A timer may fire early: only the clock says that the slot was reached. A halted slice waits for no slot."""
    wait_s = piece.reading.wait_s(due.slot_us, monotonic_s())
    while wait_s > 0 and not piece.halted:
        await asyncio.sleep(max(wait_s, SHORTEST_SLEEP_S))
        wait_s = piece.reading.wait_s(due.slot_us, monotonic_s())


async def _call(piece: Slice, group: list[Due], provider: Provider, calls: Calls, note: Note) -> None:
    """One request. The last check, row by row, stands as close to the write as we can put it; what remains is
    documented in the architecture.
    """
    started_s = monotonic_s()
    latest_us = piece.reading.latest_us(started_s)
    piece.lags_s.append(max(0.0, (latest_us - group[-1].slot_us) / 1e6))
    # The lease must outlast the call: one that lapsed on the way would arrive for a message that is nobody's any more.
    outlasts_us = to_us(piece.lease_until) - round(calls.timeout_s * 1e6)
    if latest_us >= outlasts_us or piece.halted or not calls.may_start():
        _note_unstarted(piece, group, note, latest_us)
        return
    oldest_us = latest_us - round(calls.lateness_s * 1e6)
    going = [due for due in group if due.slot_us >= oldest_us]
    if len(going) < len(group):
        _note_unstarted(piece, [due for due in group if due.slot_us < oldest_us], note, latest_us)
    if not going:
        return
    outcomes = await _submit(going, provider, calls.timeout_s)
    ended_s = monotonic_s()
    ended_at = from_us(piece.reading.latest_us(ended_s))
    latency_s: float | None = ended_s - started_s
    for due, outcome in zip(going, outcomes, strict=True):
        note(piece, Result(due, outcome, latency_s, ended_at, stands_for_request=latency_s is not None))
        latency_s = None


def _note_unstarted(piece: Slice, rows: Sequence[Due], note: Note, at_us: int) -> None:
    for due in rows:
        note(piece, Result(due, None, None, from_us(at_us)))


async def _submit(rows: Sequence[Due], provider: Provider, timeout_s: float) -> Sequence[Outcome]:
    """A provider answers with outcomes; whatever it raises all the same may have happened after the write."""
    first = rows[0].outgoing
    try:
        async with asyncio.timeout(timeout_s):
            if isinstance(first, FreeForm):
                return [await provider.submit_free(first)]
            outcomes = await provider.submit([due.outgoing for due in rows if isinstance(due.outgoing, Outgoing)])
            if len(outcomes) == len(rows):
                return outcomes
            raise RuntimeError(f"{len(outcomes)} outcomes of {len(rows)} messages")
    except TimeoutError:
        return [Ambiguous("TIMEOUT")] * len(rows)
    except Exception:
        log.exception("call_raised", batch_id=str(first.batch_id), seq=first.seq, messages=len(rows))
        return [Ambiguous("CALL_RAISED")] * len(rows)
