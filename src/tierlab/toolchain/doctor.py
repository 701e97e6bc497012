# SPDX-License-Identifier: MIT
"""What is found on this machine, what is missing, and what to do about it. Changes nothing."""

from __future__ import annotations

import platform
import shutil
import subprocess
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from tierlab.errors import EngineError
from tierlab.toolchain import cgroup, host_tools
from tierlab.toolchain.cache import cache_root, tree_bytes
from tierlab.toolchain.docker_client import connect, told
from tierlab.toolchain.docker_engine import DockerEngine
from tierlab.toolchain.native_engine import is_arm
from tierlab.toolchain.rootfs_engine import RootfsEngine, check_entry

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tierlab.toolchain.engine import Engine

GIB = 1 << 30
DISK_WANTED = 8 * GIB
"""The image, the trees, the builds and ccache of the default preset."""

SHARED_MEMORY_WANTED = GIB // 4
"""The arenas of a few harness sessions."""

TOLD_PACKAGES = ("g++-aarch64-linux-gnu", "cmake", "qemu-user@/opt/qemu-10.0", "qemu-user@/opt/qemu-11.1")


class Level(StrEnum):
    """How a finding bears on the lab."""

    OK = "ok"
    NOTE = "note"
    MISSING = "missing"


@dataclass(frozen=True)
class Finding:
    """One thing looked at; `remedy` is what to do, empty if nothing."""

    level: Level
    subject: str
    detail: str
    remedy: str = ""

    def __str__(self) -> str:
        text = f"{self.level:<8} {self.subject:<22}  {self.detail}"
        return f"{text}\n{'':<32} → {self.remedy}" if self.remedy else text


def examine() -> list[Finding]:
    """Look at the engines, tools, limits, disk and cache; the last finding is the conclusion."""
    findings = [_machine(), *_docker(), *_rootfs(), _limits(), *_space()]
    return [*findings, _conclusion(findings)]


def can_work(findings: list[Finding]) -> bool:
    """Whether at least one engine can be used."""
    return findings[-1].level is not Level.MISSING


def _machine() -> Finding:
    system = f"{platform.system()} {platform.release()} on {platform.machine()}"
    detail = f"{system}, Python {platform.python_version()}"
    if is_arm():
        detail += "; --engine native can run cells without an emulator"
    return Finding(Level.OK, "machine", detail)


def _docker() -> Iterator[Finding]:
    try:
        client = connect()
        with told("telling its version"):
            version = client.version()
        engine = DockerEngine(client=client)
    except EngineError as error:
        yield Finding(Level.NOTE, "docker", str(error))
        return
    yield Finding(Level.OK, "docker", f"answers, version {version.get('Version', '?')}")
    yield _image("docker image", engine, engine.is_made)
    client.close()


def _rootfs() -> Iterator[Finding]:
    for tool in (*host_tools.TO_MAKE_TREE, *host_tools.TO_ENTER_TREE):
        yield _tool(tool)
    if not host_tools.is_root():
        yield _ordinary_user()
    try:
        engine = RootfsEngine(say=lambda _: None)
    except EngineError as error:
        yield Finding(Level.MISSING, "rootfs", str(error))
        return
    obstacle = engine.obstacle()
    if obstacle is not None:
        yield Finding(Level.NOTE, "rootfs", obstacle)
        return
    entry = _entry(engine.tree if engine.is_made else None)
    yield entry
    if entry.level is Level.OK:
        yield _image("rootfs tree", engine, engine.is_made)


def _tool(tool: host_tools.HostTool) -> Finding:
    if tool.found():
        return Finding(Level.OK, Path(tool.name).stem, _version(tool.name))
    remedy = "installed when needed" if host_tools.can_install() else host_tools.install_command([tool])
    return Finding(Level.NOTE, Path(tool.name).stem, f"not here; it {tool.purpose}", remedy)


def _version(program: str) -> str:
    if program.startswith("/"):
        return program
    done = subprocess.run([program, "--version"], capture_output=True, check=False, stdin=subprocess.DEVNULL)
    lines = done.stdout.decode(errors="replace").splitlines()
    return lines[0] if lines else "found"


def _ordinary_user() -> Finding:
    try:
        host_tools.ensure_ordinary_user_can_make_trees()
    except EngineError as error:
        return Finding(Level.NOTE, "ordinary user", str(error))
    return Finding(Level.OK, "ordinary user", "newuidmap and subordinate ids are there")


def _entry(root: Path | None) -> Finding:
    """Whether bubblewrap works here; before there is a tree, nothing can be entered."""
    if root is None:
        return Finding(Level.OK, "rootfs", "can be used; its tree is not made yet")
    try:
        check_entry(root)
    except EngineError as error:
        return Finding(Level.MISSING, "rootfs", str(error))
    return Finding(Level.OK, "rootfs", "bubblewrap enters the tree")


def _image(subject: str, engine: Engine, made: bool) -> Finding:
    if not made:
        return Finding(Level.NOTE, subject, "not made yet", "invoke image (or the first run) makes it")
    try:
        return Finding(Level.OK, subject, _told_versions(engine.manifest()))
    except EngineError as error:
        return Finding(Level.MISSING, subject, str(error))


def _told_versions(manifest: Mapping[str, str]) -> str:
    wanted = [*TOLD_PACKAGES, *(name for name in manifest if name.startswith("libkleidiai"))]
    return ", ".join(f"{name.split('@')[0]} {manifest[name]}" for name in wanted if name in manifest)


def _limits() -> Finding:
    if cgroup.parents():
        return Finding(Level.OK, "limits", "control groups bound memory and processes of a rootfs sandbox")
    if host_tools.is_root():
        return Finding(
            Level.NOTE,
            "limits",
            "no control group can be made, and the kernel does not count root's processes: a fork bomb in a "
            "rootfs sandbox would not be stopped",
            "run the lab as an ordinary user, or use --engine docker",
        )
    return Finding(Level.OK, "limits", "resource limits bound memory (each process) and processes (all)")


def _space() -> Iterator[Finding]:
    root = cache_root()
    place = next(folder for folder in (root, *root.parents) if folder.exists())
    yield _free("disk", place, DISK_WANTED, "free some, or set TIERLAB_CACHE to a larger disk")
    yield _free("shared memory", Path("/dev/shm"), SHARED_MEMORY_WANTED, "mount a larger /dev/shm")
    used = tree_bytes(root)
    yield Finding(
        Level.OK, "cache", f"{root}: {used / GIB:.2f} GiB", "invoke clean empties it" if used else ""
    )


def _free(subject: str, place: Path, wanted: int, remedy: str) -> Finding:
    try:
        free = shutil.disk_usage(place).free
    except OSError as error:
        return Finding(Level.NOTE, subject, f"{place} cannot be looked at ({error.strerror})", remedy)
    detail = f"{place}: {free / GIB:.1f} GiB free"
    if free < wanted:
        return Finding(Level.NOTE, subject, f"{detail}, {wanted / GIB:.1f} GiB wanted", remedy)
    return Finding(Level.OK, subject, detail)


def _conclusion(findings: list[Finding]) -> Finding:
    good = {found.subject for found in findings if found.level is Level.OK}
    working = [name for name in ("docker", "rootfs") if name in good]
    if working:
        return Finding(Level.OK, "conclusion", f"the lab can run; engine by default: {working[0]}")
    return Finding(Level.MISSING, "conclusion", "no engine can be used", "do one of the things said above")
