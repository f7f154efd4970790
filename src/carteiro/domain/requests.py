"""The request for a batch: what a client sends, what is wrong with it, and the rows that come of it.

The structs are the wire format: the API decodes a body straight into `BatchRequest`, because a hundred thousand
contacts are too many to copy once more.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from hashlib import sha256
from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec

from carteiro.domain import phones
from carteiro.domain.errors import FieldError, InvalidRequest
from carteiro.domain.phones import Phone
from carteiro.domain.templates import (
    HeaderType,
    Template,
    check_placeholders,
    forbidden_terms,
    is_https_url,
    render_parameters,
)

MOST_NAMED = 1_000
"""Bad rows that are named in one answer, and rows that a batch's report names; the rest is counted."""
MOST_ATTEMPTS = 100
CHUNK_ROWS = 10_000
"""Rows that are encoded at once for a signature. Part of it: equal requests must be cut alike."""

Instant = Annotated[datetime, msgspec.Meta(tz=True)]
"""A time without an offset is refused."""


class OnInvalid(StrEnum):
    REJECT = "reject"
    SKIP = "skip"


class OnCapacity(StrEnum):
    REJECT = "reject"
    SPILL = "spill"


class Contact(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    phone: str
    placeholders: list[str] = []
    media_url: str | None = None
    """Of the header, instead of the batch's."""
    filename: str | None = None
    header_text: str | None = None
    buttons: list[str] = []
    """Parameters of the template's dynamic URL and COPY_CODE buttons, in their order."""

    @property
    def extra(self) -> dict[str, Any] | None:
        """What goes beyond the placeholders, as `templates.render_parameters` takes it; None when nothing does."""
        if self.media_url is None and self.filename is None and self.header_text is None and not self.buttons:
            return None
        given = {
            "media_url": self.media_url,
            "filename": self.filename,
            "header_text": self.header_text,
            "buttons": self.buttons,
        }
        return {name: value for name, value in given.items() if value}


class TemplateName(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    language: str = "pt_BR"


class BatchRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    service: str
    template: TemplateName
    contacts: list[Contact]
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

    @property
    def header(self) -> dict[str, str] | None:
        """The header media for all contacts, as `templates.render_parameters` takes them."""
        if self.media_url is None:
            return None
        return {"media_url": self.media_url} | ({"filename": self.filename} if self.filename else {})


class Row(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One message to be."""

    seq: int
    """From 1, dense."""
    identity: int
    address: str
    placeholders: list[str]
    extra: dict[str, Any] | None


@dataclass(slots=True)
class Validated:
    """`rows` in the order of the request. `errors` and `left_out` name the first ones only, the counts are of all."""

    rows: list[Row]
    errors: list[FieldError] = field(default_factory=list)
    error_count: int = 0
    left_out: list[dict[str, Any]] = field(default_factory=list)
    left_out_counts: Counter[str] = field(default_factory=Counter)

    def report(self) -> dict[str, Any] | None:
        """What was left out, as the batch keeps it; None when nothing was.

        {"counts": {code: n}, "rows": [{"index": place in contacts, "code": code, "first": only of a duplicate}]}
        """
        if not self.left_out_counts:
            return None
        return {"counts": dict(self.left_out_counts), "rows": self.left_out}

    def refuse(self, pointer: str, code: str, detail: str) -> None:
        self.error_count += 1
        if len(self.errors) < MOST_NAMED:
            self.errors.append(FieldError(pointer, code, detail))

    def leave_out(self, index: int, code: str, **more: int) -> None:
        self.left_out_counts[code] += 1
        if self.left_out_counts[code] <= MOST_NAMED:
            self.left_out.append({"index": index, "code": code, **more})


def validate(
    request: BatchRequest,
    content: Mapping[str, Any],
    *,
    now: datetime,
    min_size: int = 1,
    forbidden: Sequence[str] = (),
) -> Validated:
    """The rows of a request for the template with this frozen content (`Template.to_content`).

    `forbidden` are the terms that the service refuses. Raises InvalidRequest with everything that is wrong; of the
    contacts only what `on_invalid` does not let pass.
    """
    errors = list(request_faults(request, content, now=now, forbidden=forbidden))
    validated = validate_contacts(
        request.contacts, content, header=request.header, on_invalid=request.on_invalid, forbidden=forbidden
    )
    count = len(errors) + validated.error_count
    errors += validated.errors
    if not count and len(validated.rows) < min_size:
        usable = f"{len(validated.rows)} of {len(request.contacts)} are usable"
        detail = f"{min_size} contacts at least, without duplicates; {usable}"
        errors.append(FieldError("/contacts", "too-few", detail))
        count = 1
    if count:
        unnamed = f" {count - len(errors)} more are not listed." if count > len(errors) else ""
        raise InvalidRequest(
            f"{count} things are wrong with the batch.{unnamed}", errors=errors, extra={"error_count": count}
        )
    return validated


def request_faults(
    request: BatchRequest, content: Mapping[str, Any], *, now: datetime, forbidden: Sequence[str] = ()
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


def validate_contacts(
    contacts: Sequence[Contact],
    content: Mapping[str, Any],
    *,
    header: Mapping[str, str] | None = None,
    on_invalid: OnInvalid = OnInvalid.REJECT,
    forbidden: Sequence[str] = (),
) -> Validated:
    """Turn contacts into rows, keeping the first of each phone identity.

    With `reject` every fault is an error. With `skip` contacts without a usable phone or with forbidden words are left
    out, and one that lacks a parameter becomes a row all the same: the guard fails it at dispatch.
    """
    validated = Validated(rows=[])
    skip = on_invalid is OnInvalid.SKIP
    parsed = [phones.parse(contact.phone) for contact in contacts]
    kept, duplicates = phones.dedupe(parsed)
    for index, first in duplicates:
        validated.leave_out(index, "duplicate", first=first)
    if len(kept) + len(duplicates) != len(contacts):
        _tell_bad_phones(validated, parsed, skip=skip)
    barred = _barred(contacts, forbidden) if forbidden else {}

    needed = content["placeholders"]
    plain = _takes_placeholders_only(content)
    rows = validated.rows
    for index, phone in kept.items():
        contact = contacts[index]
        if index in barred:
            _tell_barred(validated, index, barred[index], skip=skip)
            continue
        extra = contact.extra
        if not skip:
            if plain and not contact.buttons:
                failure = check_placeholders(needed, contact.placeholders)
            else:
                rendered = render_parameters(content, contact.placeholders, extra, header)
                failure = rendered if not isinstance(rendered, tuple) else None
            if failure is not None:
                pointer = f"/contacts/{index}/{failure.field}"
                validated.refuse(pointer, failure.code.lower().replace("_", "-"), failure.detail)
        rows.append(Row(len(rows) + 1, phone.identity, phone.address, contact.placeholders, extra))
    return validated


def request_signature(account_id: str, request: BatchRequest, rows: Sequence[Row]) -> bytes:
    """SHA-256 over everything that changes what is sent, and over nothing else."""
    schedule = [at and at.astimezone(UTC) for at in (request.scheduled_at, request.expires_at)]
    encoder = msgspec.json.Encoder()
    digest = sha256(encoder.encode([account_id, request.service, request.template, request.header, schedule]))
    for start in range(0, len(rows), CHUNK_ROWS):
        digest.update(encoder.encode(rows[start : start + CHUNK_ROWS]))
    return digest.digest()


def _tell_bad_phones(validated: Validated, parsed: Sequence[Phone | phones.PhoneProblem], *, skip: bool) -> None:
    for index, phone in enumerate(parsed):
        if isinstance(phone, Phone):
            continue
        if skip:
            validated.leave_out(index, str(phone))
        else:
            validated.refuse(f"/contacts/{index}/phone", str(phone), phone.remedy)


def _tell_barred(validated: Validated, index: int, terms: Sequence[str], *, skip: bool) -> None:
    if skip:
        validated.leave_out(index, "forbidden-term")
    else:
        detail = f"the service refuses promotional words: {', '.join(terms)}"
        validated.refuse(f"/contacts/{index}/placeholders", "forbidden-term", detail)


def _barred(contacts: Sequence[Contact], forbidden: Sequence[str]) -> dict[int, tuple[str, ...]]:
    """The contacts that put forbidden words into the message. As a rule one look at all of it is enough."""
    words = "\n".join([value for contact in contacts for value in contact.placeholders])
    headers = "\n".join([contact.header_text for contact in contacts if contact.header_text])
    if not forbidden_terms(words, forbidden) and not forbidden_terms(headers, forbidden):
        return {}
    texts = ("\n".join([*contact.placeholders, contact.header_text or ""]) for contact in contacts)
    found = ((index, forbidden_terms(text, forbidden)) for index, text in enumerate(texts))
    return {index: terms for index, terms in found if terms}


def _takes_placeholders_only(content: Mapping[str, Any]) -> bool:
    header = content["header"]
    fixed_header = header is None or (header["type"] == HeaderType.TEXT and "{{" not in header["text"])
    return fixed_header and not any(button.needs_parameter for button in Template.from_content(content).buttons)


def _is_web_url(url: str) -> bool:
    if len(url) > 2048 or any(character.isspace() for character in url):
        return False
    try:
        parts = urlsplit(url)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
