"""Pump one service: claim, send, record, next batch in turn, until there is nothing to do or the time is up."""

import asyncio
import time

import structlog

from carteiro.providers.contract import Provider
from carteiro.services.dispatch.claim import claim_slice, slice_length_s
from carteiro.services.dispatch.clock import monotonic_s
from carteiro.services.dispatch.follow_up_claim import any_wait, claim_follow_ups
from carteiro.services.dispatch.model import Nothing, Slice
from carteiro.services.dispatch.send import send_slice
from carteiro.services.dispatch.spacing import Spacing
from carteiro.services.dispatch.station import Station
from carteiro.storage.pool import UNREACHABLE

log = structlog.get_logger(__name__)

LINGER_S = 2.0
"""A pump waits this long at most for something to become possible; the sweep brings it back for what takes longer."""
POLL_S = 0.25


async def pump(station: Station, service_id: str, provider: Provider) -> bool:
    """Pump the service for `pump_s` at most. True: time was up and there is more to do.

    Every slice that was begun is sent and handed to the recorder before this returns, whatever ended the loop.
    """
    spacing = station.spacings.setdefault(service_id, Spacing(station.settings.lateness_s, station.lead))
    slice_s = slice_length_s(station.settings, has_log=provider.has_log)
    sending: set[asyncio.Task[None]] = set()
    begun: set[int] = set()
    """Its claims: what is given back when they are recorded is there to be claimed again."""
    ends_at_s = time.monotonic() + station.settings.pump_s
    answers_wait = True
    try:
        while not station.stopping.is_set():
            if time.monotonic() >= ends_at_s:
                return True
            pieces: list[Slice | Nothing] = []
            if answers_wait:
                # Before the batches, and beside them: a slice of follow-ups leaves them their turn.
                pieces.append(await claim_follow_ups(station, service_id, spacing, has_log=provider.has_log))
            claimed = await claim_slice(station, service_id, spacing, has_log=provider.has_log)
            for piece in (*pieces, claimed):
                if isinstance(piece, Slice):
                    begun.add(piece.claim_id)
                    task = asyncio.create_task(_send(station, piece, provider, spacing))
                    sending.add(task)
                    task.add_done_callback(sending.discard)
            # Looked for in the time until the next claim, whose instant matters.
            answers_wait = await any_wait(station, service_id)
            if isinstance(claimed, Slice):
                await _rest(station, _until_next_claim_s(claimed, spacing, slice_s))
                # By now nearly all of its calls are on their way, so the next claim knows how this one went.
                _learn(spacing, claimed)
            elif (
                sending
                or begun & station.recorder.claims()
                or (claimed.wait_s is not None and claimed.wait_s <= LINGER_S)
            ):
                await _rest(station, min(claimed.wait_s if claimed.wait_s is not None else POLL_S, POLL_S))
            else:
                return False
    except UNREACHABLE as error:
        log.warning("pump_interrupted", service_id=service_id, error=type(error).__name__)
    finally:
        while sending:
            await asyncio.wait(sending)
    return False


async def _send(station: Station, piece: Slice, provider: Provider, spacing: Spacing) -> None:
    station.sending[piece.claim_id] = piece
    try:
        await send_slice(piece, provider, station.calls, station.recorder.note)
    finally:
        del station.sending[piece.claim_id]
    _learn(spacing, piece)


def _learn(spacing: Spacing, piece: Slice) -> None:
    """By the calls that are under way. A slice lets the pace grow once at most: at its end, if none was before."""
    if piece.lags_s:
        filled = piece.filled and not piece.halted and not piece.judged
        spacing.learn(lag_s=piece.lag_s, rate_per_s=piece.rate_per_s, filled=filled)
        piece.judged = True


def _until_next_claim_s(piece: Slice, spacing: Spacing, slice_s: float) -> float:
    """The next claim is made before this one's last slot, so that calls follow each other without a gap."""
    return piece.reading.wait_s(piece.due[-1].slot_us, monotonic_s()) - spacing.claim_s(slice_s)


async def _rest(station: Station, seconds: float) -> None:
    """Wait, but not longer than until the worker is told to stop."""
    if seconds <= 0:
        await asyncio.sleep(0)
        return
    try:
        async with asyncio.timeout(seconds):
            await station.stopping.wait()
    except TimeoutError:
        pass
