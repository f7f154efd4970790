"""Make the database equal to a catalog file, in one transaction."""

import base64
import secrets

from carteiro.services.catalog.difference import Change, Sign, faults_of, find_changes
from carteiro.services.catalog.entries import CatalogError, read_catalog
from carteiro.services.dispatch.waking import SENDERS, wake_waiting
from carteiro.services.limits import fit_holds, lock_limited
from carteiro.settings import Settings
from carteiro.storage import catalog, sync
from carteiro.storage.catalog import Row
from carteiro.storage.pool import Pool, transact

CALLBACK_SECRET_BYTES = 32
WEBHOOK_TOKEN_BYTES = 24


async def apply_catalog(
    pool: Pool, text: str, *, dry_run: bool = False, settings: Settings | None = None
) -> list[Change]:
    """The changes, which are committed unless it is a dry run; none when the database is equal already.

    Running work sees them from its next claim on, which batches that wait make at once; what batches hold beyond a
    limit that was lowered is cut. Locks the
    catalog, then the meters of business managers and senders that change. Raises CatalogError, and has
    changed nothing.
    """
    wanted = read_catalog(text)
    settings = settings or Settings()
    async with transact(pool) as conn:
        await catalog.lock(conn)
        changes = find_changes(await catalog.read_all(conn), wanted)
        if faults := [fault for change in changes for fault in faults_of(change)]:
            raise CatalogError(faults)
        if dry_run:
            return changes
        managers = [change.row["id"] for change in changes if change.table == "business_manager"]
        senders = [change.row["id"] for change in changes if change.table == "sender"]
        await lock_limited(conn, settings, managers, senders)
        accounts = [change.row for change in changes if change.table == "account"]
        await catalog.put_accounts(conn, [{**row, "callback_secret": _callback_secret()} for row in accounts])
        for change in changes:
            if change.sign is Sign.REMOVED:
                await catalog.drop(conn, change.table, change.row)
            elif change.table != "account":
                await catalog.put(conn, change.table, _completed(change))
        await catalog.ensure_owned_rows(conn)
        await fit_holds(conn, settings, managers)
    if touched := _managers_of(changes):
        await wake_waiting(pool, touched, SENDERS)
    return changes


async def read_unlimited(pool: Pool) -> list[tuple[str, str]]:
    """(business manager, why) of each in use whose daily limit is not known: nothing caps what it sends in total."""
    async with pool.connection() as conn:
        return await sync.read_unlimited(conn)


def _managers_of(changes: list[Change]) -> set[str]:
    """The business managers through which something may be sent now that could not before."""
    of_table = {"business_manager": "id", "sender": "business_manager_id", "submission": "business_manager_id"}
    return {change.row[of_table[change.table]] for change in changes if change.table in of_table}


def _completed(change: Change) -> Row:
    """The row with what the database makes up once and keeps."""
    if change.table != "service":
        return change.row
    return {**change.row, "webhook_token": secrets.token_urlsafe(WEBHOOK_TOKEN_BYTES)}


def _callback_secret() -> str:
    """In the form of the Standard Webhooks."""
    return f"whsec_{base64.b64encode(secrets.token_bytes(CALLBACK_SECRET_BYTES)).decode()}"
