"""Whether a webhook comes from who holds the secret. Pure."""

import hashlib
import hmac
from collections.abc import Iterable

_SCHEME = "sha256="


def is_signed(body: bytes, signature: str | None, secrets: Iterable[str]) -> bool:
    """Whether `signature` (`sha256=` and hex) is the HMAC of exactly these bytes under one of the secrets.

    Several of them are for rotation. All are tried, in constant time each.
    """
    if signature is None or not signature.startswith(_SCHEME):
        return False
    given = signature.removeprefix(_SCHEME).encode()
    right = [hmac.new(secret.encode(), body, hashlib.sha256).hexdigest().encode() for secret in secrets]
    return sum(hmac.compare_digest(one, given) for one in right) > 0


def is_token(given: str | None, token: str | None) -> bool:
    """Whether both are there and equal."""
    return given is not None and token is not None and hmac.compare_digest(given.encode(), token.encode())
