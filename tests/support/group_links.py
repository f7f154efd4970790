"""Group links and reminders for tests: a service of their kind on the usual catalog, and requests."""

from typing import Any

from carteiro.domain.group_links import Flow, GroupLinkRequest, ReminderRequest
from carteiro.domain.requests import TemplateName
from carteiro.services.catalog import apply_catalog
from carteiro.storage.pool import Pool
from tests.support.factories import ACCOUNT, SERVICE_FIELDS, TEMPLATE, catalog_text, phone

LINKS = "acme-links"
LINK = "https://chat.whatsapp.com/AbCdEf"


def link_catalog(*, links: dict[str, Any] | None = None, **options: Any) -> str:
    """`catalog_text` with a service for group links beside the one for batches, on the same senders."""
    fields = {**SERVICE_FIELDS, "id": LINKS, "account": ACCOUNT, "kind": "group_link", **(links or {})}
    lines = [f"{name} = {_toml(value)}" for name, value in fields.items()]
    return "\n".join([catalog_text(**options), "[[service]]", *lines, ""])


async def add_links(pool: Pool, **options: Any) -> None:
    await apply_catalog(pool, link_catalog(**options))


def link_body(number: int = 0, **fields: Any) -> dict[str, Any]:
    """The JSON of both doors."""
    body = {"flow": "personal", "phone": phone(number), "name": "Ana", "group_link": LINK}
    return {**body, "template": {"name": TEMPLATE}, **fields}


def link_request(number: int = 0, **fields: Any) -> GroupLinkRequest:
    return GroupLinkRequest(**_fields(number, fields))


def reminder_request(number: int = 0, **fields: Any) -> ReminderRequest:
    return ReminderRequest(**_fields(number, fields))


def _fields(number: int, fields: dict[str, Any]) -> dict[str, Any]:
    options = {"flow": Flow.PERSONAL, "phone": phone(number), "name": "Ana", "group_link": LINK}
    return {**options, "template": TemplateName(TEMPLATE), **fields}


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int) else f'"{value}"'
