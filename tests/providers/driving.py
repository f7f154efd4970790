"""A simulator and its admin endpoints, for tests."""

from collections.abc import Mapping
from typing import Any

import httpx
import msgspec

from carteiro.domain.outcomes import Parsed
from carteiro.providers.infobip.codec import parse_webhook


class Driver:
    """Speaks to `/_sim` of the simulator at `address`."""

    def __init__(self, address: str, client: httpx.AsyncClient) -> None:
        self.address = address
        self._client = client

    @property
    def callback_url(self) -> str:
        """A place for reports and callbacks at the simulator itself."""
        return f"{self.address}/_sim/callback"

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The answer's JSON; fails on anything but 2xx."""
        response = await self._client.request(method, f"{self.address}/_sim/{path}", json=body)
        assert response.is_success, f"{response.status_code}: {response.text}"
        return response.json()

    async def add_fault(self, plan: Mapping[str, Any], **fault: Any) -> int:
        ids = (await self.ask("POST", "faults", {"plan": dict(plan), **fault}))["ids"]
        fault_id: int = ids[0]
        return fault_id

    async def calls(self, since: int = 0, limit: int = 10_000) -> list[dict[str, Any]]:
        response = await self._client.get(f"{self.address}/_sim/calls", params={"since": since, "limit": limit})
        return [msgspec.json.decode(line) for line in response.content.splitlines()]

    async def stats(self) -> dict[str, Any]:
        stats: dict[str, Any] = await self.ask("GET", "stats")
        return stats

    async def callbacks(self) -> list[dict[str, Any]]:
        callbacks: list[dict[str, Any]] = (await self.ask("GET", "callbacks"))["callbacks"]
        return callbacks

    async def reports(self) -> list[Parsed]:
        """What was posted to `callback_url`, as the client reads it."""
        return [parse_webhook(callback["body"].encode()) for callback in await self.callbacks()]
