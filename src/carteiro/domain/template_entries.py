"""Reading a template as an operator wrote it in the catalog, with every fault told at once."""

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, TypeVar

from carteiro.domain.errors import FieldError, InvalidRequest
from carteiro.domain.templates import (
    Button,
    ButtonType,
    Category,
    Header,
    HeaderType,
    Template,
    number_placeholders,
    placeholders_of,
)

_NAME = re.compile(r"[a-z0-9_]{1,512}")
_LANGUAGE = re.compile(r"[a-z]{2,3}(?:_[A-Z]{2,4})?")
_MOST_BUTTONS = 10
_MOST_URL_PARAMETERS = 2
_Choice = TypeVar("_Choice", bound=StrEnum)
_KEYS = {"name", "language", "category", "body", "header", "footer", "buttons"}


class _Reader:
    """Collects what is wrong, so that all of it is told at once."""

    def __init__(self, pointer: str) -> None:
        self.pointer = pointer
        self.errors: list[FieldError] = []

    def refuse(self, field: str, code: str, detail: str) -> None:
        self.errors.append(FieldError(f"{self.pointer}/{field}", code, detail))

    def text(self, entry: Mapping[str, Any], key: str, field: str, *, longest: int, required: bool = False) -> str:
        value = entry.get(key, "")
        if not isinstance(value, str):
            self.refuse(field, "wrong-type", "must be text")
            return ""
        if required and not value.strip():
            self.refuse(field, "missing", "must be given")
        if len(value) > longest:
            self.refuse(field, "too-long", f"{longest} characters at most")
        return value

    def placeholders(self, text: str, field: str, *, most: int | None = None) -> int:
        try:
            found = len(placeholders_of(text))
        except ValueError as error:
            self.refuse(field, "placeholders", str(error))
            return 0
        if most is not None and found > most:
            self.refuse(field, "placeholders", f"{most} placeholders at most" if most else "takes no placeholder")
        return found

    def number(self, text: str, field: str) -> tuple[str, tuple[str, ...]]:
        """The text with its placeholders numbered, and their names where it had some."""
        try:
            numbered, names = number_placeholders(text)
        except ValueError as error:
            self.refuse(field, "placeholders", str(error))
            return text, ()
        self.placeholders(numbered, field)
        return numbered, names

    def choice(self, kind: type[_Choice], value: object, field: str) -> _Choice | None:
        try:
            return kind(str(value))
        except ValueError:
            self.refuse(field, "unknown-value", f"must be one of {', '.join(kind)}")
            return None


def parse_template(entry: Mapping[str, Any], *, pointer: str = "") -> Template:
    """Read a template as the catalog or a client wrote it: the members of `Template`, header and buttons as objects.

    Raises InvalidRequest with every fault, at JSON pointers below `pointer`.
    """
    reader = _Reader(pointer)
    for key in sorted(entry.keys() - _KEYS):
        reader.refuse(key, "unknown-field", "a template has no such member")
    name = reader.text(entry, "name", "name", longest=512, required=True)
    if name and not _NAME.fullmatch(name):
        reader.refuse("name", "bad-name", "only a-z, 0-9 and _ may stand in a name")
    language = entry.get("language", "pt_BR")
    if not isinstance(language, str) or not _LANGUAGE.fullmatch(language):
        reader.refuse("language", "bad-language", "must be a code such as pt_BR")
    category = reader.choice(Category, entry.get("category", ""), "category")
    body = reader.text(entry, "body", "body", longest=1024, required=True)
    body, names = reader.number(body, "body")
    footer = reader.text(entry, "footer", "footer", longest=60)
    reader.placeholders(footer, "footer", most=0)
    header = _read_header(reader, entry.get("header"))
    buttons = _read_buttons(reader, entry.get("buttons", []))
    if reader.errors or category is None:
        raise InvalidRequest(f"The template {name!r} is not valid.", errors=reader.errors)
    return Template(name, language, category, body, header, footer, buttons, names)


def _read_header(reader: _Reader, entry: object) -> Header | None:
    if entry is None:
        return None
    if not isinstance(entry, Mapping):
        reader.refuse("header", "wrong-type", 'must be an object such as {"type": "IMAGE"}')
        return None
    if entry.get("type") == "NONE":
        return None
    kind = reader.choice(HeaderType, entry.get("type", ""), "header/type")
    text = reader.text(entry, "text", "header/text", longest=60, required=kind is HeaderType.TEXT)
    if kind is not HeaderType.TEXT and text:
        reader.refuse("header/text", "unknown-field", "only a TEXT header has text")
    reader.placeholders(text, "header/text", most=1)
    return Header(kind, text) if kind else None


def _read_buttons(reader: _Reader, entries: object) -> tuple[Button, ...]:
    if not isinstance(entries, Sequence) or isinstance(entries, str):
        reader.refuse("buttons", "wrong-type", "must be a list")
        return ()
    buttons = [_read_button(reader, entry, f"buttons/{index}") for index, entry in enumerate(entries)]
    known = tuple(button for button in buttons if button is not None)
    if len(entries) > _MOST_BUTTONS:
        reader.refuse("buttons", "too-many", f"{_MOST_BUTTONS} buttons at most")
    if sum(button.type is ButtonType.COPY_CODE for button in known) > 1:
        reader.refuse("buttons", "too-many", "one COPY_CODE button at most")
    if sum(button.type is ButtonType.URL and button.needs_parameter for button in known) > _MOST_URL_PARAMETERS:
        reader.refuse("buttons", "too-many", f"{_MOST_URL_PARAMETERS} URL buttons with a placeholder at most")
    return known


def _read_button(reader: _Reader, entry: object, field: str) -> Button | None:
    if not isinstance(entry, Mapping):
        reader.refuse(field, "wrong-type", 'must be an object such as {"type": "QUICK_REPLY", "text": "Sim"}')
        return None
    kind = reader.choice(ButtonType, entry.get("type", ""), f"{field}/type")
    text = reader.text(entry, "text", f"{field}/text", longest=25, required=kind is not ButtonType.COPY_CODE)
    url = reader.text(entry, "url", f"{field}/url", longest=2000, required=kind is ButtonType.URL)
    phone = reader.text(entry, "phone", f"{field}/phone", longest=20, required=kind is ButtonType.PHONE_NUMBER)
    if reader.placeholders(url, f"{field}/url", most=1) and not url.endswith("{{1}}"):
        reader.refuse(f"{field}/url", "placeholders", "a placeholder must end the URL")
    return Button(kind, text, url, phone) if kind else None
