# SPDX-License-Identifier: MIT
"""Control groups for the rootfs engine, where the caller may make them.

An ordinary user's processes are counted by RLIMIT_NPROC inside their user namespace, but the kernel exempts
the real root from it: for root only a control group stops a fork bomb. It also bounds the memory of all
processes together, where a resource limit bounds each alone.
"""

from __future__ import annotations

import itertools
import os
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tierlab.toolchain.engine import HOUSEKEEPING_PROCESSES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tierlab.toolchain.engine import Limits

MOUNT = Path("/sys/fs/cgroup")
PREFIX = "tierlab-"
CONTROLLERS = ("memory", "pids")

_numbers = itertools.count()


def parents(mount: Path = MOUNT) -> list[Path]:
    """The directories in which groups can be made: one (version 2), two (version 1) or none."""
    if (mount / "cgroup.controllers").is_file():
        try:
            enabled = (mount / "cgroup.subtree_control").read_text().split()
        except OSError:
            return []
        found = [mount] if set(CONTROLLERS) <= set(enabled) else []
    else:
        found = [mount / controller for controller in CONTROLLERS]
    usable = all(os.access(folder / "cgroup.procs", os.W_OK) for folder in found)
    return found if usable else []


def settings(limits: Limits, version_two: bool) -> dict[str, str]:
    """File of a group → what to write to it. Swap would only delay the end, so there is none."""
    if version_two:
        memory = {"memory.max": str(limits.memory_bytes), "memory.swap.max": "0"}
    else:
        memory = {"memory.limit_in_bytes": str(limits.memory_bytes)}
    return {**memory, "pids.max": str(limits.processes + HOUSEKEEPING_PROCESSES)}


@contextmanager
def group(limits: Limits, mount: Path = MOUNT) -> Iterator[list[Path]]:
    """The `cgroup.procs` files that a process must enter to be limited; empty where no group can be made."""
    name = f"{PREFIX}{os.getpid()}-{next(_numbers)}"
    folders = [parent / name for parent in parents(mount)]
    try:
        for folder in folders:
            folder.mkdir()
            _configure(folder, limits, version_two=len(folders) == 1)
    except OSError:
        _remove(folders)
        folders = []
    try:
        yield [folder / "cgroup.procs" for folder in folders]
    finally:
        _remove(folders)


def _configure(folder: Path, limits: Limits, version_two: bool) -> None:
    for name, value in settings(limits, version_two).items():
        file = folder / name
        if file.exists():
            file.write_text(value)


def _remove(folders: list[Path]) -> None:
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()


def sweep_groups(mount: Path = MOUNT) -> None:
    """Remove the empty groups of labs that died (their processes died with them)."""
    for parent in parents(mount):
        for folder in parent.glob(f"{PREFIX}*"):
            owner = folder.name.removeprefix(PREFIX).split("-")[0]
            if not (owner.isdigit() and Path("/proc", owner).exists()):
                _remove([folder])
