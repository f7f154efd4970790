"""The simulator's routes, and running it."""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator

from aiohttp import web

from carteiro.providers.simulator.admin import Admin, explain_bad_orders
from carteiro.providers.simulator.graph import Graph
from carteiro.providers.simulator.options import Options
from carteiro.providers.simulator.reading import Reading
from carteiro.providers.simulator.sending import Sending
from carteiro.providers.simulator.sink import Sink
from carteiro.providers.simulator.state import State
from carteiro.providers.simulator.witness import Witness

_BODY_MAX = 64 * 1024 * 1024


def build_app(state: State) -> web.Application:
    app = web.Application(client_max_size=_BODY_MAX)
    reading = Reading(state)
    sending = Sending(state)
    app.router.add_post("/whatsapp/1/message/template", sending.handle)
    app.router.add_post("/whatsapp/1/message/{type:text|image|video|document}", sending.handle_free)
    app.router.add_get("/whatsapp/2/logs", reading.logs)
    app.router.add_get("/whatsapp/1/senders/quality", reading.quality)
    app.router.add_get("/whatsapp/2/senders/{sender}/templates", reading.templates)
    graph = Graph(state)
    app.router.add_post(r"/{version:v\d+\.\d+}/{number:\d+}/messages", graph.messages)
    app.router.add_get(r"/{version:v\d+\.\d+}/{number:\d+}", graph.number)
    app.router.add_get(r"/{version:v\d+\.\d+}/{account:\d+}/message_templates", graph.templates)
    app.add_subapp("/_sim", _build_admin(state))
    return app


def _build_admin(state: State) -> web.Application:
    app = web.Application(middlewares=[explain_bad_orders], client_max_size=_BODY_MAX)
    sink = Sink(state)
    admin = Admin(state, sink)
    app.router.add_get("/health", admin.health)
    app.router.add_get("/calls", admin.calls)
    app.router.add_get("/stats", admin.stats)
    app.router.add_get("/magic", admin.magic)
    app.router.add_get("/settings", admin.settings)
    app.router.add_post("/settings", admin.settings)
    for method in ("GET", "POST", "DELETE"):
        app.router.add_route(method, "/faults", admin.faults)
    app.router.add_delete(r"/faults/{id:\d+}", admin.fault)
    app.router.add_post("/receipts", admin.receipts)
    app.router.add_post("/answers", admin.answers)
    app.router.add_post("/senders", admin.senders)
    app.router.add_post("/templates", admin.templates)
    app.router.add_post("/reset", admin.reset)
    app.router.add_post("/callback{rest:(/.*)?}", sink.take)
    app.router.add_get("/callbacks", sink.kept)
    return app


@contextlib.asynccontextmanager
async def running_simulator(
    options: Options, host: str = "127.0.0.1", port: int = 0, witness_dsn: str | None = None
) -> AsyncIterator[str]:
    """A simulator on this event loop, for as long as the block lasts; gives its address. Port 0 is any free one.

    `witness_dsn`: look into that database at the arrival of each message, and record what it says.
    """
    async with contextlib.AsyncExitStack() as stack:
        witness = await stack.enter_async_context(Witness.running(witness_dsn)) if witness_dsn else None
        yield await stack.enter_async_context(_serving(State.of(options, witness), host, port))


@contextlib.asynccontextmanager
async def _serving(state: State, host: str, port: int) -> AsyncIterator[str]:
    runner = web.AppRunner(
        build_app(state),
        access_log=None,
        # Calls that hang must end when their caller leaves, and must not hold up the end.
        handler_cancellation=True,
        shutdown_timeout=0.2,
    )
    await runner.setup()
    await state.receipts.start()
    try:
        site = web.TCPSite(runner, host, port, backlog=1024)
        await site.start()
        bound_port = runner.addresses[0][1]
        yield f"http://{host}:{bound_port}"
    finally:
        await runner.cleanup()
        await state.receipts.stop()


async def serve(options: Options, host: str, port: int, witness_dsn: str | None = None) -> None:
    """Run until SIGTERM or SIGINT."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    async with running_simulator(options, host, port, witness_dsn) as address:
        print(f"simulator on {address}", flush=True)
        await stopping.wait()
