"""Procrastinate tasks: wake-up calls. They never raise and never retry: the sweep brings work back."""

from collections.abc import Awaitable, Callable

import structlog

from carteiro.storage.catalog import UnknownService
from carteiro.storage.jobs import CHORE_QUEUE, PUMP_QUEUE, app

log = structlog.get_logger(__name__)

Chore = Callable[[], Awaitable[object]]


class Duties:
    """What the tasks of this process call. Set once by the supervisor before the first job is fetched."""

    pump: Callable[[str], Awaitable[None]]
    chores: dict[str, Chore]


duties = Duties()


@app.task(name="pump", queue=PUMP_QUEUE, retry=False)
async def pump(service_id: object = None, **surplus: object) -> None:
    """A job that names no service is dropped: whatever there is to do, the sweep asks for it again."""
    if not isinstance(service_id, str) or not service_id or surplus:
        log.warning("job_dropped", task="pump", reason="it names no service")
        return
    try:
        await duties.pump(service_id)
    except UnknownService:
        log.warning("job_dropped", task="pump", reason="there is no such service")
    except Exception:
        log.exception("pump_failed", service_id=service_id)


@app.task(name="apply_receipts", queue=CHORE_QUEUE, retry=False)
async def apply_receipts() -> None:
    await _run("apply_receipts")


@app.task(name="send_callbacks", queue=CHORE_QUEUE, retry=False)
async def send_callbacks() -> None:
    await _run("send_callbacks")


@app.task(name="reconcile", queue=CHORE_QUEUE, retry=False)
async def reconcile() -> None:
    await _run("reconcile")


@app.task(name="sync", queue=CHORE_QUEUE, retry=False)
async def sync() -> None:
    await _run("sync")


@app.task(name="retention", queue=CHORE_QUEUE, retry=False)
async def retention() -> None:
    await _run("retention")


_running: set[str] = set()


async def _run(name: str) -> None:
    """One run of a chore at a time in a process: the sweep asks every second for what is still to be done."""
    if name in _running:
        return
    _running.add(name)
    try:
        await duties.chores[name]()
    except Exception:
        log.exception("chore_failed", chore=name)
    finally:
        _running.discard(name)
