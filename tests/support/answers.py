"""Contacts who answer, in Infobip's words."""

import json
from datetime import UTC, datetime
from uuid import UUID

from carteiro.domain.outcomes import followup_key
from carteiro.domain.suppression import StopWords
from carteiro.providers.registry import parser_of
from carteiro.services.receive import apply_all
from carteiro.storage.pool import Pool
from tests.support import factories
from tests.support.posting import store_payload

STOP_WORDS = StopWords(["parar"])


def inbound(
    phone: str,
    *,
    text: str = "quero saber mais",
    at: datetime | None = None,
    context_id: str | None = None,
    sender: str | None = None,
    button: bool = False,
    number: int = 1,
) -> dict[str, object]:
    """One result of an inbound webhook; `number` makes different messages of one contact."""
    message: dict[str, object] = {"type": "BUTTON" if button else "TEXT", "text": text}
    if context_id is not None:
        message["context"] = {"id": context_id, "from": sender or factories.sender_id(1)}
    return {
        "from": phone.removeprefix("+"),
        "to": sender or factories.sender_id(1),
        "integrationType": "WHATSAPP",
        "receivedAt": (at or datetime.now(UTC)).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "+0000",
        "messageId": f"wamid.{phone}.{number}",
        "message": message,
    }


def report(batch_id: UUID, seq: int, *, at: datetime, seen: bool = False, status_id: int = 5) -> dict[str, object]:
    """One result of a delivery or seen report on a follow-up."""
    told = at.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "+0000"
    key = followup_key(batch_id, seq)
    if seen:
        return {"messageId": key, "from": "x", "to": "y", "sentAt": told, "seenAt": told}
    group_id = 3 if status_id == 5 else 2
    status = {"groupId": group_id, "groupName": "", "id": status_id, "name": ""}
    return {"messageId": key, "to": "y", "sentAt": told, "doneAt": told, "status": status}


async def post(pool: Pool, *results: dict[str, object], account: str = factories.ACCOUNT) -> None:
    """One webhook, stored and not applied."""
    token = await factories.value(pool, "SELECT webhook_token FROM service WHERE account_id = %s", account)
    assert await store_payload(pool, "infobip", token, json.dumps({"results": results}).encode())


async def apply(pool: Pool, *, window_s: float = 86_400.0) -> None:
    await apply_all(pool, parser_of, stop_words=STOP_WORDS, window_s=window_s)


async def answer(pool: Pool, *results: dict[str, object], account: str = factories.ACCOUNT) -> None:
    await post(pool, *results, account=account)
    await apply(pool)
