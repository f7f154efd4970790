"""What becomes of one call: its answer, whether the message was taken, and what is reported of it later."""

from typing import Annotated, Literal

import msgspec

from carteiro.providers.simulator.options import Millis

Answer = Literal["ok", "http", "reset", "close", "hang", "garbage", "no_row", "reject"]
Receipt = Literal["usual", "none", "late", "repeat", "reorder", "early", "contradict", "spoilt"]
Code = Annotated[int, msgspec.Meta(ge=0, le=9999)]
ErrorCode = Annotated[int, msgspec.Meta(ge=0, le=9_999_999)]


class Plan(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """The default is a call without a fault."""

    answer: Answer = "ok"
    """`http`: `http_status` with an envelope. `reset`, `close`: the connection ends with RST or FIN, without an answer.
    `hang`: no answer until the caller leaves. `garbage`: 200 that is not JSON. `no_row`: 200 without the message.
    `reject`: 200, the message's own status is `status_id` (with `error_id`).
    """
    accept: bool = False
    """Whether the message was taken all the same; `ok` always takes it, `reject` never."""
    delay_ms: Millis = 0.0
    """Before the answer, beside the latency."""

    http_status: Annotated[int, msgspec.Meta(ge=300, le=599)] = 500
    envelope: Literal["legacy", "newer", "none"] = "legacy"
    """The shape of the error's body; `none` is a proxy's page."""
    error: str = "GENERAL_ERROR"
    text: str = "Something went wrong. Please contact support."
    retry_after: str | None = None
    """The header as it is sent; `date+N` is an HTTP date N seconds ahead."""

    status_id: Code = 5
    """Of the answer's row with `reject`, else of the report. Meta has none: 5 stands for delivered, 4 for failed."""
    error_id: ErrorCode = 0
    """Infobip's or Meta's. At Meta's also the code of an answer with `http` or `reject`."""
    held: bool = False
    """Meta accepts it and keeps it back (`held_for_quality_assessment`)."""
    receipt: Receipt = "usual"
    """`late`: `receipt_delay_ms` later. `repeat`: three times. `reorder`: seen before delivered. `early`: before the
    answer. `contradict`: a failure, then delivered. `spoilt`: with an unreadable item before it in the same post.
    """
    receipt_delay_ms: Millis = 0.0
    log_lag_ms: Millis = 0.0
    """How long the message is missing in the log."""
