"""What the handlers share."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from litestar import Request
from litestar.connection import ASGIConnection

from carteiro.services.api_keys import Caller
from carteiro.services.broadcast import Directory
from carteiro.services.database import Pool
from carteiro.services.group_links.reminder import Reminders
from carteiro.services.intake import Intake
from carteiro.settings import Settings

ApiRequest = Request[Caller, Caller, Any]
"""A request whose key was checked."""
AnyRequest = Request[Any, Any, Any]


UPLOADS_MAX = 4
"""Batches that are streamed to one process at once: each takes up to about 150 MB."""
UPLOADS_OF_ACCOUNT = 2
"""Of these: a slow client may take half an hour, and must not keep the others out."""


@dataclass(frozen=True, slots=True)
class Context:
    settings: Settings
    pool: Pool
    directory: Directory
    reminders: Reminders
    intake: Intake
    revision: str
    """The schema revision that this release needs."""
    uploads: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(UPLOADS_MAX))
    uploading: Counter[str] = field(default_factory=Counter)
    """Those of each account."""


def context_of(connection: ASGIConnection[Any, Any, Any, Any]) -> Context:
    context: Context = connection.app.state.context
    return context
