"""Webhook items and log rows, in Infobip's shapes."""

from typing import Any
from uuid import UUID

from carteiro.domain.outcomes import Outgoing, message_key

BATCH = UUID("0190b5a0-0000-7000-8000-000000000042")
SENDER = "5511400012345"
NO_ERROR = {"groupId": 0, "groupName": "OK", "id": 0, "name": "NO_ERROR", "permanent": False}


def outgoing(seq: int = 1, to: str = "5531987650001", notify_url: str | None = None) -> Outgoing:
    return Outgoing(
        BATCH, seq, SENDER, to, "order_update_v1", "pt_BR", placeholders=("Ana", "8812"), notify_url=notify_url
    )


def status(group_id: int, status_id: int) -> dict[str, Any]:
    return {"groupId": group_id, "groupName": "?", "id": status_id, "name": "?", "description": "?"}


def error(error_id: int, group_id: int = 1) -> dict[str, Any]:
    if error_id == 0:
        return NO_ERROR
    return {"groupId": group_id, "groupName": "?", "id": error_id, "name": "?", "description": "?", "permanent": True}


def delivery(seq: int = 1, group_id: int = 3, status_id: int = 5, error_id: int = 0, **changes: Any) -> dict[str, Any]:
    item = {
        "bulkId": "",
        "price": {"pricePerMessage": 0.0625, "currency": "BRL"},
        "status": status(group_id, status_id),
        "error": error(error_id),
        "messageId": message_key(BATCH, seq),
        "doneAt": "2026-12-01T10:00:02.481-0300",
        "messageCount": 1,
        "sentAt": "2026-12-01T10:00:00.120-0300",
        "to": "5531987650001",
    }
    return {**item, **changes}


def seen(seq: int = 1, **changes: Any) -> dict[str, Any]:
    item = {
        "messageId": message_key(BATCH, seq),
        "from": "5531987650001",
        "to": SENDER,
        "sentAt": "2026-12-01T13:00:00.120+0000",
        "seenAt": "2026-12-01T13:07:41.006+0000",
    }
    return {**item, **changes}


def inbound(**message: Any) -> dict[str, Any]:
    return {
        "from": "5531987650001",
        "to": SENDER,
        "integrationType": "WHATSAPP",
        "receivedAt": "2026-12-01T13:09:10.000+0000",
        "messageId": "wamid.HBgMNTUzMTk4NzY1MDAwMRUC",
        "message": message or {"type": "TEXT", "text": "PARAR"},
    }


def log_row(seq: int = 1, group_id: int = 3, status_id: int = 5, error_id: int = 0, **changes: Any) -> dict[str, Any]:
    row = delivery(seq, group_id, status_id, error_id, sender=SENDER, content={"templateName": "order_update_v1"})
    row["destination"] = row.pop("to")
    return {**row, **changes}
