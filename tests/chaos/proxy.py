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
        self._writers: set[asyncio.StreamWriter] = set()
        self._lines: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.port = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.refuse()

    def cut(self) -> int:
        """From now on no byte passes, in either direction; new connections are taken and hear nothing. How many
        connections it cut.
        """
        self._flowing.clear()
        return len(self._lines)

    async def refuse(self) -> None:
        """For good: connections are reset, and new ones refused."""
        assert self._server is not None
        self._server.close()
        self.mend(reset=True)
        await asyncio.gather(*self._lines)

    def mend(self, *, reset: bool) -> None:
        """Let bytes pass again: what was on its way arrives late, or, with `reset`, the connections of before are
        gone.
        """
        if reset:
            for writer in self._writers:
                _abort(writer)
        self._flowing.set()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._lines.add(task)
        writers = {writer}
        self._writers |= writers
        try:
            await self._flowing.wait()
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._upstream_port)
            writers.add(up_writer)
            self._writers |= writers
            await asyncio.gather(self._pass(reader, up_writer), self._pass(up_reader, writer))
        except OSError:
            pass
        finally:
            for one in writers:
                _abort(one)
            self._writers -= writers
            self._lines.discard(task)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Until one side ends, which ends both."""
        try:
            while data := await reader.read(CHUNK):
                await self._flowing.wait()
                writer.write(data)
                await writer.drain()
            await self._flowing.wait()
        finally:
            _abort(writer)


def _abort(writer: asyncio.StreamWriter) -> None:
    """End it with RST: nothing that is still in a buffer is sent after all."""
    with contextlib.suppress(OSError):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    writer.transport.abort()
