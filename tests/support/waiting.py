"""Wait for a condition, never for a time."""

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any

POLL_S = 0.02


async def until(condition: Callable[[], Any], timeout_s: float, what: str) -> Any:
    """Poll a plain or async condition until it gives something truthy; return that.

    Fails the test with `what` and the last value after `timeout_s`. Errors of the condition are not swallowed.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if inspect.isawaitable(value):
            value = await value
        if value:
            return value
        if time.monotonic() >= deadline:
            raise AssertionError(f"not within {timeout_s:g} s: {what} (last value: {value!r})")
        await asyncio.sleep(POLL_S)
