"""The demo's account in a database: catalog, credits, key."""

from dataclasses import dataclass, field

from carteiro.cli.stack import ACCOUNT
from carteiro.domain.errors import Unauthorized
from carteiro.services import api_keys, audit
from carteiro.services.accounts import grant_credits, read_callback_secret
from carteiro.services.catalog import apply_catalog
from carteiro.storage.pool import Pool, open_pool

GRANT_CAUSE = "demo credits"


@dataclass(frozen=True, slots=True)
class Tenant:
    key: str = field(repr=False)
    callback_secret: str = field(repr=False)


async def prepare(dsn: str, catalog: str, *, credits: int, kept_key: str | None = None) -> Tenant:
    """Apply the catalog, grant the credits once, and make a key unless `kept_key` is still one of the account's."""
    async with open_pool(dsn, min_size=1, max_size=2, application_name="carteiro-cli") as pool:
        await apply_catalog(pool, catalog)
        await grant_credits(pool, ACCOUNT, credits, cause=GRANT_CAUSE, actor="operator", once=True)
        if kept_key is None or not await _is_ours(pool, kept_key):
            kept_key = await api_keys.create(pool, ACCOUNT, scopes=api_keys.SCOPES, name="demo")
        return Tenant(kept_key, await read_callback_secret(pool, ACCOUNT))


async def examine(dsn: str) -> list[audit.Finding]:
    """What the audit's views have to say of everything in the database."""
    async with open_pool(dsn, min_size=1, max_size=1, application_name="carteiro-cli") as pool:
        return await audit.examine(pool, lookback=audit.EVERYTHING)


async def _is_ours(pool: Pool, key: str) -> bool:
    try:
        return (await api_keys.authenticate(pool, key)).account_id == ACCOUNT
    except Unauthorized:
        return False
