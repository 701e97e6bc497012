# SPDX-License-Identifier: MIT
"""No worker without its lab: the kernel kills a process when the one that started it dies."""

from __future__ import annotations

import ctypes
import signal

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Let the kernel kill this process at the moment its parent dies.

    A worker that outlived its lab would go on storing verdicts, while the same command, given again, already
    executes the same cells.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
