"""The real client against the simulator: every fault, and what it means."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from carteiro.domain.outcomes import (
    Accepted,
    Ambiguous,
    FreeForm,
    Kind,
    NotSent,
    Outcome,
    RefusedTogether,
    Rejected,
    Throttled,
    followup_key,
    message_key,
)
from carteiro.providers.contract import Provider
from carteiro.providers.registry import open_provider
from carteiro.providers.simulator.magic import MAGIC
from tests.providers.driving import Driver
from tests.providers.infobip.reports import BATCH, outgoing

KEY = message_key(BATCH, 1)


async def submit(provider: Provider, seq: int = 1, to: str = "5531987650001") -> Outcome:
    (outcome,) = await provider.submit([outgoing(seq, to)])
    return outcome


async def test_a_message_arrives_as_it_was_given(provider: Provider, simulator: Driver) -> None:
    assert await submit(provider) == Accepted(KEY)
    (call,) = await simulator.calls()
    assert call["sender"] == "5511400012345"
    assert call["to"] == "5531987650001"
    assert call["message_id"] == KEY
    assert call["template"] == "order_update_v1"
    assert call["placeholders"] == ["Ana", "8812"]
    assert call["accepted"]


async def test_outcomes_come_in_the_order_of_the_messages(provider: Provider, simulator: Driver) -> None:
    await simulator.add_fault({"answer": "reject", "status_id": 52}, to="0002")
    messages = [outgoing(seq, f"553198765000{seq}") for seq in (1, 2, 3)]
    first, second, third = await provider.submit(messages)
    assert first == Accepted(message_key(BATCH, 1))
    assert second == Rejected("STATUS_52", Kind.CONTACT, "REJECTED_DESTINATION")
    assert third == Accepted(message_key(BATCH, 3))


async def test_several_messages_are_one_request_and_fail_as_one(provider: Provider, simulator: Driver) -> None:
    senders = ("5511400012345", "5511400012346")
    messages = [replace(outgoing(seq), sender=senders[seq % 2]) for seq in range(1, 101)]
    assert await provider.submit(messages) == [Accepted(message_key(BATCH, seq)) for seq in range(1, 101)]
    calls = await simulator.calls()
    assert len({call["request"] for call in calls}) == 1
    assert [call["sender"] for call in calls] == [senders[seq % 2] for seq in range(1, 101)]
    for plan, outcome in (
        ({"answer": "http", "http_status": 400, "error": "BAD_REQUEST"}, RefusedTogether("HTTP_400", 3)),
        ({"answer": "http", "http_status": 413, "envelope": "none"}, RefusedTogether("HTTP_413", 3)),
        ({"answer": "http", "http_status": 401, "error": "UNAUTHORIZED"}, Rejected("HTTP_401", Kind.ACCOUNT)),
        ({"answer": "http", "http_status": 429, "error": "TOO_MANY_REQUESTS"}, Throttled()),
        ({"answer": "http", "http_status": 503, "error": "SERVICE_UNAVAILABLE"}, NotSent("HTTP_503")),
        ({"answer": "reset", "accept": True}, Ambiguous("CONNECTION_LOST")),
    ):
        await simulator.add_fault(plan, to="0666")
        told = await provider.submit([outgoing(201), outgoing(202, "5531987650666"), outgoing(203)])
        assert [replace(one, detail="") if hasattr(one, "detail") else one for one in told] == [outcome] * 3, plan
        await simulator.ask("DELETE", "faults")


# Plan at the simulator, what the client makes of it, whether the message was taken.
FAULTS: dict[str, tuple[dict[str, Any], Outcome, bool]] = {
    "429": (
        {"answer": "http", "http_status": 429, "error": "TOO_MANY_REQUESTS"},
        Throttled(),
        False,
    ),
    "429, seconds": ({"answer": "http", "http_status": 429, "retry_after": "7"}, Throttled(7.0), False),
    "429, zero": ({"answer": "http", "http_status": 429, "retry_after": "0"}, Throttled(), False),
    "429, absurd": ({"answer": "http", "http_status": 429, "retry_after": "86400000"}, Throttled(900.0), False),
    "429, unreadable": ({"answer": "http", "http_status": 429, "retry_after": "later"}, Throttled(), False),
    "500, envelope": (
        {"answer": "http", "text": "Oops"},
        NotSent("HTTP_500", "GENERAL_ERROR; Oops"),
        False,
    ),
    "503, newer envelope": (
        {"answer": "http", "http_status": 503, "envelope": "newer", "error": "E503", "text": "Oops"},
        NotSent("HTTP_503", "E503; Oops"),
        False,
    ),
    "502, no envelope": (
        {"answer": "http", "http_status": 502, "envelope": "none"},
        Ambiguous("HTTP_502", "no envelope"),
        False,
    ),
    "504, no envelope, taken": (
        {"answer": "http", "http_status": 504, "envelope": "none", "accept": True},
        Ambiguous("HTTP_504", "no envelope"),
        True,
    ),
    "reset": ({"answer": "reset"}, Ambiguous("CONNECTION_LOST", "ClientOSError"), False),
    "reset, taken": ({"answer": "reset", "accept": True}, Ambiguous("CONNECTION_LOST", "ClientOSError"), True),
    "closed, taken": (
        {"answer": "close", "accept": True},
        Ambiguous("CONNECTION_LOST", "ServerDisconnectedError"),
        True,
    ),
    "never answers": ({"answer": "hang"}, Ambiguous("TIMEOUT", "no answer within the deadline"), False),
    "never answers, taken": (
        {"answer": "hang", "accept": True},
        Ambiguous("TIMEOUT", "no answer within the deadline"),
        True,
    ),
    "not JSON, taken": (
        {"answer": "garbage", "accept": True},
        Ambiguous("UNREADABLE_ANSWER", "2xx without a list of messages"),
        True,
    ),
    "no row, taken": (
        {"answer": "no_row", "accept": True},
        Ambiguous("MISSING_ROW", "2xx without a row for this message"),
        True,
    ),
    "400": (
        {"answer": "http", "http_status": 400, "error": "BAD_REQUEST", "text": "Bad request"},
        Rejected("HTTP_400", Kind.REQUEST, "BAD_REQUEST; Bad request"),
        False,
    ),
    "400, template": (
        {"answer": "http", "http_status": 400, "error": "BAD_REQUEST", "text": "Template not found"},
        Rejected("HTTP_400", Kind.TEMPLATE, "BAD_REQUEST; Template not found"),
        False,
    ),
    "401": (
        {"answer": "http", "http_status": 401, "error": "UNAUTHORIZED", "text": "Invalid login details"},
        Rejected("HTTP_401", Kind.ACCOUNT, "UNAUTHORIZED; Invalid login details"),
        False,
    ),
    "403": (
        {"answer": "http", "http_status": 403, "error": "FORBIDDEN", "text": "Forbidden"},
        Rejected("HTTP_403", Kind.ACCOUNT, "FORBIDDEN; Forbidden"),
        False,
    ),
    "redirect": (
        {"answer": "http", "http_status": 308},
        Rejected("HTTP_308", Kind.ACCOUNT, "redirected"),
        False,
    ),
    "contact": (
        {"answer": "reject", "status_id": 52},
        Rejected("STATUS_52", Kind.CONTACT, "REJECTED_DESTINATION"),
        False,
    ),
    "template": (
        {"answer": "reject", "status_id": 4, "error_id": 7009},
        Rejected("EC_7009", Kind.TEMPLATE, "EC_INVALID_TEMPLATE"),
        False,
    ),
    "sender": (
        {"answer": "reject", "status_id": 4, "error_id": 7016},
        Rejected("EC_7016", Kind.SENDER, "EC_SPAM_RATE"),
        False,
    ),
    "rate": ({"answer": "reject", "status_id": 4, "error_id": 7017}, Throttled(code="EC_7017"), False),
    "transient": (
        {"answer": "reject", "status_id": 21},
        NotSent("STATUS_21", "REJECTED_SYSTEM_ERROR"),
        False,
    ),
    "duplicate": (
        {"answer": "reject", "status_id": 23},
        Ambiguous("STATUS_23", "REJECTED_DUPLICATE_MESSAGE_ID", duplicate=True),
        False,
    ),
}


@pytest.mark.parametrize("name", FAULTS)
async def test_a_fault_and_what_it_means(name: str, provider: Provider, simulator: Driver) -> None:
    plan, outcome, taken = FAULTS[name]
    await simulator.add_fault(plan)
    assert await submit(provider) == outcome
    # Exactly one call: the client never sends again by itself.
    (call,) = await simulator.calls()
    assert call["accepted"] is taken


async def test_a_fault_on_a_used_connection_is_not_retried_either(provider: Provider, simulator: Driver) -> None:
    assert await submit(provider, 1) == Accepted(KEY)
    await simulator.add_fault({"answer": "close", "accept": True})
    assert isinstance(await submit(provider, 2), Ambiguous)
    assert [call["accepted"] for call in await simulator.calls()] == [True, True]


async def test_retry_after_as_a_date(provider: Provider, simulator: Driver) -> None:
    await simulator.add_fault({"answer": "http", "http_status": 429, "retry_after": "date+60"})
    outcome = await submit(provider)
    assert isinstance(outcome, Throttled)
    assert outcome.retry_after_s is not None
    assert 50 < outcome.retry_after_s <= 60


async def test_a_slow_answer_is_waited_for(provider: Provider, simulator: Driver) -> None:
    await simulator.add_fault({"delay_ms": 200})
    assert await submit(provider) == Accepted(KEY)


async def test_the_id_sent_again_is_told_as_a_duplicate(provider: Provider, simulator: Driver) -> None:
    assert await submit(provider) == Accepted(KEY)
    assert await submit(provider) == Ambiguous("STATUS_23", "REJECTED_DUPLICATE_MESSAGE_ID", duplicate=True)
    await simulator.ask("POST", "settings", {"dedupe": False})
    assert await submit(provider) == Accepted(KEY)


async def test_the_key_is_sent(provider: Provider, simulator: Driver) -> None:
    await simulator.ask("POST", "settings", {"api_key": "key"})
    assert await submit(provider) == Accepted(KEY)
    await simulator.ask("POST", "settings", {"api_key": "another"})
    assert await submit(provider) == Rejected("HTTP_401", Kind.ACCOUNT, "UNAUTHORIZED; Invalid login details")


async def test_waiting_for_a_connection_is_not_sending(provider: Provider, simulator: Driver) -> None:
    await simulator.add_fault({"answer": "hang"})
    outcomes = await asyncio.gather(*(submit(provider, seq) for seq in range(1, 6)))
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Ambiguous"] * 4 + ["NotSent"]
    assert NotSent("CONNECT_FAILED", "ConnectionTimeoutError") in outcomes
    assert len(await simulator.calls()) == 4


async def answer_of(reply: bytes, *, read_first: bool = True, scheme: str = "http") -> Outcome:
    """What the client makes of a server that replies with these bytes and closes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if read_first:
            await reader.readuntil(b"}]}")
        writer.write(reply)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        return await submit_to(f"{scheme}://127.0.0.1:{port}")


async def submit_to(address: str) -> Outcome:
    provider = open_provider("infobip", base_url=address, api_key="key", timeout_s=2.0)
    try:
        return await submit(provider)
    finally:
        await provider.close()


@pytest.mark.parametrize(
    "reply",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n" + b'{"messages": [',
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{",
        b"SSH-2.0-OpenSSH_9.9\r\n",
    ],
)
async def test_a_broken_answer_is_ambiguous(reply: bytes) -> None:
    assert isinstance(await answer_of(reply), Ambiguous)


async def test_a_connection_closed_at_once_is_ambiguous_because_we_may_have_written() -> None:
    assert isinstance(await answer_of(b"", read_first=False), Ambiguous)


async def test_a_refused_connection_is_not_sent(unused_port: int) -> None:
    outcome = await submit_to(f"http://127.0.0.1:{unused_port}")
    assert outcome == NotSent("CONNECT_FAILED", "ClientConnectorError")


async def test_a_failed_handshake_is_not_sent() -> None:
    outcome = await answer_of(b"HTTP/1.1 400 Bad Request\r\n\r\n", read_first=False, scheme="https")
    assert isinstance(outcome, NotSent)
    assert outcome.code == "CONNECT_FAILED"


async def test_an_unknown_host_is_not_sent() -> None:
    outcome = await submit_to("http://no-such-host.invalid")
    assert isinstance(outcome, NotSent)


@pytest.fixture
async def unused_port() -> int:
    async with await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0) as server:
        port: int = server.sockets[0].getsockname()[1]
    return port


# First call, and the second one to the same number with another message.
MAGIC_OUTCOMES: dict[str, tuple[type[Outcome], type[Outcome]]] = {
    **dict.fromkeys(["9901", "9902", "9903", "9904", "9905", "9906", "9948"], (Throttled, Accepted)),
    **dict.fromkeys(["9911", "9912", "9944"], (NotSent, Accepted)),
    **dict.fromkeys(["9913", "9914", "9921", "9922", "9923", "9924", "9925", "9926"], (Ambiguous, Accepted)),
    **dict.fromkeys(["9927", "9929"], (Ambiguous, Accepted)),
    **dict.fromkeys(["9932", "9933", "9934", "9935", "9942", "9943", "9946", "9947"], (Rejected, Accepted)),
    **dict.fromkeys(["9931", "9941", "9949"], (Rejected, Rejected)),
    "9945": (Ambiguous, Ambiguous),
}
REPORTED_LATER = [digits for digits in MAGIC if digits > "9950"]


def test_every_magic_number_is_tried_here() -> None:
    assert sorted([*MAGIC_OUTCOMES, *REPORTED_LATER, "9928"]) == sorted(MAGIC)


@pytest.mark.parametrize("digits", MAGIC_OUTCOMES)
async def test_a_magic_number_and_what_it_means(digits: str, provider: Provider) -> None:
    first = await submit(provider, 1, f"551191234{digits}")
    second = await submit(provider, 2, f"551191234{digits}")
    assert (type(first), type(second)) == MAGIC_OUTCOMES[digits]


@pytest.mark.parametrize("digits", REPORTED_LATER)
async def test_a_magic_number_for_reports_lets_the_send_through(digits: str, provider: Provider) -> None:
    assert await submit(provider, 1, f"551191234{digits}") == Accepted(KEY)


FREE: dict[str, dict[str, Any]] = {
    "text": {"text": "Recebido!"},
    "image": {"media": {"type": "IMAGE", "mediaUrl": "https://example.com/1.png", "caption": "Mapa"}},
    "video": {"media": {"type": "VIDEO", "mediaUrl": "https://example.com/1.mp4"}},
    "document": {"media": {"type": "DOCUMENT", "mediaUrl": "https://example.com/1.pdf", "filename": "1.pdf"}},
}


def free_form(to: str = "5531987650001", **said: Any) -> FreeForm:
    return FreeForm(BATCH, 1, "5511400012345", to, **(said or FREE["text"]))


@pytest.mark.parametrize("kind", FREE)
async def test_a_message_that_is_no_template_is_sent_under_its_own_key(
    kind: str, provider: Provider, simulator: Driver
) -> None:
    assert await provider.submit_free(free_form(**FREE[kind])) == Accepted(followup_key(BATCH, 1))
    (call,) = await simulator.calls()
    said = FREE[kind].get("text") or FREE[kind]["media"]["mediaUrl"]
    assert (call["message_id"], call["template"], call["placeholders"]) == (followup_key(BATCH, 1), "", [said])


@pytest.mark.parametrize("digits", MAGIC_OUTCOMES)
async def test_faults_mean_the_same_where_it_is_no_template(digits: str, provider: Provider) -> None:
    outcome = await provider.submit_free(free_form(f"551191234{digits}"))
    assert type(outcome) is MAGIC_OUTCOMES[digits][0]
