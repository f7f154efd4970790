"""A process that is killed in the middle of its work, without a process: a pool whose connections break off."""

from collections.abc import Callable
from typing import Any

import pytest
from psycopg import AsyncConnection

from carteiro.storage.pool import Pool
from tests.support.factories import value

VICTIM = "victim"


class Killed(BaseException):
    """Not caught by anything that would tidy up: a killed process tidies nothing."""


def kill_before_exchange(monkeypatch: pytest.MonkeyPatch, number: int) -> Callable[[], bool]:
    """From its exchange `number` with the server on, the victim cannot send a byte; its sockets are closed.

    An exchange is a statement, a BEGIN, a COMMIT or a piece of COPY. Answers whether it came to that.
    """
    original = AsyncConnection.wait
    exchanges = 0

    async def wait(self: AsyncConnection[Any], *args: Any, **options: Any) -> Any:
        nonlocal exchanges
        if self.info.get_parameters().get("application_name") == VICTIM:
            exchanges += 1
            if exchanges >= number:
                self.pgconn.finish()
                raise Killed
        return await original(self, *args, **options)

    monkeypatch.setattr(AsyncConnection, "wait", wait)
    return lambda: exchanges >= number


async def no_victim_is_left(pool: Pool) -> bool:
    return not await value(pool, "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s", VICTIM)
