"""Who claims, and what the pumps of one worker process share."""

import asyncio
from dataclasses import dataclass, field

from carteiro.services.dispatch.model import Slice
from carteiro.services.dispatch.recorder import Recorder
from carteiro.services.dispatch.send import Calls
from carteiro.services.dispatch.spacing import Lead, Spacing
from carteiro.settings import Settings
from carteiro.storage.pool import Pool


@dataclass(frozen=True, slots=True)
class Claimant:
    """A process that claims: the owner of its claims."""

    pool: Pool
    settings: Settings
    worker_id: str


@dataclass(frozen=True, slots=True)
class Station(Claimant):
    calls: Calls
    recorder: Recorder
    stopping: asyncio.Event
    lead: Lead = field(default_factory=Lead)
    spacings: dict[str, Spacing] = field(default_factory=dict)
    """How fast this process has shown that it can send, by service: a pump goes on where the last one ended."""
    sending: dict[int, Slice] = field(default_factory=dict)
    """Slices with calls still to start, by claim: their leases are renewed."""
