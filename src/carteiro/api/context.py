"""What the handlers share."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from litestar import Request
from litestar.connection import ASGIConnection

from carteiro.services.api_keys import Caller
from carteiro.services.broadcast import Directory
from carteiro.services.database import Pool
from carteiro.services.group_links.reminder import Reminders
from carteiro.settings import Settings

ApiRequest = Request[Caller, Caller, Any]
"""A request whose key was checked."""
AnyRequest = Request[Any, Any, Any]


UPLOADS_MAX = 4
"""Batches that are streamed to one process at once: each takes up to about 150 MB."""


@dataclass(frozen=True, slots=True)
class Context:
    settings: Settings
    pool: Pool
    directory: Directory
    reminders: Reminders
    revision: str
    """The schema revision that this release needs."""
    uploads: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(UPLOADS_MAX))


def context_of(connection: ASGIConnection[Any, Any, Any, Any]) -> Context:
    context: Context = connection.app.state.context
    return context
