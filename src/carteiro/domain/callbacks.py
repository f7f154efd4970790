"""Callbacks to the client: where they may go, what they say, when they are tried again."""

from collections.abc import Mapping
from datetime import UTC, datetime
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

URL_MAX = 2_000
"""Characters."""

RETRY_DELAYS_S = (5.0, 30.0, 120.0, 600.0, 3_600.0, 7_200.0, 14_400.0, 28_800.0)
"""After the first failure, the second, and so on; the last one repeats."""
JITTER = 0.2
"""Delays are spread by this share up and down, so that a receiver's outage does not end in a burst."""

_GLOBAL_UNICAST = IPv6Network("2000::/3")
_SIX_TO_FOUR = IPv6Network("2002::/16")


def check_callback_url(url: str, allow_private: bool) -> str | None:
    """What is wrong with a callback address, in words; None when it is fine.

    Names are judged when a callback is sent, by every address that they resolve to at that moment.
    """
    if len(url) > URL_MAX:
        return f"is longer than {URL_MAX} characters"
    if any(character <= " " or character == "\x7f" or character == "\\" for character in url):
        return "holds a space, a backslash or a control character"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return "is not a URL"
    if parts.scheme not in {"http", "https"}:
        return "must begin with http:// or https://"
    if not host or port == 0:
        return "names no host"
    if parts.username is not None or parts.password is not None:
        return "must not hold a user or a password"
    if not allow_private and is_literal(host) and not is_public(host):
        return "names an address that is not public"
    return None


def is_literal(host: str) -> bool:
    """Whether a host is an IP address rather than a name."""
    return _address(host) is not None


def is_public(host: str) -> bool:
    """Whether an IP address belongs to the public internet, for one receiver; False for anything else.

    IPv6 is judged narrowly: what stands for an IPv4 address (mapped, compatible, 6to4, NAT64) could lead anywhere.
    """
    address = _address(host)
    if address is None or not address.is_global or address.is_multicast:
        return False
    return isinstance(address, IPv4Address) or (address in _GLOBAL_UNICAST and address not in _SIX_TO_FOUR)


def _address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def batch_payload(
    *,
    event: str,
    settled_at: datetime,
    batch_id: UUID,
    reference: str | None,
    status: str,
    total: int,
    counts: Mapping[str, int],
    money: Mapping[str, int],
    error_code: str | None,
) -> dict[str, Any]:
    """The body of a callback about a settled batch. `counts` per message state sum to `total`, `money` in credits."""
    return {
        "type": event,
        "timestamp": settled_at.astimezone(UTC).isoformat().replace("+00:00", "Z"),
        "data": {
            "batch_id": str(batch_id),
            "reference": reference,
            "status": status,
            "total": total,
            "counts": dict(counts),
            "money": dict(money),
            "error_code": error_code,
        },
    }


def retry_delay_s(attempt: int, spread: float) -> float:
    """How long to wait after failure number `attempt` (from 1). `spread` in [-1, 1] says where in the jitter."""
    delay_s = RETRY_DELAYS_S[min(attempt, len(RETRY_DELAYS_S)) - 1]
    return delay_s * (1 + JITTER * spread)
