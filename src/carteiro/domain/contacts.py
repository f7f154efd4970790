"""The contacts of a request: what a client gives for each, what is wrong with them, and the rows that come of them.

The struct is the wire format: a body is decoded straight into it, because a hundred thousand contacts are too many to
copy once more. They are screened as they come, all at once or piece by piece.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from carteiro.domain import phones
from carteiro.domain.errors import FieldError
from carteiro.domain.phones import Phone
from carteiro.domain.templates import (
    GuardFailure,
    HeaderType,
    Template,
    check_placeholders,
    forbidden_terms,
    render_parameters,
)

MOST_NAMED = 1_000
"""Bad rows that are named in one answer, and rows that a batch's report names; the rest is counted."""


class OnInvalid(StrEnum):
    REJECT = "reject"
    SKIP = "skip"


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


class Row(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One message to be."""

    seq: int
    """From 1, dense."""
    identity: int
    address: str
    placeholders: list[str]
    extra: dict[str, Any] | None


class Screened(NamedTuple):
    """What became of one piece of the contacts."""

    rows: list[Row]
    guarded: frozenset[int]
    """Seqs of those that cannot be rendered. Only `skip` lets them pass; they fail by the guard at dispatch."""

    def cut(self, start: int, end: int) -> "Screened":
        """A part of it, by place."""
        rows = self.rows[start:end]
        return Screened(rows, self.guarded & {row.seq for row in rows} if self.guarded else self.guarded)


@dataclass(slots=True)
class Screening:
    """Turns contacts into rows as they come, keeping the first of each phone identity.

    With `reject` every fault is an error. With `skip` contacts without a usable phone or with forbidden words are left
    out, and one that lacks a parameter becomes a row all the same. `errors` and `left_out` name the first ones only,
    the counts are of all. Remembers about 100 bytes a contact.
    """

    content: Mapping[str, Any]
    """The template's, as `Template.to_content` freezes it."""
    header: Mapping[str, str] | None = None
    on_invalid: OnInvalid = OnInvalid.REJECT
    forbidden: Sequence[str] = ()
    """Words that the service refuses."""
    contacts: int = 0
    rows: int = 0
    errors: list[FieldError] = field(default_factory=list)
    error_count: int = 0
    left_out: list[dict[str, Any]] = field(default_factory=list)
    left_out_counts: Counter[str] = field(default_factory=Counter)
    _first: dict[int, int] = field(default_factory=dict, repr=False)
    """Identity -> place of its first contact."""

    def screen(self, contacts: Sequence[Contact], lines: Sequence[int] | None = None) -> Screened:
        """The rows of the next contacts, in their order; `lines`: where each stands in a body that is read by lines."""
        needed, plain = self.content["placeholders"], _takes_placeholders_only(self.content)
        skip = self.on_invalid is OnInvalid.SKIP
        parse, first = phones.parse, self._first
        barred = _barred(contacts, self.forbidden) if self.forbidden else {}
        offset, seq = self.contacts, self.rows
        rows: list[Row] = []
        guarded: list[int] = []
        for place, contact in enumerate(contacts):
            phone = parse(contact.phone)
            if not isinstance(phone, Phone):
                self._fault(offset + place, _line(lines, place), "phone", phone.value, phone.remedy)
                continue
            index = offset + place
            earlier = first.setdefault(phone.identity, index)
            if earlier != index:
                self._leave_out(index, _line(lines, place), "duplicate", first=earlier)
                continue
            if place in barred:
                detail = f"the service refuses promotional words: {', '.join(barred[place])}"
                self._fault(index, _line(lines, place), "placeholders", "forbidden-term", detail)
                continue
            extra = contact.extra
            if plain and extra is None:
                failure = check_placeholders(needed, contact.placeholders)
            else:
                rendered = render_parameters(self.content, contact.placeholders, extra, self.header)
                failure = rendered if isinstance(rendered, GuardFailure) else None
            seq += 1
            if failure is not None and skip:
                guarded.append(seq)
            elif failure is not None:
                code = failure.code.lower().replace("_", "-")
                self._fault(index, _line(lines, place), failure.field, code, failure.detail)
            rows.append(Row(seq, phone.identity, phone.address, contact.placeholders, extra))
        self.contacts, self.rows = offset + len(contacts), seq
        return Screened(rows, frozenset(guarded))

    def refuse(self, error: FieldError) -> None:
        self.error_count += 1
        if len(self.errors) < MOST_NAMED:
            self.errors.append(error)

    def report(self) -> dict[str, Any] | None:
        """What was left out, as the batch keeps it; None when nothing was.

        {"counts": {code: n}, "rows": [{"index": place in contacts, "line": only where the body is read by lines,
        "code": code, "first": place of the first, only of a duplicate}]}
        """
        if not self.left_out_counts:
            return None
        return {"counts": dict(self.left_out_counts), "rows": self.left_out}

    def _fault(self, index: int, line: int | None, member: str, code: str, detail: str) -> None:
        """A contact that `skip` leaves out, and that is an error otherwise; so is what it cannot be rendered with."""
        if self.on_invalid is OnInvalid.SKIP:
            self._leave_out(index, line, code)
        else:
            pointer = f"/contacts/{index}/{member}" if line is None else f"/{member}"
            self.refuse(FieldError(pointer, code, detail, line))

    def _leave_out(self, index: int, line: int | None, code: str, **more: int) -> None:
        self.left_out_counts[code] += 1
        if self.left_out_counts[code] <= MOST_NAMED:
            where = {"index": index} if line is None else {"index": index, "line": line}
            self.left_out.append({**where, "code": code, **more})


def _line(lines: Sequence[int] | None, place: int) -> int | None:
    return None if lines is None else lines[place]


def _barred(contacts: Sequence[Contact], forbidden: Sequence[str]) -> dict[int, tuple[str, ...]]:
    """The contacts that put forbidden words into the message. As a rule one look at all of it is enough."""
    words = "\n".join([value for contact in contacts for value in contact.placeholders])
    headers = "\n".join([contact.header_text for contact in contacts if contact.header_text])
    if not forbidden_terms(words, forbidden) and not forbidden_terms(headers, forbidden):
        return {}
    texts = ("\n".join([*contact.placeholders, contact.header_text or ""]) for contact in contacts)
    found = ((place, forbidden_terms(text, forbidden)) for place, text in enumerate(texts))
    return {place: terms for place, terms in found if terms}


def _takes_placeholders_only(content: Mapping[str, Any]) -> bool:
    header = content["header"]
    fixed_header = header is None or (header["type"] == HeaderType.TEXT and "{{" not in header["text"])
    return fixed_header and not any(button.needs_parameter for button in Template.from_content(content).buttons)
