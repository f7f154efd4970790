"""API keys: made once, shown once, checked on every request.

A key reads `carteiro_live_<id>_<secret><check>`: a public id of 12 characters, a secret of 256 random bits in 43, and a
CRC-32 of all before it in 6, base 62 throughout. The check tells a mistyped key without asking the database, and lets
secret scanners tell a key from noise. A fast hash is right for the secret: 256 random bits cannot be guessed.
"""

import hmac
import re
import secrets
import zlib
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256

from carteiro.domain.errors import Unauthorized
from carteiro.storage import accounts, api_keys
from carteiro.storage.api_keys import ListedKey
from carteiro.storage.pool import Pool, transact

PREFIX = "carteiro_live_"
ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
ID_LENGTH, SECRET_LENGTH, CHECK_LENGTH = 12, 43, 6
_SHAPE = re.compile(
    rf"{PREFIX}([0-9A-Za-z]{{{ID_LENGTH}}})_([0-9A-Za-z]{{{SECRET_LENGTH}}})([0-9A-Za-z]{{{CHECK_LENGTH}}})"
)

SCOPES = (
    "batches:write",
    "batches:read",
    "broadcast:send",
    "broadcast:read",
    "group-link:send",
    "group-link:read",
    "capacity:read",
    "credits:read",
    "suppressions:write",
    "suppressions:read",
)
IMPLIED_BY = {"broadcast:read": "broadcast:send", "group-link:read": "group-link:send"}
"""Scope -> another one that is enough for it: who sends may look at what came of it."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who makes a request."""

    key_id: str
    account_id: str
    billing_account_id: str
    scopes: frozenset[str]
    owner_id: str | None = None
    """The person of the directory on whose behalf the key speaks."""

    @property
    def actor(self) -> str:
        """The name in audit rows."""
        return f"key:{self.key_id}"

    def may(self, scope: str) -> bool:
        """Whether the key has the scope, or one that is enough for it."""
        return scope in self.scopes or IMPLIED_BY.get(scope) in self.scopes


def generate() -> tuple[str, str]:
    """A new (id, key)."""
    id = "".join(secrets.choice(ALPHABET) for _ in range(ID_LENGTH))
    body = f"{PREFIX}{id}_{_base62(secrets.randbits(256), SECRET_LENGTH)}"
    return id, body + _check(body)


def parse(key: str) -> tuple[str, bytes] | None:
    """(id, SHA-256 of the secret) of a well-formed key; None for anything else, a typing error included."""
    found = _SHAPE.fullmatch(key)
    if found is None or _check(key[:-CHECK_LENGTH]) != found[3]:
        return None
    return found[1], sha256(found[2].encode()).digest()


async def authenticate(pool: Pool, key: str) -> Caller:
    """The caller behind a key. Raises Unauthorized, in the same words whatever of it is wrong except for its form."""
    parsed = parse(key)
    if parsed is None:
        raise Unauthorized("The API key is malformed: it was cut short or mistyped.")
    id, secret_hash = parsed
    async with pool.connection() as conn:
        stored = await api_keys.find(conn, id)
        if stored is None or not hmac.compare_digest(stored.secret_hash, secret_hash) or not stored.valid:
            raise Unauthorized("The API key is unknown, revoked or expired.")
        if stored.stale:
            await api_keys.touch(conn, id)
    return Caller(id, stored.account_id, stored.billing_account_id, frozenset(stored.scopes), stored.owner_id)


async def create(
    pool: Pool,
    account_id: str,
    *,
    scopes: tuple[str, ...],
    name: str = "",
    expires_at: datetime | None = None,
    owner_id: str | None = None,
) -> str:
    """Make a key and return it: nobody can read it again. `owner_id`: whom of the directory it speaks for.

    Raises LookupError for an unknown account, ValueError for an unknown scope.
    """
    unknown = [scope for scope in scopes if scope not in SCOPES]
    if unknown or not scopes:
        raise ValueError(f"scopes are some of {', '.join(SCOPES)}")
    id, key = generate()
    parsed = parse(key)
    assert parsed is not None
    async with transact(pool) as conn:
        if await accounts.read_account(conn, account_id) is None:
            raise LookupError(f"there is no account {account_id}")
        await api_keys.add(
            conn,
            id=id,
            account_id=account_id,
            name=name,
            secret_hash=parsed[1],
            scopes=scopes,
            expires_at=expires_at,
            owner_id=owner_id,
        )
    return key


async def revoke(pool: Pool, id: str) -> bool:
    """Effective for the next request. False: unknown, or revoked before."""
    async with transact(pool) as conn:
        return await api_keys.revoke(conn, id)


async def read_list(pool: Pool, account_id: str | None = None) -> list[ListedKey]:
    async with pool.connection() as conn:
        return await api_keys.read_list(conn, account_id)


def _check(body: str) -> str:
    return _base62(zlib.crc32(body.encode()), CHECK_LENGTH)


def _base62(number: int, length: int) -> str:
    digits = []
    for _ in range(length):
        number, digit = divmod(number, 62)
        digits.append(ALPHABET[digit])
    return "".join(reversed(digits))
