"""Post the lines of a file: `python -m tests.benchmarks.poster URL FILE CONNECTIONS`. Waits for a line of input."""

import asyncio
import json
import sys
import time
from pathlib import Path

import httpx
import uvloop

from carteiro.providers.transport import Transport


async def run(url: httpx.URL, bodies: list[bytes], connections: int) -> None:
    transport = Transport(authorization="", timeout_s=60.0, max_connections=connections)
    waiting = iter(bodies)
    took_s: list[float] = []

    async def loop() -> None:
        for body in waiting:
            began_s = time.perf_counter()
            answer = await transport.post(url, body)
            took_s.append(time.perf_counter() - began_s)
            if answer.status_code != 200:
                raise RuntimeError(f"{answer.status_code} {answer.content[:200]!r}")

    began_s = time.perf_counter()
    await asyncio.gather(*(loop() for _ in range(connections)))
    p99_ms = sorted(took_s)[len(took_s) * 99 // 100] * 1000
    print(json.dumps({"seconds": time.perf_counter() - began_s, "p99_ms": p99_ms}), flush=True)
    await transport.close()


if __name__ == "__main__":
    given = Path(sys.argv[2]).read_bytes().split(b"\n")
    print("ready", flush=True)
    sys.stdin.readline()
    uvloop.run(run(httpx.URL(sys.argv[1]), given, int(sys.argv[3])))
