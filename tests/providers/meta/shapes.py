"""Messages, and payloads in Meta's shapes. `examples/` holds one file a shape, as Meta documents them."""

import json
from pathlib import Path
from typing import Any
from uuid import UUID

from carteiro.domain.outcomes import Outgoing, message_key

BATCH = UUID("0190b5a0-0000-7000-8000-000000000042")
SENDER = "109000000000001"
ACCOUNT = "208000000000001"
TO = "5531987650001"
WAMID = "wamid.HBgMNTUzMTg3NjUwMDAxFQIAERgSMDAwMDAwMDAwMDAwMDAwMDAxAA=="
EXAMPLES = Path(__file__).parent / "examples"


def example(name: str) -> Any:
    return json.loads((EXAMPLES / f"{name}.json").read_text())


def raw_example(name: str, key: str | None = None) -> bytes:
    """The bytes; `key` instead of the id that the example's sender had given."""
    text = (EXAMPLES / f"{name}.json").read_text()
    return (text if key is None else text.replace("o7:42:000001", key)).encode()


def outgoing(seq: int = 1, to: str = TO, **more: Any) -> Outgoing:
    given = {"template_name": "aviso_fatura_v3", "language": "pt_BR", "placeholders": ("Ana",), **more}
    return Outgoing(batch_id=BATCH, seq=seq, sender=SENDER, to=to, **given)


def status(key: str | None = None, word: str = "delivered", at: int = 1796130003, **more: Any) -> dict[str, Any]:
    """One item of `statuses`; `key` None: of message 1 of the batch. Without a phone, as of who hides it."""
    given = {"biz_opaque_callback_data": key or message_key(BATCH, 1), **more}
    row = {"id": WAMID, "status": word, "timestamp": str(at), **given}
    return {name: value for name, value in row.items() if value is not None}


def change(sender: str = SENDER, name: str = "messages", **value: Any) -> dict[str, Any]:
    metadata = {"display_phone_number": "551140001234", "phone_number_id": sender}
    return {"field": name, "value": {"messaging_product": "whatsapp", "metadata": metadata, **value}}


def payload(*entries: list[dict[str, Any]]) -> bytes:
    """Each entry is a list of its changes."""
    rows = [{"id": ACCOUNT, "time": 1796131000, "changes": changes} for changes in entries]
    return json.dumps({"object": "whatsapp_business_account", "entry": rows}).encode()
