"""Processes with a wrong wall clock: a small library that is loaded before libc. Needs a C compiler on Linux."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

SOURCE = Path(__file__).with_name("wall_clock.c")


class NoCompilerError(RuntimeError):
    """Clocks cannot be set wrong on this machine."""


def shifted_by(seconds: int, home: Path) -> Mapping[str, str]:
    """Variables for a process whose wall clock is to be wrong by so much. Raises NoCompilerError."""
    library = home / "wall_clock.so"
    if not library.exists():
        compiler = shutil.which(os.environ.get("CC", "cc"))
        if compiler is None or not sys.platform.startswith("linux"):
            raise NoCompilerError("a wrong clock takes Linux and a C compiler")
        home.mkdir(parents=True, exist_ok=True)
        subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", library, SOURCE, "-ldl"], check=True)
    return {"LD_PRELOAD": str(library), "CLOCK_SHIFT_S": str(seconds)}
