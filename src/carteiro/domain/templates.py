"""A template's structure: what it is made of, when two are equal, and what a contact must give for it.

Placeholders are `{{1}}` to `{{n}}`. A body may name them instead, as Meta allows: they are numbered when it is read,
and the names kept for the provider. Lengths and numbers of buttons are WhatsApp's limits as Infobip publishes them.

A batch freezes its template's *content*: the plain dict of `Template.to_content`, kept as JSON. Later edits of the
template never touch it, and rendering reads the dict as it is.
"""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec


class Category(StrEnum):
    UTILITY = "UTILITY"
    MARKETING = "MARKETING"
    AUTHENTICATION = "AUTHENTICATION"


class HeaderType(StrEnum):
    TEXT = "TEXT"
    IMAGE = "IMAGE"
    VIDEO = "VIDEO"
    DOCUMENT = "DOCUMENT"


class ButtonType(StrEnum):
    QUICK_REPLY = "QUICK_REPLY"
    URL = "URL"
    COPY_CODE = "COPY_CODE"
    PHONE_NUMBER = "PHONE_NUMBER"


@dataclass(frozen=True, slots=True)
class Header:
    type: HeaderType
    text: str = ""
    """Only of a TEXT header; may end in one placeholder."""


@dataclass(frozen=True, slots=True)
class Button:
    type: ButtonType
    text: str = ""
    url: str = ""
    """Only of a URL button; one that ends in {{1}} needs a suffix from each contact."""
    phone: str = ""

    @property
    def needs_parameter(self) -> bool:
        return self.type is ButtonType.COPY_CODE or "{{" in self.url


@dataclass(frozen=True, slots=True)
class Template:
    name: str
    language: str
    category: Category
    body: str
    header: Header | None = None
    footer: str = ""
    buttons: tuple[Button, ...] = ()
    names: tuple[str, ...] = ()
    """What the body called its placeholders, in their order; empty: they are numbered. Of one physical copy, and so no
    part of the content.
    """

    @property
    def placeholders(self) -> int:
        """How many placeholders the body has."""
        return len(placeholders_of(self.body))

    @property
    def texts(self) -> str:
        """All words that a recipient reads, for `forbidden_terms`."""
        header = self.header.text if self.header else ""
        return "\n".join([header, self.body, self.footer, *(button.text for button in self.buttons)])

    def to_content(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "language": self.language,
            "category": str(self.category),
            "header": {"type": str(self.header.type), "text": self.header.text} if self.header else None,
            "body": self.body,
            "placeholders": self.placeholders,
            "footer": self.footer,
            "buttons": [
                {"type": str(button.type), "text": button.text, "url": button.url, "phone": button.phone}
                for button in self.buttons
            ],
        }

    @classmethod
    def from_content(cls, content: Mapping[str, Any]) -> "Template":
        """The inverse of `to_content`; trusts what we froze ourselves."""
        header = content["header"]
        return cls(
            name=content["name"],
            language=content["language"],
            category=Category(content["category"]),
            body=content["body"],
            header=Header(HeaderType(header["type"]), header["text"]) if header else None,
            footer=content["footer"],
            buttons=tuple(
                Button(ButtonType(button["type"]), button["text"], button["url"], button["phone"])
                for button in content["buttons"]
            ),
        )


# Placeholders and signature
# ----------------------------------------------------------------------------------------------------

_ACCENTS = re.compile("[\u0300-\u036f]+")
_PARAMETER_NAME = re.compile(r"[a-z][a-z0-9_]{0,99}")
_PLACEHOLDER = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)


def number_placeholders(text: str) -> tuple[str, tuple[str, ...]]:
    """The text with named placeholders numbered in the order of their first appearance, and their names; a text without
    named ones as it is. Raises ValueError, in words for the client.
    """
    found = [name.strip() for name in _PLACEHOLDER.findall(text)]
    if all(name.isascii() and name.isdecimal() for name in found):
        return text, ()
    names = tuple(dict.fromkeys(found))
    wrong = [name for name in names if not _PARAMETER_NAME.fullmatch(name)]
    if wrong:
        raise ValueError(f"placeholders are numbered, or named by lower-case letters, digits and _: {{{{{wrong[0]}}}}}")
    numbers = {name: str(number) for number, name in enumerate(names, start=1)}
    return _PLACEHOLDER.sub(lambda match: f"{{{{{numbers[match[1].strip()]}}}}}", text), names


def placeholders_of(text: str) -> tuple[int, ...]:
    """The placeholders of a text, 1 to n. Raises ValueError, in words for the client, when they are not positional."""
    names = {name.strip() for name in _PLACEHOLDER.findall(text)}
    named = sorted(name for name in names if not (name.isascii() and name.isdecimal()))
    if named:
        raise ValueError(f"only a body may name its placeholders, number them from {{{{1}}}}: {{{{{named[0]}}}}}")
    numbers = sorted(int(name) for name in names)
    if numbers != list(range(1, len(numbers) + 1)):
        raise ValueError("placeholders must be numbered from {{1}} without gaps")
    return tuple(numbers)


def signature(template: Template) -> bytes:
    """SHA-256 of the structure: two templates with equal signatures take the same parameters and say the same.

    Category, language, header type, body, placeholders and buttons count. Names differ from one business manager to
    the next, and header text and footer may.
    """
    header_text = template.header.text if template.header else ""
    structure = [
        str(template.category),
        template.language,
        str(template.header.type) if template.header else "NONE",
        _canonical(template.body),
        [placeholders_of(template.body), placeholders_of(header_text)],
        [
            [str(button.type), _canonical(button.text), _canonical(button.url), button.phone]
            for button in template.buttons
        ],
    ]
    return sha256(msgspec.json.encode(structure)).digest()


def _canonical(text: str) -> str:
    """Composed characters, one kind of line break, no spaces at the ends: what differs only in these is the same."""
    return unicodedata.normalize("NFC", text.replace("\r\n", "\n")).strip()


# Forbidden terms
# ---------------------------------------------------------------------------------------------------------------


def forbidden_terms(text: str, terms: Sequence[str]) -> tuple[str, ...]:
    """Those of `terms` that stand in a text as whole words, whatever their case and accents. Quick with long texts."""
    folded = _folded(text)
    return tuple(term for term in terms if _stands_in(folded, term))


def _stands_in(folded: str, term: str) -> bool:
    words, pattern = _whole_words(term)
    # A plain search first: it is far quicker than the pattern, and as a rule finds nothing.
    return bool(words) and words[0] in folded and pattern.search(folded) is not None


@lru_cache(maxsize=256)
def _whole_words(term: str) -> tuple[list[str], re.Pattern[str]]:
    words = _folded(term).split()
    spaced = r"\s+".join(re.escape(word) for word in words)
    return words, re.compile(rf"(?<!\w){spaced}(?!\w)")


def _folded(text: str) -> str:
    if text.isascii():
        return text.lower()
    return _ACCENTS.sub("", unicodedata.normalize("NFKD", text.casefold()))


# Rendering
# ---------------------------------------------------------------------------------------------------------------------


class Parameters(NamedTuple):
    """One contact's parameters, in the shape of `outcomes.Outgoing`."""

    placeholders: tuple[str, ...]
    header: Mapping[str, str] | None = None
    buttons: tuple[Mapping[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class GuardFailure:
    """Why a contact cannot be rendered. `code` goes on the failed message, `field` names the contact's member."""

    code: str
    field: str
    detail: str


_HTTPS = re.compile(r"https://[^\s/?#@]+(?:[/?#]\S*)?")
_LONGEST_URL = 2048
_HEADER_BREAKS = re.compile(r"[\n\r\t]| {5}")


def is_https_url(url: str) -> bool:
    return len(url) <= _LONGEST_URL and _HTTPS.fullmatch(url) is not None


def render_parameters(
    content: Mapping[str, Any],
    placeholders: Sequence[str],
    extra: Mapping[str, Any] | None = None,
    header: Mapping[str, str] | None = None,
) -> Parameters | GuardFailure:
    """What a contact gives for a frozen template, or the first thing that it lacks.

    `extra` is the contact's own {"media_url", "filename", "header_text", "buttons": [...]}, `header` the batch's
    {"media_url", "filename"} for all; a contact's own media come first. `buttons` are parameters for the template's
    dynamic URL and COPY_CODE buttons, in their order.
    """
    failure = check_placeholders(content["placeholders"], placeholders)
    if failure is not None:
        return failure
    own = extra or {}
    rendered_header = _render_header(content["header"], own, header or {})
    if isinstance(rendered_header, GuardFailure):
        return rendered_header
    rendered_buttons = _render_buttons(content["buttons"], own.get("buttons") or ())
    if isinstance(rendered_buttons, GuardFailure):
        return rendered_buttons
    return Parameters(tuple(placeholders), rendered_header, rendered_buttons)


def check_placeholders(needed: int, given: Sequence[str]) -> GuardFailure | None:
    """As many as the template takes, and none of them blank."""
    if len(given) != needed:
        missing = len(given) < needed
        return GuardFailure(
            "PLACEHOLDER_MISSING" if missing else "PLACEHOLDER_SURPLUS",
            "placeholders",
            f"The template takes {needed} placeholders and the contact gives {len(given)}.",
        )
    for value in given:
        if not value or value.isspace():
            return GuardFailure("PLACEHOLDER_BLANK", "placeholders", "A placeholder is blank; WhatsApp refuses that.")
    return None


def _render_header(
    header: Mapping[str, str] | None, own: Mapping[str, Any], for_all: Mapping[str, str]
) -> Mapping[str, str] | GuardFailure | None:
    if header is None:
        return None
    if header["type"] == HeaderType.TEXT:
        return _render_text_header(header["text"], own.get("header_text") or "")
    source = own if own.get("media_url") else for_all
    url = source.get("media_url")
    if not url:
        return GuardFailure("HEADER_MEDIA_MISSING", "media_url", f"The template's header needs {header['type']} media.")
    if not is_https_url(url):
        return GuardFailure(
            "HEADER_MEDIA_INVALID", "media_url", "Header media must be an https URL of 2,048 characters at most."
        )
    rendered = {"type": header["type"], "mediaUrl": url}
    if header["type"] == HeaderType.DOCUMENT:
        rendered["filename"] = source.get("filename") or _file_name(url)
    return rendered


def _render_text_header(text: str, value: str) -> Mapping[str, str] | GuardFailure | None:
    if "{{" not in text:
        return None
    if not value or value.isspace():
        return GuardFailure(
            "HEADER_TEXT_MISSING", "header_text", "The template's header has a placeholder: give its text."
        )
    if _HEADER_BREAKS.search(value):
        return GuardFailure(
            "HEADER_TEXT_INVALID", "header_text", "Header text takes no line breaks, tabs or runs of spaces."
        )
    return {"type": "TEXT", "placeholder": value}


def _file_name(url: str) -> str:
    """What a recipient sees of a document that was given no name."""
    return re.split(r"[?#]", url)[0].rstrip("/").rpartition("/")[2][-240:]


def _render_buttons(
    buttons: Sequence[Mapping[str, str]], given: Sequence[str]
) -> tuple[Mapping[str, str], ...] | GuardFailure:
    if not buttons and not given:
        return ()
    rendered: list[Mapping[str, str]] = []
    values = iter(given)
    for index, button in enumerate(buttons):
        if button["type"] == ButtonType.QUICK_REPLY:
            rendered.append({"type": "QUICK_REPLY", "parameter": button["text"], "index": str(index)})
        elif button["type"] == ButtonType.COPY_CODE or "{{" in button["url"]:
            value = next(values, "")
            if not value or value.isspace():
                return GuardFailure(
                    "BUTTON_PARAMETER_MISSING", "buttons", f"The template's {button['type']} button needs a parameter."
                )
            rendered.append({"type": button["type"], "parameter": value, "index": str(index)})
    if next(values, None) is not None:
        return GuardFailure(
            "BUTTON_PARAMETER_SURPLUS", "buttons", "There are more parameters than buttons that take one."
        )
    return tuple(rendered)
