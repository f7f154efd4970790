"""What the codes of failed messages mean: ours in words, the providers' by their names for them."""

from collections.abc import Mapping

from carteiro.domain.erasure import ERASED
from carteiro.domain.follow_ups import WINDOW_CLOSED
from carteiro.domain.lifecycle import OUTCOME_UNKNOWN
from carteiro.domain.suppression import SUPPRESSED
from carteiro.providers.registry import name_codes
from carteiro.storage import audit
from carteiro.storage.pool import Pool

OURS: Mapping[str, str] = {
    SUPPRESSED: "the contact must not be written to: it is on the suppression list",
    ERASED: "the contact was erased",
    OUTCOME_UNKNOWN: "it may have been sent: no evidence came in time, and it is not sent again",
    "BATCH_CANCELLED": "it was cancelled before this one was sent",
    "BATCH_EXPIRED": "it expired before this one was sent",
    "BATCH_ERROR": "it could not be sent at all",
    WINDOW_CLOSED: "the contact's service window closed before it could be sent",
    "TIMEOUT": "the provider gave no answer in time",
    "LEASE_LAPSED": "the worker that was sending it went away",
    "HELD_FOR_QUALITY": "the provider accepted it and keeps it back while it looks at the template",
    "HELD_PAUSED": "the provider accepted it and keeps it back: its template is paused",
    "PLACEHOLDER_MISSING": "a placeholder has no value",
    "PLACEHOLDER_SURPLUS": "there are more values than placeholders",
    "PLACEHOLDER_BLANK": "a placeholder is blank",
    "HEADER_MEDIA_MISSING": "the header has no media",
    "HEADER_MEDIA_INVALID": "the header's media have no usable address",
    "HEADER_TEXT_MISSING": "the header's placeholder has no value",
    "HEADER_TEXT_INVALID": "the header's text cannot be sent",
    "BUTTON_PARAMETER_MISSING": "a button has no value",
    "BUTTON_PARAMETER_SURPLUS": "there are more values than buttons",
}
MEANINGS: Mapping[str, str] = {**name_codes(), **OURS}


def describe_code(code: str) -> str | None:
    return MEANINGS.get(code)


async def publish_codes(pool: Pool) -> None:
    """Tell the audit views what codes mean. Each worker does so when it starts."""
    async with pool.connection() as conn:
        await audit.put_codes(conn, MEANINGS)
