"""Send a claimed slice: each row is one provider call at its slot, with no connection to Postgres held."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from carteiro.domain.outcomes import Ambiguous, FreeForm, Outcome
from carteiro.providers.contract import Provider
from carteiro.services.dispatch.clock import from_us, monotonic_s, to_us
from carteiro.services.dispatch.model import Due, Result, Slice

log = structlog.get_logger(__name__)

Note = Callable[[Slice, Result], None]


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


async def send_slice(piece: Slice, provider: Provider, calls: Calls, note: Note) -> float:
    """Send every row at its slot and note what came of it, in the order of the answers. Answers the lag in seconds
    that three of four calls stayed within.

    A row that is too late for its slot, whose lease is over or whose slice was halted is noted as not started.
    """
    running: set[asyncio.Task[float]] = set()
    lags_s: list[float] = []

    def finished(task: asyncio.Task[float]) -> None:
        running.discard(task)
        calls.limit.release()
        lags_s.append(task.result())

    for due in piece.due:
        await _until(piece, due)
        if piece.halted:
            # At once, without waiting for a call in flight to make room: what is not on its way is soon seen to be so.
            note(piece, Result(due, None, None, from_us(piece.reading.latest_us(monotonic_s()))))
            continue
        await calls.limit.acquire()
        task = asyncio.create_task(_call(piece, due, provider, calls, note))
        running.add(task)
        task.add_done_callback(finished)
    while running:
        await asyncio.wait(running)
    return sorted(lags_s)[len(lags_s) * 3 // 4] if lags_s else 0.0


async def _until(piece: Slice, due: Due) -> None:
    """A timer may fire early: only the clock says that the slot was reached. A halted slice waits for no slot."""
    wait_s = piece.reading.wait_s(due.slot_us, monotonic_s())
    while wait_s > 0 and not piece.halted:
        await asyncio.sleep(wait_s)
        wait_s = piece.reading.wait_s(due.slot_us, monotonic_s())


async def _call(piece: Slice, due: Due, provider: Provider, calls: Calls, note: Note) -> float:
    """One call. The last check stands as close to the write as we can put it; what remains is documented in the
    architecture.
    """
    started_s = monotonic_s()
    latest_us = piece.reading.latest_us(started_s)
    lag_s = max(0.0, (latest_us - due.slot_us) / 1e6)
    too_late = lag_s > calls.lateness_s or latest_us >= to_us(piece.lease_until)
    if too_late or piece.halted or not calls.may_start():
        note(piece, Result(due, None, None, from_us(latest_us)))
        return lag_s
    outcome = await _submit(due, provider, calls.timeout_s)
    ended_s = monotonic_s()
    note(piece, Result(due, outcome, ended_s - started_s, from_us(piece.reading.latest_us(ended_s))))
    return lag_s


async def _submit(due: Due, provider: Provider, timeout_s: float) -> Outcome:
    """A provider answers with outcomes; whatever it raises all the same may have happened after the write."""
    try:
        async with asyncio.timeout(timeout_s):
            if isinstance(due.outgoing, FreeForm):
                return await provider.submit_free(due.outgoing)
            return (await provider.submit([due.outgoing]))[0]
    except TimeoutError:
        return Ambiguous("TIMEOUT")
    except Exception:
        log.exception("call_raised", batch_id=str(due.outgoing.batch_id), seq=due.outgoing.seq)
        return Ambiguous("CALL_RAISED")
