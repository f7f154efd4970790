"""Real `carteiro` processes for tests: started, waited for, killed, and always cleaned up."""

import contextlib
import inspect
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import httpx

from carteiro.embedded.parent import end_with_parent
from tests.support.waiting import until

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 15.0


class ChildProcess:
    """One `carteiro ...` in its own process group; standard output and error go to `log_path`. It does not outlive us,
    however the tests are ended.

    `environment` may be changed before it is started again.
    """

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        log_path: Path,
        module: str = "carteiro",
    ) -> None:
        self.name = name
        self.log_path = log_path
        self._command = [sys.executable, "-m", module, *arguments]
        # Nothing of the caller's settings leaks in: what a test sets is what the process has.
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("CARTEIRO_")}
        self.environment = {**inherited, "PYTHONUNBUFFERED": "1", "CARTEIRO_LOG_FORMAT": "json", **environment}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} was never started"
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """None while it runs; minus the signal's number when one ended it."""
        return self._process.poll() if self._process is not None else None

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it, or start it again; the log goes on in the same file."""
        assert not self.running, f"{self.name} runs already"
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=0,
                preexec_fn=partial(end_with_parent, os.getpid(), signal.SIGKILL),  # noqa: PLW1509 (it takes no lock)
            )

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """SIGTERM, as an orchestrator stops it; returns the exit code. Fails when it does not end in time."""
        self.signal(signal.SIGTERM)
        return self.wait(timeout_s)

    def kill(self) -> None:
        """kill -9 of the process and of any child in its group."""
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(STOP_TIMEOUT_S)

    def signal(self, number: signal.Signals) -> None:
        """SIGSTOP and SIGCONT freeze and thaw it."""
        assert self._process is not None
        self._process.send_signal(number)

    def wait(self, timeout_s: float) -> int:
        assert self._process is not None
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} did not end within {timeout_s:g} s:\n{self.log_tail()}") from None

    def log(self) -> str:
        return self.log_path.read_text(encoding="utf-8", errors="replace") if self.log_path.exists() else ""

    def log_tail(self, characters: int = 4000) -> str:
        return self.log()[-characters:]

    async def ready(self, condition: Callable[[], object], timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait until a plain or async condition holds; fails at once, with the log, when the process ends before."""

        async def holds() -> bool:
            if not self.running:
                raise AssertionError(f"{self.name} ended with {self.returncode}:\n{self.log_tail()}")
            value = condition()
            return bool(await value if inspect.isawaitable(value) else value)

        await until(holds, timeout_s, f"{self.name} ready")

    async def ready_at(self, url: str, timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait until `url` answers 200."""
        async with httpx.AsyncClient(timeout=2.0) as client:

            async def answers() -> bool:
                try:
                    return (await client.get(url)).status_code == 200
                except httpx.TransportError:
                    return False

            await self.ready(answers, timeout_s)


class Processes:
    """The processes of one test. `environment` is common to all of them."""

    def __init__(self, log_dir: Path, environment: Mapping[str, str]) -> None:
        self._log_dir = log_dir
        self.environment = dict(environment)
        self._started: list[ChildProcess] = []

    def start(
        self,
        *arguments: str,
        name: str | None = None,
        environment: Mapping[str, str] | None = None,
        module: str = "carteiro",
    ) -> ChildProcess:
        """Start `carteiro <arguments>` and return at once; wait with `ready` or `ready_at`. `module`: what stands in
        for it.
        """
        label = f"{len(self._started)}-{name or arguments[0]}"
        child = ChildProcess(
            label, arguments, {**self.environment, **(environment or {})}, self._log_dir / f"{label}.log", module
        )
        self._started.append(child)
        child.start()
        return child

    def kill_all(self) -> None:
        for child in self._started:
            if child.running:
                child.signal(signal.SIGCONT)
            child.kill()


@contextlib.contextmanager
def running_processes(log_dir: Path, environment: Mapping[str, str]) -> Iterator[Processes]:
    """Whatever was started is killed after the block, children of children in the same group included."""
    processes = Processes(log_dir, environment)
    try:
        yield processes
    finally:
        processes.kill_all()


def free_port() -> int:
    """A TCP port of 127.0.0.1 that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
