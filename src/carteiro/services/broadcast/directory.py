"""The directory as this door sees it: permission and audience. It is another application's, and may be away."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import structlog
from psycopg import Error, ProgrammingError

from carteiro.domain.errors import Unavailable
from carteiro.services.database import UNREACHABLE
from carteiro.settings import Settings, SettingsError, variable
from carteiro.storage import catalog, directory
from carteiro.storage.directory import Layout
from carteiro.storage.directory_names import Names, NamesError, read_names
from carteiro.storage.pool import Pool

log = structlog.get_logger(__name__)

PHONES_IN_PAGE = 5_000
RETRY_AFTER_S = 5


@dataclass(frozen=True, slots=True)
class Directory:
    """A pool of read-only connections, and the layout of what they read. Every method raises Unavailable."""

    pool: Pool
    layout: Layout

    async def may_address(self, *, owner_id: str, group_id: str) -> bool:
        with _told_apart():
            async with self.pool.connection() as conn:
                return await directory.may_address(conn, self.layout, owner_id=owner_id, group_id=group_id)

    async def read_phones(self, group_id: str, *, most: int) -> list[str]:
        """The phones of the group's active members as they are written there, in one snapshot of the directory.

        Once there are more than `most` of them the rest is not read.
        """
        with _told_apart():
            async with self.pool.connection() as conn, conn.transaction():
                return await directory.read_phones(conn, self.layout, group_id, page=PHONES_IN_PAGE, most=most)

    async def check(self, own: Pool) -> None:
        """Warn in the log where the directory is not as described, if there is a service that needs it. `own`: ours."""
        with suppress(*UNREACHABLE):
            async with own.connection() as conn:
                if not await catalog.has_broadcast_service(conn):
                    return
        try:
            async with self.pool.connection() as conn:
                await directory.probe(conn, self.layout)
        except Error as error:
            log.warning("directory_unusable", error=type(error).__name__, told=_first_line(error))


@asynccontextmanager
async def open_directory(settings: Settings, *, application_name: str) -> AsyncIterator[Directory]:
    """Raises SettingsError where the file of names cannot be used. The directory itself is not asked yet."""
    layout = Layout(settings.directory_schema, _read_names(settings.directory_names))
    async with directory.open_read_only(
        settings.directory_dsn or settings.require_database_url(),
        application_name=application_name,
        timeout_s=settings.directory_timeout_s,
    ) as pool:
        yield Directory(pool, layout)


def _read_names(path: str | None) -> Names:
    if path is None:
        return Names()
    try:
        return read_names(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, NamesError) as error:
        raise SettingsError(f"{variable('directory_names')}: {path}: {error}") from None


@contextmanager
def _told_apart() -> Iterator[None]:
    """What goes wrong with the directory is not said of our own database. Raises Unavailable; nothing was done."""
    try:
        yield
    except UNREACHABLE as error:
        log.warning("directory_unreachable", error=type(error).__name__)
        raise Unavailable("The directory of groups cannot be reached.", retry_after_s=RETRY_AFTER_S) from None
    except ProgrammingError as error:
        log.error("directory_unusable", error=type(error).__name__, told=_first_line(error))
        raise Unavailable("The directory of groups cannot be read.", retry_after_s=RETRY_AFTER_S) from None


def _first_line(error: Exception) -> str:
    """Without the statement, and so without what was asked for."""
    return str(error).partition("\n")[0]
