"""A pool for the length of one command."""

import contextlib
from collections.abc import Awaitable, Callable
from typing import TypeVar

import rich_click as click
from psycopg import OperationalError
from psycopg_pool import PoolTimeout

from carteiro.settings import Settings
from carteiro.storage.pool import Pool, open_pool

Result = TypeVar("Result")


async def with_pool(work: Callable[[Pool], Awaitable[Result]]) -> Result:
    """Run `work` on the database of CARTEIRO_DATABASE_URL. An unreachable one is one line for the operator."""
    dsn = Settings.from_environment().require_database_url()
    async with contextlib.AsyncExitStack() as stack:
        try:
            pool = await stack.enter_async_context(
                open_pool(dsn, min_size=1, max_size=2, application_name="carteiro-cli")
            )
        except (OperationalError, PoolTimeout) as error:
            raise click.ClickException("the database cannot be reached") from error
        return await work(pool)
