"""Legal rows for tests, made the way the product makes them: a catalog, credits, keys, batches."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from carteiro.domain.contacts import Contact, OnInvalid
from carteiro.domain.requests import BatchRequest, OnCapacity, TemplateName
from carteiro.services import api_keys
from carteiro.services.accounts import grant_credits
from carteiro.services.api_keys import Caller
from carteiro.services.catalog import apply_catalog
from carteiro.services.create import create_batch
from carteiro.settings import Settings
from carteiro.storage.pool import Pool, transact

ACCOUNT = "acme"
SERVICE = "acme-utility"
TEMPLATE = "order_update"
BODY = "Ola {{1}}, pedido {{2}} saiu."

EDGES: dict[str, tuple[str, ...]] = {
    "pending": (),
    "processing": ("started",),
    "paused": ("started", "paused"),
    "completed": ("started", "completed"),
    "cancelled": ("cancelled",),
    "error": ("erred",),
}
"""How a batch that was opened gets into each state."""


def catalog_text(
    *,
    account: str = ACCOUNT,
    service: str = SERVICE,
    bms: int = 1,
    senders_per_bm: int = 1,
    bm_limit: int | None = 1_000,
    sender_limit: int | None = None,
    approved_bms: int | None = None,
    bills_to: str | None = None,
    body: str = BODY,
    **service_fields: Any,
) -> str:
    """A catalog file: one account, one service, BMs with senders, one template, approved in the first `approved_bms`.

    `sender_limit` None: only the BM's limit counts. Ids of BMs and senders begin with the account's.
    """
    entries: list[tuple[str, dict[str, Any]]] = [("account", {"id": account, "bills_to": bills_to})]
    if bills_to is not None:
        entries.append(("account", {"id": bills_to}))
    entries.append(("service", {**SERVICE_FIELDS, "id": service, "account": account, **service_fields}))
    entries.append(("template", {"name": TEMPLATE, "category": "UTILITY", "body": body}))
    for number in range(1, bms + 1):
        bm = bm_id(number, account)
        entries.append(("business_manager", {"id": bm, "daily_limit": bm_limit}))
        for place in range(1, senders_per_bm + 1):
            limits: dict[str, Any] = {"use_waba_limit": True} if sender_limit is None else {"daily_limit": sender_limit}
            sender: dict[str, Any] = {
                "id": sender_id(number, place, account),
                "business_manager": bm,
                "accounts": [account],
            }
            if service_fields.get("provider") == "meta":
                limits |= {"phone_number_id": number_id(sender["id"]), "waba_id": waba_id(bm)}
            entries.append(("sender", {**sender, **limits}))
        approved = approved_bms is None or number <= approved_bms
        entries.append(
            (
                "submission",
                {
                    "template": TEMPLATE,
                    "business_manager": bm,
                    "physical_name": f"{TEMPLATE}_v{number}",
                    "status": "APPROVED" if approved else "PENDING",
                },
            )
        )
    return "\n".join(toml(table, fields) for table, fields in entries)


SERVICE_FIELDS: dict[str, Any] = {
    "provider": "infobip",
    "base_url": "http://127.0.0.1:9100",
    "api_key_env": "INFOBIP_KEY",
    "messages_per_second": 80,
}


def bm_id(number: int, account: str = ACCOUNT) -> str:
    return f"{account}-bm{number}"


def sender_id(bm: int, place: int = 1, account: str = ACCOUNT) -> str:
    """Digits that differ between accounts."""
    return f"5511{sum(account.encode()) % 1000:03d}{bm:03d}{place:03d}"


def number_id(sender: str) -> str:
    """What Meta calls a sender."""
    return f"109{sender}"


def waba_id(bm: str) -> str:
    """Meta's business account that all senders of a business manager belong to."""
    return f"208{sum(bm.encode()):06d}"


async def add_catalog(pool: Pool, **options: Any) -> None:
    """Apply `catalog_text(**options)`, beside what is in the database already."""
    async with transact(pool) as conn:
        rows = await conn.execute("SELECT id FROM account")
        assert not await rows.fetchall(), "apply both catalogs as one file"
    await apply_catalog(pool, catalog_text(**options))


async def add_account(pool: Pool, *, credits: int = 0, **options: Any) -> None:
    """A catalog, and credits for whoever pays."""
    await add_catalog(pool, **options)
    if credits:
        payer = options.get("bills_to") or options.get("account", ACCOUNT)
        await grant_credits(pool, payer, credits, cause="test", actor="test")


async def add_key(
    pool: Pool, account: str = ACCOUNT, scopes: Sequence[str] = api_keys.SCOPES, owner: str | None = None
) -> str:
    return await api_keys.create(pool, account, scopes=tuple(scopes), owner_id=owner)


def caller(account: str = ACCOUNT, billing_account: str | None = None) -> Caller:
    return Caller("testkey00000", account, billing_account or account, frozenset(api_keys.SCOPES))


def phone(number: int) -> str:
    """A Brazilian mobile for each number from 0."""
    return f"+55119{80_000_000 + number}"


def contacts(n: int, *, start: int = 0) -> list[Contact]:
    return [Contact(phone=phone(start + i), placeholders=["Ana", str(i)]) for i in range(n)]


def batch_request(n: int = 1, *, start: int = 0, service: str = SERVICE, **fields: Any) -> BatchRequest:
    """`start` makes requests of different contacts, and so of different signatures."""
    options: dict[str, Any] = {"template": TemplateName(TEMPLATE), "contacts": contacts(n, start=start), **fields}
    if "on_capacity" in options:
        options["on_capacity"] = OnCapacity(options["on_capacity"])
    if "on_invalid" in options:
        options["on_invalid"] = OnInvalid(options["on_invalid"])
    return BatchRequest(service=service, **options)


def batch_body(n: int = 1, *, start: int = 0, service: str = SERVICE, **fields: Any) -> dict[str, Any]:
    """The same as JSON."""
    listed = [{"phone": phone(start + i), "placeholders": ["Ana", str(i)]} for i in range(n)]
    return {"service": service, "template": {"name": TEMPLATE}, "contacts": listed, **fields}


async def add_batch(pool: Pool, n: int = 1, *, state: str = "pending", start: int = 0, **fields: Any) -> UUID:
    """Create a batch as a client does, then walk it into a state along legal edges. Its messages stay pending."""
    client = await api_keys.authenticate(pool, await add_key(pool))
    created = await create_batch(pool, Settings(), client, batch_request(n, start=start, **fields))
    for event in EDGES[state]:
        async with transact(pool) as conn:
            await conn.execute(
                "UPDATE batch b SET status = e.target, event = e.event FROM lifecycle_edge e"
                " WHERE b.id = %s AND e.machine = 'batch' AND e.event = %s AND e.source = b.status",
                (created.batch_id, event),
            )
    return created.batch_id


async def value(pool: Pool, query: str, *params: object) -> Any:
    """The first column of the first row."""
    async with pool.connection() as conn:
        cursor = await conn.execute(query.encode(), params)
        row = await cursor.fetchone()
    assert row is not None, query
    return row[0]


def in_an_hour() -> datetime:
    return datetime.now(UTC) + timedelta(hours=1)


def toml(table: str, fields: Mapping[str, Any]) -> str:
    lines = [f"[[{table}]]"]
    lines += [f"{name} = {_toml_value(given)}" for name, given in fields.items() if given is not None]
    return "\n".join([*lines, ""])


def _toml_value(given: Any) -> str:
    if isinstance(given, bool):
        return str(given).lower()
    if isinstance(given, list):
        return f"[{', '.join(_toml_value(item) for item in given)}]"
    return str(given) if isinstance(given, int) else f'"{given}"'
