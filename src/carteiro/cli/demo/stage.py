"""What every step of the demo works with."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from carteiro.cli.demo.client import Client, Provider
from carteiro.cli.demo.screen import Screen
from carteiro.cli.stack import Stack, StackError

PATIENCE_S = 120.0
POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class Stage:
    """Everything runs: a client may begin."""

    screen: Screen
    stack: Stack
    client: Client
    provider: Provider
    folder: Path
    """For files; deleted when all went well."""
    count: int
    """Messages of the batch."""
    callback_secret: str = field(repr=False)

    def watch(self, batch_id: str) -> dict[str, Any]:
        """Show the batch until it is settled. Raises StackError after PATIENCE_S, or when a process ends."""
        deadline = time.monotonic() + PATIENCE_S
        with self.screen.progress() as progress:
            while True:
                batch = self.client.read_batch(batch_id)
                progress.show(batch)
                if batch["settled_at"] is not None:
                    return batch
                self.stack.check_alive()
                if time.monotonic() >= deadline:
                    raise StackError(f"the batch is not settled after {PATIENCE_S:g} s: {batch}")
                time.sleep(POLL_S)

    def calls_of(self, batch_id: str) -> Sequence[dict[str, Any]]:
        """What arrived at the simulator of one batch, in order."""
        own = batch_id.replace("-", "")
        return [call for call in self.provider.read_calls() if call["message_id"].startswith(own)]
