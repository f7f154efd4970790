"""The demo's two views of the world: a client's, through the API, and the provider's, through the simulator."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import httpx

from carteiro.cli.demo.contacts import DemoContact
from carteiro.cli.stack import SERVICE, TEMPLATE

TIMEOUT_S = 30.0


class Client:
    """What somebody with an API key can do."""

    def __init__(self, api_url: str, key: str) -> None:
        headers = {"Authorization": f"Bearer {key}"}
        self._http = httpx.Client(base_url=f"{api_url}/api/v1", headers=headers, timeout=TIMEOUT_S, trust_env=False)

    def post_batch(
        self, contacts: Sequence[DemoContact], *, callback_url: str, idempotency_key: str
    ) -> tuple[dict[str, Any], bool]:
        """The batch, and whether it was there already."""
        body = {
            "service": SERVICE,
            "template": {"name": TEMPLATE, "language": "pt_BR"},
            "contacts": [contact.as_json() for contact in contacts],
            "callback_url": callback_url,
            "reference": "demo",
        }
        answer = self._http.post("/batches", json=body, headers={"Idempotency-Key": idempotency_key})
        return _json(answer), answer.headers.get("Idempotent-Replayed") == "true"

    def read_batch(self, batch_id: str) -> dict[str, Any]:
        return _json(self._http.get(f"/batches/{batch_id}"))

    def post_broadcast(self, body: Mapping[str, Any], *, idempotency_key: str) -> tuple[dict[str, Any], bool]:
        """The answer, and whether the broadcast was there already."""
        answer = self._http.post("/broadcasts", json=body, headers={"Idempotency-Key": idempotency_key})
        return _json(answer), answer.headers.get("Idempotent-Replayed") == "true"

    def may_broadcast(self, body: Mapping[str, Any]) -> bool:
        """False: it was refused for want of permission."""
        answer = self._http.post("/broadcasts", json=body)
        if answer.status_code == httpx.codes.FORBIDDEN:
            return False
        _json(answer)
        return True

    def read_broadcast(self, id: str) -> dict[str, Any]:
        return _json(self._http.get(f"/broadcasts/{id}"))

    def read_recipients(self, id: str) -> list[dict[str, Any]]:
        """The first two hundred."""
        items: list[dict[str, Any]] = _json(self._http.get(f"/broadcasts/{id}/recipients?limit=200"))["items"]
        return items

    def post_group_link(self, body: Mapping[str, Any]) -> dict[str, Any]:
        return _json(self._http.post("/group-links", json=body))

    def read_group_link(self, id: str) -> dict[str, Any]:
        return _json(self._http.get(f"/group-links/{id}"))

    def send_reminder(self, body: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
        """Status and body of the answer."""
        answer = self._http.post("/sendreminder", json=body)
        return answer.status_code, _json(answer)

    def read_balance(self) -> int:
        return int(_json(self._http.get("/credits"))["balance"])

    def close(self) -> None:
        self._http.close()


class Provider:
    """What the simulator wrote down."""

    def __init__(self, simulator_url: str) -> None:
        self._http = httpx.Client(base_url=f"{simulator_url}/_sim", timeout=TIMEOUT_S, trust_env=False)

    def read_calls(self) -> list[dict[str, Any]]:
        """One a message, in the order of arrival."""
        answer = self._http.get("/calls")
        answer.raise_for_status()
        return [json.loads(line) for line in answer.content.splitlines()]

    def read_callbacks(self) -> list[dict[str, Any]]:
        callbacks: list[dict[str, Any]] = _json(self._http.get("/callbacks"))["callbacks"]
        return callbacks

    def close(self) -> None:
        self._http.close()


class Refused(RuntimeError):
    """The API answered with a problem; the message is its body."""


def _json(answer: httpx.Response) -> dict[str, Any]:
    if answer.is_error:
        raise Refused(f"{answer.request.method} {answer.url.path} was answered {answer.status_code}: {answer.text}")
    body: dict[str, Any] = answer.json()
    return body
