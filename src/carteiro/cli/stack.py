"""A whole Carteiro on this machine: API, workers and simulator as processes of their own, for `demo` and `up`."""

import contextlib
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.resources import files

import httpx

from carteiro.cli.children import Child, Output

HOST = "127.0.0.1"
START_TIMEOUT_S = 60.0
END_PATIENCE_S = 10.0
POLL_S = 0.05

ACCOUNT = "demo"
SERVICE = "demo-utility"
TEMPLATE = "order_update"
DIRECTORY_SCHEMA = "demo_directory"
"""Of demo/directory.sql."""
KEY_VARIABLE = "SIMULATOR_API_KEY"
"""What the demo's catalog names; the simulator takes any key, and no real one is asked for."""
META_APP_SECRET = "simulated-app-secret"
"""What the simulator signs with when it is Meta."""
CATALOG_SIMULATOR_URL = "http://127.0.0.1:9100"
"""As the catalog has it."""


class StackError(RuntimeError):
    """A process did not come up, or went away; the message ends with what it said last."""


class Stack:
    """The processes of one Carteiro. `environment` is theirs, beside what they need to find each other."""

    def __init__(
        self,
        dsn: str,
        output: Output,
        *,
        api_port: int,
        simulator_port: int,
        workers: int,
        environment: Mapping[str, str],
    ) -> None:
        self.api_url = f"http://{HOST}:{api_port}"
        self.simulator_url = f"http://{HOST}:{simulator_port}"
        common = {
            "CARTEIRO_CALLBACK_ALLOW_PRIVATE": "true",
            "CARTEIRO_DIRECTORY_SCHEMA": DIRECTORY_SCHEMA,
            KEY_VARIABLE: "any",
            "PYTHONUNBUFFERED": "1",
            **environment,
            "CARTEIRO_DATABASE_URL": dsn,
            "CARTEIRO_HOST": HOST,
            "CARTEIRO_PORT": str(api_port),
            "CARTEIRO_PUBLIC_URL": self.api_url,
            "CARTEIRO_META_APP_SECRETS": META_APP_SECRET,
        }
        simulator_arguments = [
            *("simulator", "--host", HOST, "--port", str(simulator_port)),
            *("--meta-webhook-url", f"{self.api_url}/webhooks/whatsapp-status", "--meta-app-secret", META_APP_SECRET),
        ]
        self.simulator = Child("simulator", simulator_arguments, common, output)
        self.api = Child("api", ["serve"], common, output)
        names = [f"worker-{number}" for number in range(1, workers + 1)] if workers > 1 else ["worker"]
        self.workers = [Child(name, ["worker"], common, output) for name in names]

    @property
    def children(self) -> Sequence[Child]:
        return [*self.workers, self.api, self.simulator]

    @property
    def callback_url(self) -> str:
        """Where callbacks are kept for looking at."""
        return f"{self.simulator_url}/_sim/callback"

    def wait_ready(self) -> None:
        """Until the API can serve and the simulator answers. Raises StackError."""
        for url in (f"{self.simulator_url}/_sim/health", f"{self.api_url}/readyz"):
            self.wait_until(lambda url=url: _answers(url), START_TIMEOUT_S, f"{url} answers")  # type: ignore[misc]

    def wait_until(self, condition: Callable[[], object], timeout_s: float, what: str) -> None:
        """Poll the condition while all processes run. Raises StackError when one ends, or after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            self.check_alive()
            if time.monotonic() >= deadline:
                raise StackError(f"not within {timeout_s:g} s: {what}")
            time.sleep(POLL_S)

    def check_alive(self) -> None:
        """Raises StackError for the first process that has ended."""
        for child in self.children:
            if child.exit_code is not None:
                raise StackError(f"{child.name} ended with {child.exit_code}; its last words:\n{child.tail()}")

    def end(self) -> None:
        """End all: first what calls others, and the simulator last."""
        for group in ([*self.workers, self.api], [self.simulator]):
            for child in group:
                child.ask_to_end()
            deadline = time.monotonic() + END_PATIENCE_S
            for child in group:
                child.end(max(0.1, deadline - time.monotonic()))

    @contextlib.contextmanager
    def ended_afterwards(self) -> Iterator["Stack"]:
        """Whatever was started in the block is gone after it."""
        try:
            yield self
        finally:
            self.end()


def demo_catalog(simulator_url: str, *, daily_limit: int = 100) -> str:
    """The catalog of `demo` and `up`, at a simulator: ten business managers with one sender each, and for broadcasts
    one more.
    """
    text = (files("carteiro.cli.demo") / "catalog.toml").read_text(encoding="utf-8")
    return text.replace(CATALOG_SIMULATOR_URL, simulator_url).replace(
        "daily_limit = 100\n", f"daily_limit = {daily_limit}\n"
    )


def demo_directory() -> str:
    """SQL of the directory that the demo's broadcasts go by."""
    return (files("carteiro.cli.demo") / "directory.sql").read_text(encoding="utf-8")


def free_port() -> int:
    """A TCP port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def without_settings() -> dict[str, str]:
    """Our environment without CARTEIRO_* variables, which could change what a demo shows."""
    return {name: value for name, value in os.environ.items() if not name.startswith("CARTEIRO_")}


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=2.0, trust_env=False).status_code == httpx.codes.OK
    except httpx.TransportError:
        return False
