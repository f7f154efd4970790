"""Postgres refuses to run as root: as root, another user runs it and has to reach its files.

We never widen the permissions of folders that are not ours. Where a private folder (0700, such as /root) hides the
binaries, they are copied once to a folder of root's that everybody can read; where it hides the wanted data folder,
`reachable_home` names another place.
"""

import hashlib
import os
import pwd
import shutil
import stat
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from carteiro.embedded.binaries import Binaries

CANDIDATES = ("carteiro", "postgres", "nobody")
COPIES = Path("/var/cache/carteiro")
HOMES = Path("/var/lib/carteiro")


@dataclass(frozen=True, slots=True)
class ServerUser:
    """The account that runs the server."""

    uid: int
    gid: int


def server_user() -> ServerUser | None:
    """Who must run the server; None when the caller itself may (it is not root)."""
    if os.geteuid() != 0:
        return None
    for name in CANDIDATES:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return ServerUser(entry.pw_uid, entry.pw_gid)
    raise RuntimeError(f"Postgres refuses to run as root and none of the users {', '.join(CANDIDATES)} exists")


def reachable_home(preferred: Path) -> Path:
    """`preferred`, or a fixed folder of its own below /var/lib/carteiro when the server's user could not reach it."""
    preferred = preferred.absolute()
    user = server_user()
    if user is None or can_reach(user, preferred.parent):
        return preferred
    return HOMES / f"{preferred.name}-{hashlib.sha256(os.fsencode(preferred)).hexdigest()[:12]}"


def can_reach(user: ServerUser, path: Path) -> bool:
    """Whether the user may walk down to `path`. Levels that do not exist yet count as open: we create them."""
    for level in (*reversed(path.absolute().parents), path.absolute()):
        try:
            status = level.stat()
        except FileNotFoundError:
            return True
        if status.st_uid == user.uid:
            allowed = stat.S_IXUSR
        elif status.st_gid == user.gid:
            allowed = stat.S_IXGRP
        else:
            allowed = stat.S_IXOTH
        if not status.st_mode & allowed:
            return False
    return True


def reachable_binaries(binaries: Binaries, user: ServerUser | None) -> Binaries:
    """The same binaries at a place that the user can run them from."""
    if user is None or can_reach(user, binaries.bin_dir):
        return binaries
    if not binaries.wheel_dirs:
        raise RuntimeError(f"{binaries.bin_dir} cannot be reached by user id {user.uid}, which has to run Postgres")
    package = binaries.wheel_dirs[0]
    with binaries.postgres.open("rb") as server:
        content = hashlib.file_digest(server, "sha256").hexdigest()
    target = COPIES / f"{package.name}-{content[:12]}"
    if not target.exists():
        COPIES.mkdir(parents=True, exist_ok=True, mode=0o755)
        scratch = Path(tempfile.mkdtemp(dir=COPIES))
        for folder in binaries.wheel_dirs:
            shutil.copytree(folder, scratch / folder.name, symlinks=True)
        scratch.chmod(0o755)
        try:
            scratch.rename(target)
        except OSError:  # another process was first, and its copy is as good
            shutil.rmtree(scratch)
    return replace(binaries, bin_dir=target / binaries.bin_dir.relative_to(package.parent))
