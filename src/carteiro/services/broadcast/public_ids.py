"""Ids that may be shown around: short, and not to be guessed."""

import re
import secrets

from carteiro.services.api_keys import ALPHABET

LENGTH = 16
"""95 bits: nobody guesses one, and no two are equal."""
_SHAPE = re.compile(rf"[0-9A-Za-z]{{{LENGTH}}}")


def new_public_id() -> str:
    return "".join(secrets.choice(ALPHABET) for _ in range(LENGTH))


def is_public_id(text: str) -> bool:
    return _SHAPE.fullmatch(text) is not None
