# SPDX-License-Identifier: MIT
"""Marks containers with the lab that made them, so that those of a dead lab are known."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

LAB_LABEL = "tierlab.lab"
BOOT_LABEL = "tierlab.boot"
NAMESPACE_LABEL = "tierlab.pid-namespace"


def labels() -> dict[str, str]:
    """Process number and start time of this lab, the boot and the process namespace they belong to."""
    pid = os.getpid()
    return {
        LAB_LABEL: f"{pid}:{_start_time(pid)}",
        BOOT_LABEL: _boot(),
        NAMESPACE_LABEL: _namespace(),
    }


def is_dead(found: Mapping[str, str]) -> bool:
    """Whether the lab that set these labels is certainly gone.

    A lab in another process namespace (a container that shares the engine's socket) cannot be looked up
    from here, so it counts as alive; its containers end by themselves with it.
    """
    if found.get(BOOT_LABEL) != _boot():
        return True
    if found.get(NAMESPACE_LABEL) != _namespace():
        return False
    pid, _, started = found.get(LAB_LABEL, "").partition(":")
    return not (pid.isdigit() and _start_time(int(pid)) == started)


def _start_time(pid: int) -> str:
    """Start time in clock ticks after boot, which tells a reused process number; empty if there is none."""
    try:
        text = Path("/proc", str(pid), "stat").read_text()
    except OSError:
        return ""
    return text.rsplit(")", 1)[1].split()[19]


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _namespace() -> str:
    return os.readlink("/proc/self/ns/pid")
