"""What the supervisor restarts, and what ends it."""

import asyncio
import contextlib

import pytest

from carteiro.worker.supervisor import keep_running


async def test_a_part_that_returns_or_raises_is_run_again() -> None:
    runs = 0
    third_run = asyncio.Event()

    async def part() -> None:
        nonlocal runs
        runs += 1
        if runs == 1:
            return
        if runs == 2:
            raise OSError("gone")
        third_run.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(keep_running("part", part))
    await asyncio.wait_for(third_run.wait(), 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_cancellation_that_the_part_swallows_ends_it_all_the_same() -> None:
    started = asyncio.Event()

    async def part() -> None:
        started.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()

    task = asyncio.create_task(keep_running("part", part))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 10)
