"""Bodies that are read by lines: NDJSON and CSV. A line stands alone, so that what is wrong with it has a number."""

import csv
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

import msgspec

from carteiro.api.bodies import refuse_nul
from carteiro.api.problems import decoding_error
from carteiro.domain.contacts import Contact
from carteiro.domain.errors import FieldError, InvalidRequest
from carteiro.services.create import Lines

LINE_MAX = 64 * 1024
"""Bytes. A contact takes about 80; WhatsApp's longest message has a thousand characters."""
BLOCK_BYTES = 256 * 1024
"""About what is decoded, screened and loaded together."""

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""Spreadsheets begin a UTF-8 file with it."""
_SPECIAL = re.compile('["\0\r]')
"""What a line of CSV may not hold to be cut at its delimiters."""
_decode = msgspec.json.Decoder(Contact).decode


class Block(NamedTuple):
    """Some whole lines."""

    first_number: int
    text: bytes
    """Without the end of the last line."""

    def lines(self) -> list[bytes]:
        """Raises InvalidRequest for one that is too long."""
        lines = self.text.split(b"\n")
        if max(map(len, lines)) > LINE_MAX:
            place = next(place for place, line in enumerate(lines) if len(line) > LINE_MAX)
            raise _too_long(self.first_number + place)
        return lines


class LineReader:
    """Cuts a body into lines, and holds no more than a block of them."""

    def __init__(self, pieces: AsyncIterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = b""
        self._number = 0
        """Lines given out."""

    async def first(self) -> bytes:
        """The first line; empty when there is none. Raises InvalidRequest when it is too long."""
        came = self._rest
        while b"\n" not in came and len(came) <= LINE_MAX:
            piece = await anext(self._pieces, None)
            if piece is None:
                break
            came += piece
        line, _, self._rest = came.partition(b"\n")
        if len(line) > LINE_MAX:
            raise _too_long(1)
        self._number = 1
        return line.removeprefix(BYTE_ORDER_MARK).strip()

    async def blocks(self) -> AsyncIterator[Block]:
        """What comes after it, in blocks of about BLOCK_BYTES. Raises InvalidRequest for a line without an end."""
        came, size = [self._rest], len(self._rest)
        async for piece in self._pieces:
            came.append(piece)
            size += len(piece)
            if size < BLOCK_BYTES:
                continue
            text, ended, rest = b"".join(came).rpartition(b"\n")
            came, size = [rest], len(rest)
            if ended:
                yield self._block(text)
            if size > LINE_MAX:
                raise _too_long(self._number + 1)
        if text := b"".join(came).removesuffix(b"\n"):
            yield self._block(text)

    def _block(self, text: bytes) -> Block:
        block = Block(self._number + 1, text)
        self._number += text.count(b"\n") + 1
        return block


def _too_long(number: int) -> InvalidRequest:
    told = f"A line has {LINE_MAX // 1024} KiB at most."
    return InvalidRequest("A line is too long.", errors=[FieldError("", "line-too-long", told, number)])


def read_ndjson(block: Block) -> Lines:
    """A contact as JSON on each line. Blank lines count and say nothing."""
    lines = block.lines()
    if b"\\u0000" not in block.text:
        with suppress(msgspec.DecodeError):
            return Lines(
                [_decode(line) for line in lines], range(block.first_number, block.first_number + len(lines)), []
            )
    return _read_each(block.first_number, lines, _read_contact)


def _numbers(block: Block, lines: Sequence[object]) -> range:
    return range(block.first_number, block.first_number + len(lines))


def _read_contact(line: bytes) -> Contact:
    """Raises InvalidRequest or msgspec.DecodeError."""
    refuse_nul(line)
    return _decode(line)


def _read_each(first_number: int, lines: Sequence[bytes], read: Callable[[bytes], Contact]) -> Lines:
    """One by one, once a line of the block is known to be wrong or blank."""
    contacts: list[Contact] = []
    numbers: list[int] = []
    faults: list[FieldError] = []
    for number, line in enumerate(lines, first_number):
        if not line.strip():
            continue
        try:
            contacts.append(read(line))
        except msgspec.ValidationError as error:
            told = decoding_error(error)
            faults.append(FieldError(told.pointer, told.code, told.detail, number))
        except (msgspec.DecodeError, InvalidRequest, ValueError) as error:
            faults.append(FieldError("", "line-malformed", str(error), number))
        else:
            numbers.append(number)
    return Lines(contacts, numbers, faults)


class CsvReader:
    """A contact on each line, in the columns that the header names.

    Separated by commas or, as spreadsheets do in Brazil, semicolons; quoted as in RFC 4180, without line breaks inside
    quotes: WhatsApp takes none in a parameter.
    """

    def __init__(self, header: bytes) -> None:
        """Raises InvalidRequest for a header that names other columns."""
        try:
            text = header.decode()
        except UnicodeDecodeError:
            raise _bad_header("The file is not UTF-8.") from None
        self._delimiter = ";" if text.count(";") > text.count(",") else ","
        names = [name.strip().lower() for name in next(csv.reader([text], delimiter=self._delimiter), [])]
        self._width = len(names)
        places = {name: place for place, name in enumerate(names)}
        if len(places) != len(names):
            raise _bad_header("A column is named twice.")
        if "phone" not in places:
            raise _bad_header("The first line names the columns, and one of them is phone.")
        self._phone = places.pop("phone")
        self._texts = {name: places.pop(name) for name in ("media_url", "filename", "header_text") if name in places}
        self._placeholders = _numbered(places, "")
        self._buttons = _numbered(places, "button_")
        if places:
            raise _bad_header(
                f"There is no column {min(places)}. There are: phone, 1, 2 ... (placeholders), media_url, filename, "
                "header_text, button_1, button_2 ..."
            )

    def __call__(self, block: Block) -> Lines:
        lines = block.lines()
        with suppress(UnicodeDecodeError):
            text = block.text.decode().replace("\r\n", "\n").removesuffix("\r")
            if not _SPECIAL.search(text):
                rows = [line.split(self._delimiter) for line in text.split("\n")]
                if {*map(len, rows)} == {self._width} and [""] not in rows:
                    return Lines([self._contact(row) for row in rows], _numbers(block, rows), [])
        return _read_each(block.first_number, lines, self._read)

    def _read(self, line: bytes) -> Contact:
        """Raises ValueError."""
        try:
            text = line.decode().removesuffix("\r")
        except UnicodeDecodeError:
            raise ValueError("The line is not UTF-8.") from None
        if "\0" in text:
            raise ValueError("The NUL character may not stand in any text.")
        try:
            [row] = csv.reader([text], delimiter=self._delimiter, strict=True)
        except csv.Error:
            raise ValueError("A quote is left open, or stands inside a field without being doubled.") from None
        if len(row) != self._width:
            raise ValueError(f"The line has {len(row)} fields and the first line {self._width}.")
        return self._contact(row)

    def _contact(self, row: list[str]) -> Contact:
        placeholders = [row[place] for place in self._placeholders]
        if not self._texts and not self._buttons:
            return Contact(row[self._phone], placeholders)
        texts = {name: row[place] or None for name, place in self._texts.items()}
        return Contact(row[self._phone], placeholders, **texts, buttons=[row[place] for place in self._buttons])


def _numbered(places: dict[str, int], prefix: str) -> list[int]:
    """Take the columns `prefix`1, 2 ... out; their places in order. Raises InvalidRequest for a gap."""
    found: list[int] = []
    while (name := f"{prefix}{len(found) + 1}") in places:
        found.append(places.pop(name))
    return found


def _bad_header(detail: str) -> InvalidRequest:
    return InvalidRequest("The first line is not usable.", errors=[FieldError("", "csv-header", detail, 1)])
