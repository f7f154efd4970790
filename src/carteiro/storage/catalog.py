"""Services, business managers, senders, templates and submissions, as operators describe them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg import AsyncConnection
from psycopg.rows import args_row, dict_row
from psycopg.types.json import Jsonb

from carteiro.storage.statements import load

SQL = load("catalog")

Row = dict[str, Any]
"""Column -> value; a sender also has `accounts`, a sorted list of account ids."""


class UnknownService(LookupError):
    """There is no service of this id."""


@dataclass(frozen=True, slots=True)
class Service:
    """What creating a batch needs to know of its service."""

    id: str
    account_id: str
    billing_account_id: str
    category: str
    charge_rule: str
    min_batch_size: int
    rotation: str
    test_mode: bool
    active: bool
    kind: str
    """The door that it serves: multibm, broadcast or group_link."""


@dataclass(frozen=True, slots=True)
class Template:
    """A template as it is now; batches carry a frozen copy of `content` and `signature`."""

    name: str
    language: str
    category: str
    content: dict[str, Any]
    signature: bytes


@dataclass(frozen=True, slots=True)
class AccountSender:
    """A sender that an account may use now, with its business manager. Limits are per window; None: no such limit."""

    id: str
    business_manager_id: str
    limit: int | None
    used: int
    bm_limit: int | None
    bm_used: int
    bm_held: int
    bm_oldest_bucket_at: datetime | None
    """The start of the oldest bucket that still holds units."""


async def read_service(conn: AsyncConnection[Any], service_id: str) -> Service | None:
    async with conn.cursor(row_factory=args_row(Service)) as cursor:
        await cursor.execute(SQL.service, {"service_id": service_id})
        return await cursor.fetchone()


async def read_broadcast_service(conn: AsyncConnection[Any], account_id: str) -> Service | None:
    """The account's active service of kind broadcast. The catalog file refuses a second one."""
    async with conn.cursor(row_factory=args_row(Service)) as cursor:
        await cursor.execute(SQL.broadcast_service, {"account_id": account_id})
        return await cursor.fetchone()


async def read_group_link_service(conn: AsyncConnection[Any], account_id: str, flow: str) -> Service | None:
    """The account's active service of kind group_link for this flow, else the one for both."""
    async with conn.cursor(row_factory=args_row(Service)) as cursor:
        await cursor.execute(SQL.group_link_service, {"account_id": account_id, "flow": flow})
        return await cursor.fetchone()


async def has_broadcast_service(conn: AsyncConnection[Any]) -> bool:
    """Whether any account has one that is active."""
    cursor = await conn.execute(SQL.has_broadcast_service)
    row = await cursor.fetchone()
    return bool(row and row[0])


async def read_connection(conn: AsyncConnection[Any], service_id: str) -> tuple[str, str, str]:
    """(provider, base URL, name of the variable with the provider's key). Raises UnknownService."""
    cursor = await conn.execute(SQL.connection, {"service_id": service_id})
    row = await cursor.fetchone()
    if row is None:
        raise UnknownService(f"there is no service {service_id}")
    return row[0], row[1], row[2]


async def read_template(conn: AsyncConnection[Any], name: str, language: str) -> Template | None:
    async with conn.cursor(row_factory=args_row(Template)) as cursor:
        await cursor.execute(SQL.template, {"name": name, "language": language})
        return await cursor.fetchone()


async def is_usable(conn: AsyncConnection[Any], template: Template, service_id: str) -> bool:
    """Whether some business manager in which the service's account has a sender at its provider holds an APPROVED copy
    of equal signature.
    """
    cursor = await conn.execute(
        SQL.template_usable,
        {
            "name": template.name,
            "language": template.language,
            "signature": template.signature,
            "service_id": service_id,
        },
    )
    row = await cursor.fetchone()
    return bool(row and row[0])


async def read_account_senders(conn: AsyncConnection[Any], account_id: str, *, keep_s: float) -> list[AccountSender]:
    """In order of id. `keep_s`: window + bucket, how long a bucket counts."""
    async with conn.cursor(row_factory=args_row(AccountSender)) as cursor:
        await cursor.execute(SQL.account_capacity, {"account_id": account_id, "keep_s": keep_s})
        return await cursor.fetchall()


async def lock(conn: AsyncConnection[Any]) -> None:
    """Wait for any other change of the catalog, until this transaction ends."""
    await conn.execute(SQL.lock_catalog)


async def read_all(conn: AsyncConnection[Any]) -> dict[str, list[Row]]:
    """The whole catalog by table: account, service, business_manager, sender, template, submission."""
    return {
        "account": await _rows(conn, SQL.accounts),
        "service": await _rows(conn, SQL.services),
        "business_manager": await _rows(conn, SQL.business_managers),
        "sender": await _rows(conn, SQL.senders),
        "template": await _rows(conn, SQL.templates),
        "submission": await _rows(conn, SQL.submissions),
    }


async def put_accounts(conn: AsyncConnection[Any], rows: Sequence[Row]) -> None:
    """Insert or update. Each row also has a `callback_secret`, used only where the account is new."""
    for row in rows:
        await conn.execute(SQL.put_account, row)
    for row in rows:  # once all of them exist: one may bill to another
        await conn.execute(SQL.put_billing, row)


async def put(conn: AsyncConnection[Any], table: str, row: Row) -> None:
    """Insert or update one row of service, business_manager, sender, template or submission.

    A service also has a `webhook_token`, used only where it is new; a sender without `quality` or `status` keeps its
    own, and so does a submission without `status`.
    """
    match table:
        case "service":
            await conn.execute(SQL.put_service, row)
        case "business_manager":
            await conn.execute(SQL.put_business_manager, row)
        case "sender":
            await conn.execute(SQL.put_sender, {"quality": None, "status": None, **row})
            await conn.execute(SQL.drop_sender_accounts, row)
            await conn.execute(SQL.put_sender_accounts, row)
        case "template":
            await conn.execute(SQL.put_template, {**row, "content": Jsonb(row["content"])})
        case "submission":
            await conn.execute(SQL.put_submission, {"status": None, **row})
        case _:
            raise ValueError(table)


async def drop(conn: AsyncConnection[Any], table: str, row: Mapping[str, Any]) -> None:
    """Take a row out of use: deactivated where batches and history refer to it, deleted where nothing does."""
    match table:
        case "service":
            await conn.execute(SQL.deactivate_service, row)
        case "business_manager":
            await conn.execute(SQL.deactivate_business_manager, row)
        case "sender":
            await conn.execute(SQL.deactivate_sender, row)
        case "template":
            await conn.execute(SQL.drop_template, row)
        case "submission":
            await conn.execute(SQL.drop_submission, row)
        case _:
            raise ValueError(table)


async def ensure_owned_rows(conn: AsyncConnection[Any]) -> None:
    """Meters, calendars and health of everything in the catalog, where they are missing."""
    await conn.execute(SQL.ensure_meters)
    await conn.execute(SQL.ensure_pace)
    await conn.execute(SQL.ensure_health)


async def _rows(conn: AsyncConnection[Any], statement: Any) -> list[Row]:
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(statement)
        return await cursor.fetchall()
