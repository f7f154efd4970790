"""PgBouncer in transaction mode in front of a test's Postgres."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from carteiro.embedded.parent import end_with_parent
from carteiro.embedded.server_user import server_user
from tests.support.processes import free_port
from tests.support.waiting import until

PROGRAM = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
"""None: it is not installed."""
CLIENT = "client"
"""Whom the pooler lets in, its console (database `pgbouncer`) included. Postgres sees the user of the DSN behind it.
"""


@contextlib.asynccontextmanager
async def running_pooler(dsn: str, *, connections: int) -> AsyncIterator[str]:
    """Answers the DSN that leads through it to the same database, with so many connections to Postgres at most.

    The settings that clients ask for are dropped without a word, which is the worst that a pooler may do to them.
    """
    assert PROGRAM is not None
    given = conninfo_to_dict(dsn)
    port = free_port()
    behind = {name: given[name] for name in ("host", "port", "user", "password", "dbname") if given.get(name)}
    user = server_user()  # it refuses to run as root, as Postgres does
    home = Path(tempfile.mkdtemp(prefix="carteiro-pooler-", dir="/tmp"))
    config = home / "pgbouncer.ini"
    config.write_text(
        f"""[databases]
carteiro = {" ".join(f"{name}={value}" for name, value in behind.items())}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
admin_users = {CLIENT}
pool_mode = transaction
default_pool_size = {connections}
query_wait_timeout = 10
ignore_startup_parameters = options
log_connections = 0
log_disconnections = 0
"""
    )
    identity: dict[str, Any] = {}
    if user is not None:
        for path in (home, config):
            os.chown(path, user.uid, user.gid)
        identity = {"user": user.uid, "group": user.gid, "extra_groups": []}
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(
            [PROGRAM, str(config)],
            **identity,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            process_group=0,
            preexec_fn=partial(end_with_parent, os.getpid(), signal.SIGKILL),  # noqa: PLW1509 (it takes no lock)
        )

    def listens() -> bool:
        assert process.poll() is None, (home / "log").read_text()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    try:
        await until(listens, 10, "the pooler listens")
        yield make_conninfo(host="127.0.0.1", port=port, dbname="carteiro", user=CLIENT)
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(home)
