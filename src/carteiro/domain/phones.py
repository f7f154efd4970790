"""Whose phone is it: an identity to compare by, and the address to send to.

WhatsApp ids of Brazilian mobiles may lack the ninth digit, whatever was sent. So the identity of a Brazilian mobile is
55, the area code and its last eight digits, while the address keeps (or is given) the nine. Brazilian landlines have
the same eight digits as some mobiles: their identity has a 0 after the area code, where no subscriber number has one.
Every other number is its own identity, all of its E.164 digits.

How a spelling is read, in this order:

1. with + or a leading 00: international;
2. a leading 0: a Brazilian national number, perhaps with a carrier's two digits (0 15 11 98765-4321);
3. 10 or 11 digits that are an area code of Brazil and a subscriber number as they exist there: Brazilian;
4. anything else: international without its +.

By rule 3 a foreign number of 10 or 11 digits that also looks Brazilian must be written with its +.
"""

import re
from collections.abc import Sequence
from enum import StrEnum

import msgspec
import phonenumbers

LONGEST_SPELLING = 40
_AREA = "(?:[14689][1-9]|2[12478]|3[1-578]|5[13-5]|7[13-579])"
_PLAIN_MOBILE = re.compile(rf"\+?55({_AREA})9([0-9]{{8}})")
_MOBILE = re.compile(rf"({_AREA})(?:9([0-9]{{8}})|([6-9][0-9]{{7}}))")
_LANDLINE = re.compile(rf"({_AREA})([2-5][0-9]{{7}})")
_SPELLING = re.compile(r"\(?(\+?)([0-9()\s.\-/\u2010-\u2015\u2212\u00ad\u200b\u200e\u202a\u202c\u2060]*)")
_NOT_DIGITS = re.compile(r"[^0-9]+")


class Phone(msgspec.Struct, frozen=True, gc=False):
    """A struct, because there are a hundred thousand in a request: it costs half of a named tuple."""

    identity: int
    """What to compare by: dedupe, suppression, inbound."""
    address: str
    """E.164 digits without the plus."""

    @property
    def e164(self) -> str:
        """The spelling that always reads back as this phone."""
        return f"+{self.address}"


class PhoneProblem(StrEnum):
    """Why a spelling is not a phone. The value is the code that a client sees, `remedy` the words."""

    EMPTY = "phone-empty"
    MALFORMED = "phone-malformed"
    TOO_SHORT = "phone-too-short"
    TOO_LONG = "phone-too-long"
    INVALID = "phone-invalid"

    @property
    def remedy(self) -> str:
        return _REMEDIES[self]


_REMEDIES = {
    PhoneProblem.EMPTY: "There is no phone number. Give one such as +5511987654321.",
    PhoneProblem.MALFORMED: "This is not a phone number: only digits, spaces and + ( ) - . / may stand in it.",
    PhoneProblem.TOO_SHORT: "The number is too short. Give it whole, with its area code: +5511987654321.",
    PhoneProblem.TOO_LONG: "The number is too long. Give one number such as +5511987654321.",
    PhoneProblem.INVALID: "No such number exists. Check its area code and digits; abroad, its + and country code.",
}


def parse(raw: str) -> Phone | PhoneProblem:
    """Read one spelling. Never raises."""
    plain = _PLAIN_MOBILE.fullmatch(raw)
    if plain is not None:
        area, last_eight = plain.groups()
        return Phone(int(f"55{area}{last_eight}"), f"55{area}9{last_eight}")
    return _parse_any(raw)


def _parse_any(raw: str) -> Phone | PhoneProblem:
    if not raw or raw.isspace():
        return PhoneProblem.EMPTY
    if len(raw) > LONGEST_SPELLING:
        return PhoneProblem.TOO_LONG
    spelling = _SPELLING.fullmatch(raw.strip())
    if spelling is None:
        return PhoneProblem.MALFORMED
    digits = _NOT_DIGITS.sub("", spelling[2])
    if not digits:
        return PhoneProblem.MALFORMED
    if spelling[1]:
        return _international(digits)
    if digits.startswith("00"):
        return _international(digits[2:])
    if digits.startswith("0"):
        return _national(digits[1:]) or _national(digits[3:]) or _why_not(digits[1:])
    return _national(digits) or _international(digits)


def _national(digits: str) -> Phone | None:
    """Area code and subscriber number of Brazil."""
    mobile = _MOBILE.fullmatch(digits)
    if mobile is not None:
        area, last_eight = mobile[1], mobile[2] or mobile[3]
        return Phone(int(f"55{area}{last_eight}"), f"55{area}9{last_eight}")
    landline = _LANDLINE.fullmatch(digits)
    if landline is not None:
        area, number = landline.groups()
        return Phone(int(f"55{area}0{number}"), f"55{area}{number}")
    return None


def _international(digits: str) -> Phone | PhoneProblem:
    if digits.startswith("55"):
        brazilian = _national(digits[2:].removeprefix("0"))
        if brazilian is not None:
            return brazilian
    try:
        number = phonenumbers.parse(f"+{digits}")
    except phonenumbers.NumberParseException:
        return _why_not(digits)
    if not phonenumbers.is_valid_number(number):
        return _why_not(digits)
    address = phonenumbers.format_number(number, phonenumbers.PhoneNumberFormat.E164).removeprefix("+")
    # The long way round (a country code followed by a trunk 0, say) may lead to a Brazilian number after all.
    brazilian = _national(address[2:]) if address.startswith("55") else None
    return brazilian or Phone(int(address), address)


def _why_not(digits: str) -> PhoneProblem:
    if len(digits) < 10:
        return PhoneProblem.TOO_SHORT
    return PhoneProblem.TOO_LONG if len(digits) > 15 else PhoneProblem.INVALID


def dedupe(phones: Sequence[Phone | PhoneProblem]) -> tuple[dict[int, Phone], list[tuple[int, int]]]:
    """The first of each identity by its position, in order; and (position, position of its first) of each duplicate.

    What is not a phone is in neither.
    """
    first: dict[int, int] = {}
    kept: dict[int, Phone] = {}
    duplicates: list[tuple[int, int]] = []
    for position, phone in enumerate(phones):
        if not isinstance(phone, Phone):
            continue
        earlier = first.setdefault(phone.identity, position)
        if earlier == position:
            kept[position] = phone
        else:
            duplicates.append((position, earlier))
    return kept, duplicates
