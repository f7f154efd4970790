"""What an HTTP answer to a send means, message by message. Source of the rules: docs/architecture.md, "Outcomes"."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from carteiro.domain.outcomes import Accepted, Ambiguous, Kind, NotSent, Outcome, Rejected, Throttled
from carteiro.providers.infobip.codec import read_status
from carteiro.providers.infobip.codes import Progress
from carteiro.providers.infobip.foreign import decode_json, rows_of

RETRY_AFTER_MAX_S = 900.0

_SECONDS = re.compile(r"\d{1,18}(\.\d{1,9})?", re.ASCII)
_NO_SUCH_TEMPLATE = re.compile(r"template\b.*\bnot found", re.IGNORECASE)
# What a provider quotes back may hold a phone.
_LONG_NUMBER = re.compile(r"\d{6,}")
_DETAIL_MAX = 200
_NO_ENVELOPE = "no envelope"


def read_answer(status: int, body: bytes, retry_after: str | None, keys: Sequence[str]) -> list[Outcome]:
    """One outcome per key (our `messageId`s, in the order of the request)."""
    if 200 <= status < 300:
        return _read_rows(body, keys)
    return [_read_refusal(status, body, retry_after)] * len(keys)


def read_retry_after(value: str | None) -> float | None:
    """Seconds to wait, at most 15 minutes; None when the header says nothing useful: absent, unreadable, not ahead."""
    if value is None:
        return None
    value = value.strip()
    if _SECONDS.fullmatch(value):
        wait_s = float(value)
    else:
        try:
            until = parsedate_to_datetime(value)
        except (ValueError, OverflowError):
            return None
        if until.tzinfo is None:
            until = until.replace(tzinfo=UTC)
        wait_s = (until - datetime.now(UTC)).total_seconds()
    return min(wait_s, RETRY_AFTER_MAX_S) if wait_s > 0 else None


def _read_rows(body: bytes, keys: Sequence[str]) -> list[Outcome]:
    rows = rows_of(decode_json(body), "messages")
    if rows is None:
        return [Ambiguous("UNREADABLE_ANSWER", "2xx without a list of messages")] * len(keys)
    by_key = {str(row.get("messageId")): row for row in rows if isinstance(row, dict)}
    return [_read_row(key, by_key.get(key)) for key in keys]


def _read_row(key: str, row: dict[str, Any] | None) -> Outcome:
    """200 means that the call was taken, not its messages: every row has its own word."""
    if row is None:
        return Ambiguous("MISSING_ROW", "2xx without a row for this message")
    meaning = read_status(row)
    if meaning is None:
        return Ambiguous("UNREADABLE_ANSWER", "2xx without a status for this message")
    match meaning.verdict:
        case Progress.ACCEPTED | Progress.DELIVERED:
            return Accepted(key)
        case Progress.UNKNOWABLE:
            return Ambiguous(meaning.code, meaning.name)
        case Kind.DUPLICATE:
            return Ambiguous(meaning.code, meaning.name, duplicate=True)
        case Kind.RATE:
            return Throttled(code=meaning.code)
        case Kind.TRANSIENT:
            return NotSent(meaning.code, meaning.name)
        case kind:
            return Rejected(meaning.code, kind, meaning.name)


def _read_refusal(status: int, body: bytes, retry_after: str | None) -> Outcome:
    """A whole call that was not answered with 2xx."""
    code, envelope = f"HTTP_{status}", _read_envelope(body)
    detail = _NO_ENVELOPE if envelope is None else envelope
    if status >= 500:
        # Only Infobip's own word says that nothing was taken; a proxy's page may hide an accepted message. So may a
        # 504 even in its envelope: what it waited for may still have done its work.
        return Ambiguous(code, detail) if envelope is None or status == 504 else NotSent(code, detail)
    match status:
        case 429:
            return Throttled(read_retry_after(retry_after))
        case 400 | 404 if _NO_SUCH_TEMPLATE.search(detail):
            return Rejected(code, Kind.TEMPLATE, detail)
        case 401 | 402 | 403 | 404:
            return Rejected(code, Kind.ACCOUNT, detail)
        case _ if 300 <= status < 400:
            # Redirects are not followed: the service's base_url is wrong.
            return Rejected(code, Kind.ACCOUNT, "redirected")
        case 408:
            return Ambiguous(code, detail)
        case _ if 400 <= status < 500:
            return Rejected(code, Kind.REQUEST, detail)
        case _:
            return Ambiguous(code, detail)


def _read_envelope(body: bytes) -> str | None:
    """What an error answer of Infobip's says, in either of its two shapes; None when it is somebody else's."""
    document = decode_json(body)
    if not isinstance(document, dict):
        return None
    legacy = document.get("requestError")
    if isinstance(legacy, dict) and isinstance(error := legacy.get("serviceException"), dict):
        name, text = error.get("messageId"), error.get("text")
        if not isinstance(name, str):
            return None
        return _detail(name, text, *_validation_errors(error.get("validationErrors")))
    code = document.get("errorCode")
    if not isinstance(code, str):
        return None
    return _detail(code, document.get("description"), *_violations(document.get("violations")))


def _validation_errors(errors: Any) -> list[str]:
    if not isinstance(errors, dict):
        return []
    return [f"{path}: {text}" for path, texts in errors.items() for text in (texts if isinstance(texts, list) else [])]


def _violations(rows: Any) -> list[str]:
    rows = rows if isinstance(rows, list) else []
    return [f"{row.get('property')}: {row.get('violation')}" for row in rows if isinstance(row, dict)]


def _detail(*parts: Any) -> str:
    text = "; ".join(str(part) for part in parts if part)
    return _LONG_NUMBER.sub("...", text)[:_DETAIL_MAX]
