"""A cluster that lives as long as a block of code."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from carteiro.embedded.binaries import Binaries
from carteiro.embedded.cluster import Cluster
from carteiro.embedded.server_user import server_user


@contextlib.contextmanager
def throwaway_cluster(
    *,
    settings: Mapping[str, str] | None = None,
    binaries: Binaries | None = None,
    tcp_port: int | None = None,
    folder: Path | None = None,
) -> Iterator[Cluster]:
    """A running, not durable cluster in a temporary folder, made in `folder`; both are gone after the block."""
    home = Path(tempfile.mkdtemp(prefix="carteiro-postgres-", dir=folder))
    user = server_user()
    if user is not None:
        os.chown(home, user.uid, user.gid)
    try:
        with Cluster(home / "data", durable=False, settings=settings, binaries=binaries, tcp_port=tcp_port) as cluster:
            yield cluster
    finally:
        shutil.rmtree(home, ignore_errors=True)
