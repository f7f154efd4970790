"""`carteiro` processes that this one starts, watches and ends."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import BinaryIO, Protocol, TextIO

from carteiro.embedded.parent import end_with_parent

TAIL_LINES = 20


class Output(Protocol):
    """Where the children's standard output and error go."""

    def writer(self, name: str) -> BinaryIO:
        """A file for one start of the child; the caller closes its copy once the child has its own."""

    def tail(self, name: str) -> str:
        """The last lines that the child wrote."""


class LogFolder:
    """A file for each child."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def writer(self, name: str) -> BinaryIO:
        return self._path(name).open("ab")

    def tail(self, name: str) -> str:
        path = self._path(name)
        if not path.exists():
            return ""
        return "\n".join(path.read_text(encoding="utf-8", errors="replace").splitlines()[-TAIL_LINES:])

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.log"


class PrefixedLines:
    """All children in one stream, each line with its child's name in front."""

    def __init__(self, stream: TextIO, width: int) -> None:
        self._stream = stream
        self._width = width
        self._lock = threading.Lock()
        self._last: defaultdict[str, deque[str]] = defaultdict(partial(deque, maxlen=TAIL_LINES))

    def writer(self, name: str) -> BinaryIO:
        reading, writing = os.pipe()
        # A daemon: it ends when the last writer does, and must not keep us from ending.
        threading.Thread(target=self._copy, args=(name, reading), daemon=True).start()
        return os.fdopen(writing, "wb")

    def tail(self, name: str) -> str:
        return "\n".join(self._last[name])

    def say(self, name: str, line: str) -> None:
        self._last[name].append(line)
        with self._lock, contextlib.suppress(BrokenPipeError):
            self._stream.write(f"{name:<{self._width}} | {line}\n")
            self._stream.flush()

    def _copy(self, name: str, reading: int) -> None:
        with os.fdopen(reading, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                self.say(name, line.rstrip("\n"))


class Child:
    """One `carteiro ...` in a process group of its own, so that a Ctrl-C reaches us alone and the order of ending is
    ours. It also ends when we are killed.
    """

    def __init__(self, name: str, arguments: Sequence[str], environment: Mapping[str, str], output: Output) -> None:
        self.name = name
        self._command = [sys.executable, "-m", "carteiro", *arguments]
        self._environment = dict(environment)
        self._output = output
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """None while it runs, and before its start; minus the number of the signal that ended it."""
        return self._process.poll() if self._process is not None else None

    def tail(self) -> str:
        return self._output.tail(self.name)

    def start(self) -> None:
        """Start it, or start it again. In the main thread: the kernel ties its life to the thread that starts it."""
        with self._output.writer(self.name) as output:
            self._process = subprocess.Popen(
                self._command,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                process_group=0,
                preexec_fn=partial(end_with_parent, os.getpid(), signal.SIGTERM),  # noqa: PLW1509 (it takes no lock)
            )

    def ask_to_end(self) -> None:
        if self._process is not None and self.running:
            self._process.send_signal(signal.SIGTERM)

    def end(self, patience_s: float) -> None:
        """Wait for its end after `ask_to_end`, and kill it when that takes too long."""
        if self._process is None:
            return
        try:
            self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextlib.contextmanager
def ending_on_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP interrupt the block as Ctrl-C does. The first of them is the last that is heard, so that
    what the block tears down is torn down whole.
    """
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def interrupt(number: int, frame: object) -> None:
        for each in numbers:
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
