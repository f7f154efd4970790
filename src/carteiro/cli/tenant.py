"""The demo's account in a database: catalog, directory, credits, key."""

from dataclasses import dataclass, field

from carteiro.cli.stack import ACCOUNT, demo_directory
from carteiro.domain.errors import Unauthorized
from carteiro.services import api_keys, audit
from carteiro.services.accounts import grant_credits, read_callback_secret
from carteiro.services.catalog import apply_catalog
from carteiro.services.catalog.difference import Sign
from carteiro.storage.pool import Pool, open_pool, transact

OWNER = "ana"
"""The person of the demo's directory on whose behalf the key speaks."""
GRANT_CAUSE = "demo credits"
SHOWN = 3


class ForeignCatalog(RuntimeError):
    """The database has entries that the demo's catalog would take out of use; the message names some."""


@dataclass(frozen=True, slots=True)
class Tenant:
    key: str = field(repr=False)
    callback_secret: str = field(repr=False)


async def prepare(dsn: str, catalog: str, *, credits: int, kept_key: str | None = None) -> Tenant:
    """Apply the catalog, load the directory, grant the credits once, and make a key unless `kept_key` still is one.

    Raises ForeignCatalog, before anything is changed.
    """
    async with open_pool(dsn, min_size=1, max_size=2, application_name="carteiro-cli") as pool:
        planned = await apply_catalog(pool, catalog, dry_run=True)
        foreign = [f"{change.table} {change.key}" for change in planned if change.sign is Sign.REMOVED]
        if foreign:
            raise ForeignCatalog(", ".join(foreign[:SHOWN]) + (", ..." if len(foreign) > SHOWN else ""))
        await apply_catalog(pool, catalog)
        async with transact(pool) as conn:
            await conn.execute(demo_directory().encode())
        await grant_credits(pool, ACCOUNT, credits, cause=GRANT_CAUSE, actor="operator", once=True)
        if kept_key is None or not await _is_ours(pool, kept_key):
            kept_key = await api_keys.create(pool, ACCOUNT, scopes=api_keys.SCOPES, name="demo", owner_id=OWNER)
        return Tenant(kept_key, await read_callback_secret(pool, ACCOUNT))


async def examine(dsn: str) -> list[audit.Finding]:
    """What the audit's views have to say of everything in the database."""
    async with open_pool(dsn, min_size=1, max_size=1, application_name="carteiro-cli") as pool:
        return await audit.examine(pool, lookback=audit.EVERYTHING)


async def _is_ours(pool: Pool, key: str) -> bool:
    try:
        caller = await api_keys.authenticate(pool, key)
    except Unauthorized:
        return False
    return (caller.account_id, caller.owner_id) == (ACCOUNT, OWNER)
