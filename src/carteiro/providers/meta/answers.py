"""What an HTTP answer to a send means. Source of the rules: docs/architecture.md, "Outcomes"."""

from dataclasses import dataclass

from carteiro.domain.outcomes import Accepted, Ambiguous, Kind, NotSent, Outcome, Rejected, Throttled
from carteiro.providers.foreign import decode_json, detail_of, read_number, read_word, rows_of
from carteiro.providers.meta.codes import Meaning, meaning_of
from carteiro.providers.transport import read_retry_after

NOTES = {"held_for_quality_assessment": "HELD_FOR_QUALITY", "paused": "HELD_PAUSED"}
"""Statuses of a message that was accepted and is kept back: it goes later, or fails with 132015."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """An error as Meta writes it."""

    meaning: Meaning
    detail: str


def read_answer(status: int, body: bytes, retry_after: str | None) -> Outcome:
    """200 means accepted, no more: whether the contact exists at all is told later."""
    if not 200 <= status < 300:
        return _read_refusal(status, body, retry_after)
    rows = rows_of(decode_json(body), "messages")
    row = rows[0] if rows and isinstance(rows[0], dict) else {}
    provider_id = read_word(row.get("id"))
    if provider_id is None:
        return Ambiguous("UNREADABLE_ANSWER", "2xx without a message id")
    return Accepted(provider_id, NOTES.get(str(row.get("message_status"))))


def read_envelope(body: bytes) -> Envelope | None:
    """None when it is somebody else's error."""
    document = decode_json(body)
    error = document.get("error") if isinstance(document, dict) else None
    code = read_number(error.get("code")) if isinstance(error, dict) else None
    if not isinstance(error, dict) or code is None:
        return None
    data = error.get("error_data")
    details = data.get("details") if isinstance(data, dict) else None
    return Envelope(meaning_of(code, read_number(error.get("error_subcode"))), detail_of(error.get("message"), details))


def _read_refusal(status: int, body: bytes, retry_after: str | None) -> Outcome:
    envelope = read_envelope(body)
    if envelope is None:
        return _read_stranger(status, retry_after)
    meaning, detail = envelope.meaning, envelope.detail
    # Meta says itself what a known code means; beside an unknown one, a 5xx leaves open what was done before it. What a
    # 504 waited for may have been done whatever the code.
    unexplained = meaning.tries_max is not None and status >= 500
    if meaning.taken == "perhaps" or unexplained or status == 504:
        return Ambiguous(meaning.code, detail)
    match meaning.kind:
        case Kind.RATE:
            return Throttled(read_retry_after(retry_after) or meaning.wait_s, meaning.code, meaning.scope)
        case Kind.TRANSIENT:
            return NotSent(meaning.code, detail, meaning.tries_max)
        case kind:
            return Rejected(meaning.code, kind, detail)


def _read_stranger(status: int, retry_after: str | None) -> Outcome:
    """An answer that is not Meta's own: a proxy's, or of whatever stands at a wrong address."""
    code = f"HTTP_{status}"
    match status:
        case 429:
            return Throttled(read_retry_after(retry_after))
        case 401 | 403 | 404:
            return Rejected(code, Kind.ACCOUNT, "no envelope")
        case _ if 300 <= status < 400:
            # Redirects are not followed: the service's base_url is wrong.
            return Rejected(code, Kind.ACCOUNT, "redirected")
        case _ if 400 <= status < 500 and status != 408:
            return Rejected(code, Kind.REQUEST, "no envelope")
        case _:
            return Ambiguous(code, "no envelope")
