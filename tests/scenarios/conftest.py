"""Real processes on a real Postgres; everything in this folder is marked `process`."""

import contextlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import Processes
from tests.support.stack import Stack, running_stack

StackStarter = Callable[..., contextlib.AbstractAsyncContextManager[Stack]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.process)


@pytest.fixture
def start(postgres_dsn: str, processes: Processes) -> Callable[..., Any]:
    """`async with start(catalog options, workers=2, ...) as stack:` - see `running_stack`."""
    return partial(running_stack, postgres_dsn, processes)
