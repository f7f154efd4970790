"""What an HTTP answer to a send means, message by message. Source of the rules: docs/architecture.md, "Outcomes"."""

import re
from collections.abc import Sequence
from typing import Any

from carteiro.domain.outcomes import Accepted, Ambiguous, Kind, NotSent, Outcome, RefusedTogether, Rejected, Throttled
from carteiro.providers.foreign import decode_json, detail_of, rows_of
from carteiro.providers.infobip.codec import read_status
from carteiro.providers.infobip.codes import Progress
from carteiro.providers.transport import read_retry_after

_NO_SUCH_TEMPLATE = re.compile(r"template\b.*\bnot found", re.IGNORECASE)
_NO_ENVELOPE = "no envelope"


def read_answer(status: int, body: bytes, retry_after: str | None, keys: Sequence[str]) -> list[Outcome]:
    """One outcome per key (our `messageId`s, in the order of the request)."""
    if 200 <= status < 300:
        return _read_rows(body, keys)
    refusal = _read_refusal(status, body, retry_after)
    match refusal:
        case Rejected(code, Kind.REQUEST | Kind.TEMPLATE) if len(keys) > 1:
            return [RefusedTogether(code, len(keys))] * len(keys)
    return [refusal] * len(keys)


def read_free_answer(status: int, body: bytes, retry_after: str | None, key: str) -> Outcome:
    """Of a message that is no template: the answer is the row itself."""
    if not 200 <= status < 300:
        return _read_refusal(status, body, retry_after)
    row = decode_json(body)
    if not isinstance(row, dict) or row.get("messageId") != key:
        return Ambiguous("MISSING_ROW", "2xx without a row for this message")
    return _read_row(key, row)


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
        return detail_of(name, text, *_validation_errors(error.get("validationErrors")))
    code = document.get("errorCode")
    if not isinstance(code, str):
        return None
    return detail_of(code, document.get("description"), *_violations(document.get("violations")))


def _validation_errors(errors: Any) -> list[str]:
    if not isinstance(errors, dict):
        return []
    return [f"{path}: {text}" for path, texts in errors.items() for text in (texts if isinstance(texts, list) else [])]


def _violations(rows: Any) -> list[str]:
    rows = rows if isinstance(rows, list) else []
    return [f"{row.get('property')}: {row.get('violation')}" for row in rows if isinstance(row, dict)]
