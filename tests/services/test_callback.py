"""Callbacks against a real server: signed, repeated until taken, and never sent where they must not go."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import pytest
from aiohttp import web
from aiohttp.abc import AbstractResolver, ResolveResult
from standardwebhooks import Webhook

from carteiro.services import callback
from carteiro.services.callback import replay, send_due
from carteiro.services.callback_client import ANSWER_MAX, CallbackFailed, open_client
from carteiro.settings import Settings
from carteiro.storage import callbacks
from carteiro.storage.pool import Pool
from tests.support.batches import SECRET, Connection, add_batch, add_service, one

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

SETTINGS = Settings(callback_allow_private=True, callback_timeout_s=2.0, callback_max_attempts=3)


@dataclass
class Receiver:
    """A client's server. Answers 204 unless told otherwise; `got` is what came."""

    url: str = ""
    port: int = 0
    answer: Handler | None = None
    got: list[tuple[dict[str, str], bytes]] = field(default_factory=list)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.got.append((dict(request.headers), await request.read()))
        return await self.answer(request) if self.answer else web.Response(status=204)

    def answers(self, status: int, **headers: str) -> None:
        async def answer(_: web.Request) -> web.Response:
            return web.Response(status=status, headers=headers)

        self.answer = answer


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    found = Receiver()
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", found.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    found.port = runner.addresses[0][1]
    found.url = f"http://127.0.0.1:{found.port}/hook"
    yield found
    await runner.cleanup()


@pytest.fixture
async def db(pool: Pool) -> AsyncIterator[Connection]:
    async with pool.connection() as conn:
        await add_service(conn)
        yield conn


async def queue(db: Connection, url: str) -> UUID:
    """A queued callback of a batch of its own."""
    batch_id = await add_batch(db, ["delivered"])
    body = {"type": "batch.completed", "data": {"batch_id": str(batch_id), "reference": "promoção ✓"}}
    await callbacks.queue(db, batch_id=batch_id, event="batch.completed", url=url, body=body)
    found: UUID = await one(db, "SELECT id FROM callback WHERE batch_id = %s", batch_id)
    return found


async def make_due(db: Connection) -> None:
    """Let the time pass until everything queued is due."""
    await db.execute("UPDATE callback SET next_attempt_at = clock_timestamp()")


async def state(db: Connection) -> tuple[int, bool, bool]:
    """(attempts, delivered, given up) of the only callback."""
    found: tuple[int, bool, bool] = await one(
        db, "SELECT attempts, delivered_at IS NOT NULL, gave_up_at IS NOT NULL FROM callback"
    )
    return found


async def attempts(db: Connection) -> list[tuple[int | None, str | None]]:
    cursor = await db.execute("SELECT status, error FROM callback_attempt ORDER BY id")
    return await cursor.fetchall()


async def test_a_callback_is_signed_and_delivered_once(pool: Pool, db: Connection, receiver: Receiver) -> None:
    callback_id = await queue(db, receiver.url)
    assert await send_due(pool, SETTINGS) == 1
    assert await send_due(pool, SETTINGS) == 0
    ((headers, body),) = receiver.got
    told = Webhook(SECRET).verify(body, headers)
    assert told["data"]["reference"] == "promoção ✓"
    lower = {name.lower(): value for name, value in headers.items()}
    assert lower["webhook-id"] == str(callback_id)
    assert lower["content-type"] == "application/json"
    assert await state(db) == (1, True, False)
    assert await attempts(db) == [(204, None)]


async def test_a_failure_is_tried_again_under_the_same_id_until_it_is_taken(
    pool: Pool, db: Connection, receiver: Receiver
) -> None:
    callback_id = await queue(db, receiver.url)
    receiver.answers(503)
    assert await send_due(pool, SETTINGS) == 1
    assert await send_due(pool, SETTINGS) == 0, "it waits for its delay"
    wait_s = await one(db, "SELECT extract(epoch FROM next_attempt_at - clock_timestamp())::float FROM callback")
    assert 2 < wait_s < 7
    await make_due(db)
    receiver.answers(200)
    assert await send_due(pool, SETTINGS) == 1
    assert [headers["webhook-id"] for headers, _ in receiver.got] == [str(callback_id)] * 2
    assert await state(db) == (2, True, False)
    assert await attempts(db) == [(503, "answered 503"), (200, None)]


async def test_it_is_given_up_after_the_last_attempt(pool: Pool, db: Connection, receiver: Receiver) -> None:
    await queue(db, receiver.url)
    receiver.answers(500)
    for _ in range(5):
        await make_due(db)
        await send_due(pool, SETTINGS)
    assert len(receiver.got) == SETTINGS.callback_max_attempts
    assert await state(db) == (3, False, True)


async def test_gone_ends_it_at_once(pool: Pool, db: Connection, receiver: Receiver) -> None:
    await queue(db, receiver.url)
    receiver.answers(410)
    await send_due(pool, SETTINGS)
    assert await state(db) == (1, False, True)


async def test_a_replay_sends_anew_under_the_same_id(pool: Pool, db: Connection, receiver: Receiver) -> None:
    callback_id = await queue(db, receiver.url)
    receiver.answers(410)
    await send_due(pool, SETTINGS)
    receiver.answers(204)
    assert await replay(pool, callback_id)
    await send_due(pool, SETTINGS)
    assert await state(db) == (1, True, False)
    assert await replay(pool, callback_id)
    await send_due(pool, SETTINGS)
    assert [headers["webhook-id"] for headers, _ in receiver.got] == [str(callback_id)] * 3
    assert not await replay(pool, UUID(int=1))


async def test_a_redirect_is_not_followed(pool: Pool, db: Connection, receiver: Receiver) -> None:
    await queue(db, receiver.url)
    receiver.answers(307, Location=f"{receiver.url}/elsewhere")
    await send_due(pool, SETTINGS)
    assert len(receiver.got) == 1
    assert await attempts(db) == [(307, "answered 307")]
    assert await state(db) == (1, False, False)


async def test_no_answer_in_time_is_a_failure(pool: Pool, db: Connection, receiver: Receiver) -> None:
    released = asyncio.Event()

    async def hang(_: web.Request) -> web.Response:
        await released.wait()
        return web.Response()

    receiver.answer = hang
    await queue(db, receiver.url)
    await send_due(pool, Settings(callback_allow_private=True, callback_timeout_s=0.2))
    released.set()
    assert await attempts(db) == [(None, "no answer in time")]


async def test_an_endless_answer_is_cut_off(pool: Pool, db: Connection, receiver: Receiver) -> None:
    written = 0

    async def pour(request: web.Request) -> web.StreamResponse:
        nonlocal written
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(b"x" * ANSWER_MAX)
                written += ANSWER_MAX
        except ConnectionError:
            return response

    receiver.answer = pour
    await queue(db, receiver.url)
    await send_due(pool, SETTINGS)
    assert await state(db) == (1, True, False)
    assert written < 100 * ANSWER_MAX, "what the two sockets' buffers hold, and no more"


async def test_nobody_listening_is_a_failure(pool: Pool, db: Connection) -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        await queue(db, f"http://127.0.0.1:{reserved.getsockname()[1]}/")
        await send_due(pool, SETTINGS)
    ((status, error),) = await attempts(db)
    assert status is None
    assert error is not None
    assert error.startswith("no connection")


async def test_an_unusable_secret_is_a_failure_that_can_be_mended(
    pool: Pool, db: Connection, receiver: Receiver
) -> None:
    await queue(db, receiver.url)
    await db.execute("UPDATE account SET callback_secret = ''")
    await send_due(pool, SETTINGS)
    assert await state(db) == (1, False, False)
    assert receiver.got == []
    await db.execute("UPDATE account SET callback_secret = %s", [SECRET])
    await make_due(db)
    await send_due(pool, SETTINGS)
    assert await state(db) == (2, True, False)


async def test_a_crash_between_send_and_record_means_the_same_id_again(
    pool: Pool, db: Connection, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    callback_id = await queue(db, receiver.url)

    async def die(*_: object, **__: object) -> None:
        raise asyncio.CancelledError

    with monkeypatch.context() as patch:
        patch.setattr(callback.callbacks, "record_delivered", die)
        with pytest.raises(asyncio.CancelledError):
            await send_due(pool, SETTINGS)
    assert await send_due(pool, SETTINGS) == 0, "the lease keeps it from being sent at once"
    await make_due(db)
    assert await send_due(pool, SETTINGS) == 1
    assert [headers["webhook-id"] for headers, _ in receiver.got] == [str(callback_id)] * 2
    assert await state(db) == (2, True, False)


async def test_senders_at_once_send_each_callback_once(pool: Pool, db: Connection, receiver: Receiver) -> None:
    ids = {str(await queue(db, receiver.url)) for _ in range(12)}
    sent = await asyncio.gather(*(send_due(pool, SETTINGS, limit=4) for _ in range(5)))
    assert sum(sent) == 12
    assert sorted(headers["webhook-id"] for headers, _ in receiver.got) == sorted(ids)


async def test_a_failure_of_an_overtaken_attempt_does_not_hold_up_the_later_one(db: Connection) -> None:
    callback_id = await queue(db, "http://127.0.0.1:1/")
    for _ in range(2):
        await make_due(db)
        await callbacks.claim_due(db, limit=1, lease_s=60)
    await callbacks.record_failed(db, callback_id, attempt=1, status=500, error="answered 500", delay_s=None)
    assert await state(db) == (2, False, False)
    await callbacks.record_delivered(db, callback_id, status=200)
    await callbacks.record_failed(db, callback_id, attempt=2, status=500, error="answered 500", delay_s=None)
    assert await state(db) == (2, True, False)


# Where callbacks must not go


async def test_a_private_address_is_refused_without_a_connection(
    pool: Pool, db: Connection, receiver: Receiver
) -> None:
    await queue(db, receiver.url)
    await send_due(pool, Settings())
    assert receiver.got == []
    assert await attempts(db) == [(None, "the address names an address that is not public")]


@pytest.mark.parametrize("host", ["localhost", "127.1", "2130706433", "0x7f000001", "[::ffff:127.0.0.1]"])
async def test_other_spellings_of_a_private_address_are_refused(receiver: Receiver, host: str) -> None:
    async with open_client(allow_private=False, timeout_s=2.0) as client:
        with pytest.raises(CallbackFailed):
            await client.post(f"http://{host}:{receiver.port}/", {}, b"{}")
    assert receiver.got == []


class Names(AbstractResolver):
    """A name server that may tell another address at each question."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers = [list(answer) for answer in answers]
        self.asked = 0

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        answer = self.answers[min(self.asked, len(self.answers) - 1)]
        self.asked += 1
        return [
            ResolveResult(hostname=host, host=address, port=port, family=socket.AF_INET, proto=0, flags=0)
            for address in answer
        ]

    async def close(self) -> None:
        pass


@pytest.mark.parametrize("addresses", [["127.0.0.1"], ["93.184.216.34", "127.0.0.1"], ["10.0.0.1", "93.184.216.34"]])
async def test_a_name_with_any_private_address_is_refused(receiver: Receiver, addresses: list[str]) -> None:
    async with open_client(allow_private=False, timeout_s=2.0, resolver=Names(addresses)) as client:
        with pytest.raises(CallbackFailed, match="not public"):
            await client.post(f"http://rebind.example:{receiver.port}/", {}, b"{}")
    assert receiver.got == []


async def test_a_name_cannot_change_its_mind_between_check_and_connection(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first answer is public, the next one ours: it is asked once, and the address that was checked is called."""
    called: list[Any] = []

    async def connect(_: asyncio.AbstractEventLoop, __: socket.socket, address: Any) -> None:
        called.append(address)
        raise ConnectionRefusedError(111, "refused")

    monkeypatch.setattr(asyncio.selector_events.BaseSelectorEventLoop, "sock_connect", connect)
    names = Names(["93.184.216.34"], ["127.0.0.1"])
    async with open_client(allow_private=False, timeout_s=2.0, resolver=names) as client:
        with pytest.raises(CallbackFailed, match="no connection"):
            await client.post(f"http://rebind.example:{receiver.port}/", {}, b"{}")
        assert names.asked == 1
        with pytest.raises(CallbackFailed, match="not public"):
            await client.post(f"http://rebind.example:{receiver.port}/", {}, b"{}")
    assert called == [("93.184.216.34", receiver.port)]
    assert receiver.got == []


async def test_the_last_gate_sees_an_address_that_no_resolver_was_asked_for(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("carteiro.services.callback_client.check_callback_url", lambda *_: None)
    async with open_client(allow_private=False, timeout_s=2.0) as client:
        with pytest.raises(CallbackFailed, match="not public"):
            await client.post(receiver.url, {}, b"{}")
    assert receiver.got == []


async def test_an_environment_proxy_is_not_used(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{receiver.port}")
    async with open_client(allow_private=False, timeout_s=2.0, resolver=Names(["127.0.0.1"])) as client:
        with pytest.raises(CallbackFailed, match="not public"):
            await client.post("http://example.com/", {}, b"{}")
    assert receiver.got == []
