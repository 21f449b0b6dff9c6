"""Measuring processes end with the study that started them, and with all that they started."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess

PR_SET_PDEATHSIG = 1
"""prctl(2), from linux/prctl.h: the signal to get when the parent ends."""


def hold(parent: int) -> None:
    """Tie this process to the process `parent`, which has to be the one that started it."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def end(child: subprocess.Popen[bytes]) -> int:
    """Kill a process that leads a group of its own, and the group; its exit status."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    return child.wait()
