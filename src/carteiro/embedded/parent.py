"""Children that do not outlive us, however we end."""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def end_with_parent(parent_pid: int, how: signal.Signals) -> None:
    """For `preexec_fn`: have the kernel send `how` to this process when the thread that started it ends.

    A change of user clears the flag, so that has to come before. Takes no lock and imports nothing. Linux only;
    elsewhere nothing happens.
    """
    if _libc is None:
        return
    _libc.prctl(_PR_SET_PDEATHSIG, how)
    if os.getppid() != parent_pid:  # the parent died before the call above
        os._exit(1)
