"""Posts the lines of a file once a line of input comes: `python -m tests.benchmarks.poster URL FILE CONNECTIONS RATE`.

Raw HTTP over connections that stay open, prepared before the start: it shares the cores with what it measures, and a
client library would take more of them than the receiver.
"""

import asyncio
import json
import sys
import time
from collections import deque
from pathlib import Path
from urllib.parse import urlsplit

import uvloop

TICK_S = 0.002


class Connection(asyncio.Protocol):
    """One request at a time, of the poster that is told when it was answered."""

    def __init__(self, poster: "Poster") -> None:
        self._poster = poster
        self._due_s = 0.0
        self._got = b""

    def open(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    def post(self, request: bytes, due_s: float) -> None:
        self._due_s = due_s
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._got += data
        head, end, content = self._got.partition(b"\r\n\r\n")
        if not end or len(content) < int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]):
            return
        if head[9:12] != b"200":
            self._poster.fail(f"{self._got[:200]!r}")
        self._got = b""
        self._poster.answered(self, self._due_s)

    def connection_lost(self, exc: Exception | None) -> None:
        self._poster.fail("the connection was closed")


class Poster:
    """Posts each request once: so many a second, or with 0 as soon as a connection is free.

    A time counts from the instant that a request was due, not from when a connection was free for it.
    """

    def __init__(self, requests: list[bytes], per_second: float) -> None:
        self._requests = requests
        self._per_second = per_second
        self._free: deque[Connection] = deque()
        self._next = 0
        self.took_s: list[float] = []
        self.done = asyncio.get_running_loop().create_future()

    async def connect(self, host: str, port: int, connections: int) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(connections):
            transport, connection = await loop.create_connection(lambda: Connection(self), host, port)
            connection.open(transport)
            self._free.append(connection)

    async def post(self) -> float:
        """Seconds from the first to the last answer."""
        self._began_s = time.perf_counter()
        self._go_on()
        while not self.done.done():
            await asyncio.wait({self.done}, timeout=TICK_S)
            self._go_on()
        await self.done
        return time.perf_counter() - self._began_s

    def answered(self, connection: Connection, due_s: float) -> None:
        self.took_s.append(time.perf_counter() - due_s)
        self._free.append(connection)
        if len(self.took_s) == len(self._requests) and not self.done.done():
            self.done.set_result(None)
        elif not self._per_second:
            self._go_on()

    def fail(self, why: str) -> None:
        if not self.done.done():
            self.done.set_exception(RuntimeError(why))

    def _go_on(self) -> None:
        now_s = time.perf_counter()
        while self._free and self._next < len(self._requests):
            due_s = self._began_s + self._next / self._per_second if self._per_second else now_s
            if due_s > now_s:
                return
            self._free.popleft().post(self._requests[self._next], due_s)
            self._next += 1


def request(host: str, path: str, body: bytes) -> bytes:
    lines = [f"POST {path} HTTP/1.1", f"Host: {host}", "Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


async def main(url: str, bodies: list[bytes], connections: int, per_second: float) -> None:
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    poster = Poster([request(parts.netloc, parts.path, body) for body in bodies], per_second)
    await poster.connect(parts.hostname, parts.port, connections)
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    seconds = await poster.post()
    p99_ms = sorted(poster.took_s)[len(poster.took_s) * 99 // 100] * 1000
    print(json.dumps({"seconds": seconds, "p99_ms": p99_ms}), flush=True)


if __name__ == "__main__":
    given = Path(sys.argv[2]).read_bytes().split(b"\n")
    uvloop.run(main(sys.argv[1], given, int(sys.argv[3]), float(sys.argv[4])))
