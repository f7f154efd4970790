"""A Redis server of our own: no persistence, no TCP port."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from carteiro.embedded.parent import end_with_parent
from tests.benchmarks.bed import wait_until

PROGRAM = "redis-server"


@dataclass(frozen=True)
class Redis:
    socket: str
    """Path of its unix socket."""
    pid: int


def has_redis() -> bool:
    return shutil.which(PROGRAM) is not None


@contextmanager
def running_redis() -> Iterator[Redis]:
    """Ends with the block, and with this process however that ends."""
    with tempfile.TemporaryDirectory(prefix="carteiro-redis-") as folder:
        path = str(Path(folder) / "redis.sock")
        command = [PROGRAM, "--port", "0", "--unixsocket", path, "--save", "", "--appendonly", "no", "--dir", folder]
        server = subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            process_group=0,
            preexec_fn=partial(end_with_parent, os.getpid(), signal.SIGKILL),  # noqa: PLW1509 (it takes no lock)
        )
        try:
            wait_until(lambda: _answers(path), "Redis")
            yield Redis(path, server.pid)
        finally:
            server.kill()
            server.wait()


def _answers(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(path)
            client.sendall(b"PING\r\n")
            return client.recv(7) == b"+PONG\r\n"
        except OSError:
            return False
