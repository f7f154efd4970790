"""Where a callback may go, and when it is tried again."""

from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID

import pytest

from carteiro.domain.callbacks import (
    JITTER,
    RETRY_DELAYS_S,
    URL_MAX,
    batch_payload,
    check_callback_url,
    is_public,
    retry_delay_s,
)


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com/hooks?x=1",
        "http://example.com:8080",
        "https://93.184.216.34/",
        "https://[2606:2800:220:1:248:1893:25c8:1946]/x",
        "HTTPS://EXAMPLE.COM/",
    ],
)
def test_public_addresses_are_accepted(url: str) -> None:
    assert check_callback_url(url, allow_private=False) is None


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.com/x",
        "ftp://example.com/",
        "file:///etc/passwd",
        "https:///path",
        "https://",
        "https://user@example.com/",
        "https://user:secret@example.com/",
        "https://:@example.com/",
        "https://example.com:0/",
        "https://example.com:99999/",
        "https://exa mple.com/",
        "https://example.com/\r\nHost: other",
        "https://example.com\\@127.0.0.1/",
        "https://[::1/",
        "https://example.com/" + "x" * URL_MAX,
    ],
)
@pytest.mark.parametrize("allow_private", [True, False])
def test_what_is_no_plain_web_address_is_refused(url: str, allow_private: bool) -> None:
    assert check_callback_url(url, allow_private)


PRIVATE = [
    "127.0.0.1",
    "10.1.2.3",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "0.0.0.0",
    "224.0.0.1",
    "255.255.255.255",
    "::1",
    "::",
    "fe80::1",
    "fc00::1",
    "ff02::1",
    "::ffff:127.0.0.1",
    "::ffff:8.8.8.8",
    "::127.0.0.1",
    "64:ff9b::7f00:1",
    "2002:7f00:1::",
    "2001:db8::1",
]


@pytest.mark.parametrize("address", PRIVATE)
def test_an_address_that_is_not_public_is_refused_unless_allowed(address: str) -> None:
    url = f"http://[{address}]/" if ":" in address else f"http://{address}/"
    assert check_callback_url(url, allow_private=False) == "names an address that is not public"
    assert check_callback_url(url, allow_private=True) is None
    assert not is_public(address)


@pytest.mark.parametrize("host", ["localhost", "2130706433", "127.1", "0x7f.1", "example.com", ""])
def test_a_name_is_not_taken_for_a_public_address(host: str) -> None:
    assert not is_public(host)


def test_delays_grow_and_stay_within_their_jitter() -> None:
    delays = [retry_delay_s(attempt, 0.0) for attempt in range(1, 12)]
    assert delays == sorted(delays)
    assert delays[0] == RETRY_DELAYS_S[0]
    assert delays[-1] == RETRY_DELAYS_S[-1]
    assert retry_delay_s(2, 1.0) == pytest.approx(RETRY_DELAYS_S[1] * (1 + JITTER))
    assert retry_delay_s(2, -1.0) == pytest.approx(RETRY_DELAYS_S[1] * (1 - JITTER))


def test_the_body_names_the_batch_and_gives_times_in_utc() -> None:
    at = datetime(2026, 11, 2, 9, 0, tzinfo=timezone(timedelta(hours=-3)))
    body = batch_payload(
        event="batch.completed",
        settled_at=at,
        batch_id=UUID(int=1),
        reference="nov",
        status="completed",
        total=2,
        counts={"delivered": 2},
        money={"debited": 2, "charged": 2, "refunded": 0},
        error_code=None,
    )
    assert body["type"] == "batch.completed"
    assert body["timestamp"] == "2026-11-02T12:00:00Z"
    assert datetime.fromisoformat(body["timestamp"]) == at.astimezone(UTC)
    assert body["data"] == {
        "batch_id": "00000000-0000-0000-0000-000000000001",
        "reference": "nov",
        "status": "completed",
        "total": 2,
        "counts": {"delivered": 2},
        "money": {"debited": 2, "charged": 2, "refunded": 0},
        "error_code": None,
    }
