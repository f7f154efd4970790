"""What the simulator can be told at its start, and changed at run time by `POST /_sim/settings`."""

from typing import Annotated, Any

import msgspec

Count = Annotated[int, msgspec.Meta(ge=1)]
Millis = Annotated[float, msgspec.Meta(ge=0)]
Ratio = Annotated[float, msgspec.Meta(ge=0, le=1)]


class Options(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Durations are in milliseconds. Mutable: every part of the simulator holds the same object."""

    latency_ms: Millis = 20.0
    """From the arrival of a send to its answer, at least."""
    jitter_ms: Millis = 0.0
    """Added to the latency: uniform between 0 and this, by the seed."""
    dedupe: bool = True
    """Refuse a `messageId` that was accepted before with status 23. Whether Infobip does is not known."""
    api_key: str | None = None
    """Refuse other keys with 401. None: any key will do."""
    magic: bool = True
    """Let recipients with certain last digits choose a fault (docs/simulator.md)."""
    seed: int = 1

    receipts: bool = True
    """Post reports to each message's `notifyUrl`. Off: none come, and the log says pending for ever."""
    receipt_delay_ms: Millis = 100.0
    """From the acceptance to the report of delivery."""
    receipt_jitter_ms: Millis = 0.0
    seen_ratio: Ratio = 0.5
    seen_delay_ms: Millis = 100.0
    """From the report of delivery to the one of being seen."""
    results_per_post: Annotated[int, msgspec.Meta(ge=1, le=2000)] = 50
    receipt_connections: Count = 8
    """Posts of reports in flight at once; what it was at the start counts."""
    receipt_attempts: Count = 5
    receipt_retry_ms: Millis = 500.0
    """Pause before the second attempt; it doubles each time."""

    meta_webhook_url: str | None = None
    """Where what Meta tells is posted; None: nowhere."""
    meta_app_secret: str | None = "simulated-app-secret"
    """What it is signed with; None: it is not."""
    meta_opaque: bool = True
    """Statuses carry the `biz_opaque_callback_data` of their message; else nothing but Meta's own id."""

    log_lag_ms: Millis = 0.0
    """How long an accepted message is missing in the log."""

    def change(self, patch: dict[str, Any]) -> None:
        """Set some fields, all or none. Raises msgspec.ValidationError."""
        changed = msgspec.convert({**msgspec.structs.asdict(self), **patch}, Options)
        for name in patch:
            setattr(self, name, getattr(changed, name))
