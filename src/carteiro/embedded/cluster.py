"""The life of one Postgres cluster: create, start, stop, kill, start again on the same data.

The server is a foreground child in its own process group: a Ctrl-C in the terminal does not reach it, and the kernel
ends it (fast shutdown) when this process dies, however it dies. Clients come in by a unix socket in a 0700 folder,
without a password; a loopback TCP port is opened only when asked for, and asks for a password.
"""

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import psycopg

from carteiro.embedded.binaries import Binaries, find_binaries
from carteiro.embedded.parent import end_with_parent
from carteiro.embedded.server_user import ServerUser, can_reach, reachable_binaries, server_user

SUPERUSER = "postgres"
DEFAULT_PORT = 5432  # names the socket file; no TCP port is opened unless `tcp_port` is given
SOCKET_PATH_LIMIT = 100  # bytes; the kernel's limit is 107 on Linux and 103 elsewhere
POLL_S = 0.02

BASE_SETTINGS: Mapping[str, str] = {
    "max_connections": "200",
    "shared_buffers": "256MB",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "lc_messages": "C",
    "jit": "off",
    "log_checkpoints": "off",
}

# For clusters that are thrown away: a crash of the machine may lose or break everything. A crash of Postgres must not
# (tests kill it), so synchronous_commit stays on: a commit that was answered has reached the kernel.
NOT_DURABLE_SETTINGS: Mapping[str, str] = {"fsync": "off", "full_page_writes": "off"}

# The last server on this data folder has not quite gone: worth another try.
TRANSIENT_START_ERRORS = ("pre-existing shared memory block", 'lock file "postmaster.pid" already exists')


class ClusterError(RuntimeError):
    """Postgres could not be created, started or stopped; the message ends with what its log says."""


class Cluster:
    """One Postgres cluster in `data_dir`, which is created (`initdb`) by the first start.

    `durable=False` turns fsync off, for data that may be lost with the machine. `settings` are server settings by
    name and win over the defaults. `tcp_port` also opens that port on 127.0.0.1. Not safe for use by several threads;
    `start` must be called in the main thread, because the kernel ties the server's life to the thread that started it.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        durable: bool = True,
        settings: Mapping[str, str] | None = None,
        binaries: Binaries | None = None,
        tcp_port: int | None = None,
    ) -> None:
        self.data_dir = data_dir.absolute()
        self.log_path = self.data_dir / "server.log"
        self._password_path = self.data_dir / "tcp_password"
        self._durable = durable
        self._settings = {**BASE_SETTINGS, **({} if durable else NOT_DURABLE_SETTINGS), **(settings or {})}
        self._tcp_port = tcp_port
        self._user = server_user()
        self._binaries = reachable_binaries(binaries or find_binaries(), self._user)
        self._socket_dir: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None

    # -- addresses --

    @property
    def port(self) -> int:
        return self._tcp_port or DEFAULT_PORT

    def dsn(self, database: str = "postgres") -> str:
        """A URI for libpq through the unix socket. The same after every restart of this object's server."""
        return (
            f"postgresql://{SUPERUSER}@/{quote(database)}?host={quote(str(self._sockets()), safe='')}&port={self.port}"
        )

    def tcp_dsn(self, database: str = "postgres") -> str:
        """A URI through 127.0.0.1, with the password. Only with `tcp_port`, after the first start."""
        if self._tcp_port is None:
            raise ValueError("this cluster has no tcp_port")
        password = self._password_path.read_text(encoding="ascii")
        return f"postgresql://{SUPERUSER}:{password}@127.0.0.1:{self._tcp_port}/{quote(database)}"

    # -- life cycle --

    @property
    def pid(self) -> int | None:
        """Process id of the running server (postmaster), or None."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def start(self, timeout_s: float = 60.0) -> None:
        """Start and return once a connection works; nothing happens when it is running already.

        Also recovers after `kill`. Raises ClusterError after `timeout_s`, or at once when the server gives up.
        """
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("start the cluster in the main thread")
        if self.pid is not None:
            return
        if not (self.data_dir / "PG_VERSION").exists():
            self._create()
        deadline = time.monotonic() + timeout_s
        while True:
            log_offset = self.log_path.stat().st_size
            self._process = self._spawn()
            if self._wait_ready(deadline):
                return
            said = self._log_since(log_offset)
            exited = self._process.poll() is not None
            if exited and time.monotonic() < deadline and any(text in said for text in TRANSIENT_START_ERRORS):
                time.sleep(POLL_S * 5)
                continue
            self.kill()
            raise ClusterError(f"Postgres in {self.data_dir} did not start within {timeout_s:g} s:\n{said[-2000:]}")

    def stop(self, timeout_s: float = 30.0) -> None:
        """Fast shutdown: sessions are ended, a checkpoint is written. Turns to `kill` after `timeout_s`."""
        self._end(signal.SIGINT, timeout_s)
        if self._socket_dir is not None and self._socket_dir != self.data_dir:
            shutil.rmtree(self._socket_dir, ignore_errors=True)
            self._socket_dir = None

    def stop_immediately(self, timeout_s: float = 10.0) -> None:
        """Immediate shutdown, no checkpoint: the next start recovers as after a crash."""
        self._end(signal.SIGQUIT, timeout_s)

    def kill(self) -> None:
        """kill -9 of the server. Its sessions end by themselves; the next start recovers."""
        self._end(signal.SIGKILL, 10.0)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # -- inside --

    def _sockets(self) -> Path:
        """The socket folder: the data folder (0700 itself) unless its path is too long for a socket's name."""
        if self._socket_dir is None:
            if len(os.fsencode(self.data_dir / f".s.PGSQL.{self.port}")) <= SOCKET_PATH_LIMIT:
                self._socket_dir = self.data_dir
            else:
                self._socket_dir = Path(tempfile.mkdtemp(prefix="carteiro-", dir="/tmp"))
                _give(self._socket_dir, self._user)
        return self._socket_dir

    def _create(self) -> None:
        """initdb beside the data folder, then one rename: a start that is killed half-way leaves no half cluster."""
        if self._user is not None and not can_reach(self._user, self.data_dir.parent):
            raise ClusterError(f"user id {self._user.uid} runs Postgres for root and cannot reach {self.data_dir}")
        unfinished = self.data_dir.with_name(f"{self.data_dir.name}.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True, mode=0o700)
        _give(unfinished, self._user)
        password = secrets.token_urlsafe(24)
        with tempfile.NamedTemporaryFile("w", prefix="carteiro-", encoding="ascii") as password_file:
            password_file.write(password)
            password_file.flush()
            _give(Path(password_file.name), self._user)
            command = [
                str(self._binaries.initdb),
                f"--pgdata={unfinished}",
                f"--username={SUPERUSER}",
                "--encoding=UTF8",
                "--locale=C",
                "--auth-local=trust",
                "--auth-host=scram-sha-256",
                f"--pwfile={password_file.name}",
                *([] if self._durable else ["--no-sync"]),
            ]
            done = subprocess.run(
                command,
                **self._as_user(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                check=False,
            )
        if done.returncode != 0:
            raise ClusterError(f"initdb failed:\n{done.stdout.decode(errors='replace')[-2000:]}")
        for path, content in ((self._password_path, password), (self.log_path, "")):
            new = unfinished / path.name
            new.write_text(content, encoding="ascii")
            new.chmod(0o600)
            _give(new, self._user)
        unfinished.rename(self.data_dir)

    def _spawn(self) -> subprocess.Popen[bytes]:
        settings = {
            **self._settings,
            "listen_addresses": "127.0.0.1" if self._tcp_port else "",
            "port": str(self.port),
            "unix_socket_directories": str(self._sockets()),
        }
        command = [str(self._binaries.postgres), "-D", str(self.data_dir)]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        with self.log_path.open("ab") as log:
            return subprocess.Popen(
                command,
                **self._as_user(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,
                preexec_fn=partial(end_with_parent, os.getpid(), signal.SIGINT),  # noqa: PLW1509 (it takes no lock)
            )

    def _as_user(self) -> dict[str, Any]:
        """Keywords for subprocess: the server's user, and nothing of ours that Postgres would listen to."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        keywords: dict[str, Any] = {
            "cwd": "/",
            "env": {**environment, "LC_ALL": "C", "TZ": "UTC", "HOME": str(self.data_dir)},
        }
        if self._user is not None:
            keywords |= {"user": self._user.uid, "group": self._user.gid, "extra_groups": []}
        return keywords

    def _wait_ready(self, deadline: float) -> bool:
        process = self._process
        assert process is not None
        while process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(psycopg.OperationalError):
                psycopg.connect(self.dsn("postgres"), connect_timeout=5).close()
                return True
            time.sleep(POLL_S)
        return False

    def _end(self, how: signal.Signals, timeout_s: float) -> None:
        process = self._process
        if process is None:
            return
        self._process = None
        for sign, patience_s in ((how, timeout_s), (signal.SIGKILL, None)):
            if process.poll() is not None:
                return
            process.send_signal(sign)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(patience_s)

    def _log_since(self, offset: int) -> str:
        with self.log_path.open("rb") as log:
            log.seek(offset)
            return log.read().decode(errors="replace")


def _give(path: Path, user: ServerUser | None) -> None:
    if user is not None:
        os.chown(path, user.uid, user.gid)
