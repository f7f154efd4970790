"""The event loop of the processes that stay: API, worker, simulator."""

import asyncio
import gc
from collections.abc import Coroutine
from typing import Any

NEW_OBJECTS = 20_000
"""After so many new objects the youngest are looked through for cycles. A slice of messages under way holds thousands
that are no garbage; at Python's own 700 they were looked through for a tenth of all CPU.
"""


def run_loop(main: Coroutine[Any, Any, None]) -> None:
    """Run `main` to its end, on uvloop where there is one."""
    # What is imported by now stays: no collection needs to look at it again.
    gc.collect()
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS, 20, 20)
    try:
        import uvloop
    except ImportError:  # Windows has none
        asyncio.run(main)
    else:
        uvloop.run(main)
