"""The request for a batch: what a client sends, and what is wrong with it.

The structs are the wire format: the API decodes a body straight into them.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from hashlib import sha256
from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec

from carteiro.domain.contacts import Contact, OnInvalid, Row, Screening
from carteiro.domain.errors import FieldError, InvalidRequest
from carteiro.domain.follow_ups import FollowUp, follow_up_faults
from carteiro.domain.templates import HeaderType, Template, forbidden_terms, is_https_url

MOST_ATTEMPTS = 100

Instant = Annotated[datetime, msgspec.Meta(tz=True)]
"""A time without an offset is refused."""


class OnCapacity(StrEnum):
    REJECT = "reject"
    SPILL = "spill"


class TemplateName(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    language: str = "pt_BR"


class BatchTerms(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A request without its contacts: what comes before them where they are streamed."""

    service: str
    template: TemplateName
    media_url: str | None = None
    """Of the header, for all contacts that have none of their own."""
    filename: str | None = None
    scheduled_at: Instant | None = None
    """None, or a time that has passed: at once."""
    expires_at: Instant | None = None
    callback_url: str | None = None
    reference: str | None = None
    on_invalid: OnInvalid = OnInvalid.REJECT
    on_capacity: OnCapacity = OnCapacity.REJECT
    allow_duplicate: bool = False
    max_attempts: int | None = None
    follow_up: FollowUp | None = None
    """What is sent once to a contact who answers within 24 hours."""

    @property
    def header(self) -> dict[str, str] | None:
        """The header media for all contacts, as `templates.render_parameters` takes them."""
        if self.media_url is None:
            return None
        return {"media_url": self.media_url} | ({"filename": self.filename} if self.filename else {})


class BatchRequest(BatchTerms, frozen=True, forbid_unknown_fields=True, kw_only=True):
    contacts: list[Contact]


def refuse_faults(faults: Iterable[FieldError], screening: Screening, min_size: int) -> None:
    """Once all contacts are screened: raises InvalidRequest for `faults`, theirs, or too few of them."""
    errors = [*faults, *screening.errors]
    count = len(errors) - len(screening.errors) + screening.error_count
    if not count and screening.rows < min_size:
        detail = (
            f"{min_size} contacts at least, without duplicates; {screening.rows} of {screening.contacts} are usable"
        )
        errors.append(FieldError("/contacts", "too-few", detail))
        count = 1
    if count:
        unnamed = f" {count - len(errors)} more are not listed." if count > len(errors) else ""
        raise InvalidRequest(
            f"{count} things are wrong with the batch.{unnamed}", errors=errors, extra={"error_count": count}
        )


def request_faults(
    request: BatchTerms, content: Mapping[str, Any], *, now: datetime, forbidden: Sequence[str] = ()
) -> Iterable[FieldError]:
    """What is wrong with a request apart from its contacts."""
    found = forbidden_terms(Template.from_content(content).texts, forbidden)
    if found:
        yield FieldError("/template", "forbidden-term", f"the service refuses promotional words: {', '.join(found)}")
    header = content["header"]
    if request.media_url is not None and (header is None or header["type"] == HeaderType.TEXT):
        yield FieldError("/media_url", "unexpected", "the template's header takes no media")
    elif request.media_url is not None and not is_https_url(request.media_url):
        yield FieldError("/media_url", "not-https", "header media must be an https URL of 2,048 characters at most")
    if request.filename is not None and not 1 <= len(request.filename) <= 240:
        yield FieldError("/filename", "bad-length", "1 to 240 characters")
    if request.callback_url is not None and not _is_web_url(request.callback_url):
        yield FieldError("/callback_url", "bad-url", "must be an http or https URL of 2,048 characters at most")
    if request.reference is not None and len(request.reference) > 255:
        yield FieldError("/reference", "too-long", "255 characters at most")
    if request.max_attempts is not None and not 1 <= request.max_attempts <= MOST_ATTEMPTS:
        yield FieldError("/max_attempts", "out-of-range", f"1 to {MOST_ATTEMPTS}")
    if request.expires_at is not None and request.expires_at <= max(now, request.scheduled_at or now):
        yield FieldError("/expires_at", "too-early", "must lie in the future and after scheduled_at")
    if request.follow_up is not None:
        yield from follow_up_faults(request.follow_up)


class RequestSignature:
    """SHA-256 over everything that changes what is sent, and over nothing else; fed with the rows as they come."""

    def __init__(self, account_id: str, terms: BatchTerms) -> None:
        schedule = [at and at.astimezone(UTC) for at in (terms.scheduled_at, terms.expires_at)]
        self._encoder = msgspec.json.Encoder()
        given = [account_id, terms.service, terms.template, terms.header, schedule, terms.follow_up]
        self._digest = sha256(self._encoder.encode(given))

    def add(self, rows: Sequence[Row]) -> None:
        """However the rows are cut into pieces, the signature is the same."""
        self._digest.update(self._encoder.encode_lines(rows))

    def digest(self) -> bytes:
        return self._digest.digest()


def _is_web_url(url: str) -> bool:
    if len(url) > 2048 or any(character.isspace() for character in url):
        return False
    try:
        parts = urlsplit(url)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
