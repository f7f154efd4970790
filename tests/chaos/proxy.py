"""A TCP proxy that can be cut without a word, as a network that loses every packet: nobody is told."""

import asyncio
import contextlib
import socket
from typing import Self

CHUNK = 65_536


class Proxy:
    """Listens on a free port of 127.0.0.1 and passes bytes to and from `upstream_port` there."""

    def __init__(self, upstream_port: int) -> None:
        self._upstream_port = upstream_port
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._lines: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.port = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self._reset()
        await asyncio.gather(*self._lines, return_exceptions=True)

    def cut(self) -> None:
        """From now on no byte passes, in either direction; new connections are taken and hear nothing."""
        self._flowing.clear()

    def mend(self, *, reset: bool) -> None:
        """Let bytes pass again: what was on its way arrives late, or, with `reset`, the connections of before are
        gone.
        """
        if reset:
            self._reset()
        self._flowing.set()

    def _reset(self) -> None:
        for line in self._lines:
            line.cancel()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._lines.add(task)
        writers = [writer]
        try:
            await self._flowing.wait()
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._upstream_port)
            writers.append(up_writer)
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pass(reader, up_writer))
                both.create_task(self._pass(up_reader, writer))
        except* OSError:
            pass
        finally:
            for one in writers:
                _abort(one)
            self._lines.discard(task)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Until one side ends, which ends both."""
        while data := await reader.read(CHUNK):
            await self._flowing.wait()
            writer.write(data)
            await writer.drain()
        await self._flowing.wait()
        raise ConnectionResetError


def _abort(writer: asyncio.StreamWriter) -> None:
    """End it with RST: nothing that is still in a buffer is sent after all."""
    with contextlib.suppress(OSError):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    writer.transport.abort()
