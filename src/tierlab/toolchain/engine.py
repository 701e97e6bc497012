# SPDX-License-Identifier: MIT
"""What every engine offers: the toolchain image, entered under limits.

Two ways in. `Engine.run` executes one command to its end and logs it (builds, probes).
`Engine.sandbox` opens a place in which code under test is spawned, again and again. Both see the
toolchain's file tree read-only plus the mounts that the caller names, an empty writable /tmp, no network
(unless `run` is asked for it), no capabilities, and nothing of the host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Protocol

from tierlab.errors import EngineError

GIB = 1 << 30

EMULATORS: Mapping[str, str] = {
    "qemu-10.0": "/opt/qemu-10.0/usr/bin/qemu-aarch64",
    "qemu-11.1": "/opt/qemu-11.1/usr/bin/qemu-aarch64",
}
"""Emulator key → its program inside the image."""

KLEIDIAI_ROOT = "/opt/kleidiai/usr"
"""Inside the image: `include/` and `lib/aarch64-linux-gnu/libkleidiai.a` lie below this."""

ARM_SYSROOT = "/usr/aarch64-linux-gnu"
"""Inside the image: the AArch64 libraries; what `qemu-aarch64 -L` wants."""

OWN_DIRECTORIES = frozenset(
    {"bin", "boot", "dev", "etc", "home", "lib", "lib32", "lib64", "libx32", "media", "mnt"}
    | {"opt", "proc", "root", "run", "sbin", "srv", "sys", "tmp", "usr", "var"}
)
"""Top-level directories of the image: no mount may point into them."""

BASE_ENVIRONMENT: Mapping[str, str] = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/tmp",
    "LANG": "C.UTF-8",
}
"""All that a spawned process inherits; the caller's `env` is laid over it."""


@dataclass(frozen=True)
class Mount:
    """`source` of the host appears at `target` inside, read-only unless `writable`.

    A source is an existing file or directory; a target is absolute and outside the image's own
    top-level directories (`/lab/build` yes, `/opt/build` no). Sockets and memory-mapped files work through a
    mounted directory. Several mounts may nest; the outer one must come first.
    """

    source: Path
    target: str
    writable: bool = False

    def check(self) -> None:
        """Raise EngineError if the mount cannot work on some engine."""
        target = PurePosixPath(self.target)
        if not target.is_absolute() or len(target.parts) < 2 or ".." in target.parts:
            msg = f"mount target {self.target!r} is not an absolute path; nothing was started"
            raise EngineError(msg)
        if target.parts[1] in OWN_DIRECTORIES:
            msg = (
                f"mount target {self.target} lies in the image's own /{target.parts[1]}; "
                "nothing was started. Use another top-level directory, such as /lab"
            )
            raise EngineError(msg)
        if not self.source.exists():
            msg = f"{self.source} does not exist and cannot be mounted at {self.target}; nothing was started"
            raise EngineError(msg)


@dataclass(frozen=True)
class Limits:
    """What a sandbox may use: bytes of memory, and processes plus threads at one time.

    The emulator's own threads and memory count. docker, and rootfs where control groups can be made: for all
    processes together. rootfs elsewhere: memory for each process (its private writable memory).
    """

    memory_bytes: int = 4 * GIB
    processes: int = 128


HOUSEKEEPING_PROCESSES = 3
"""What an engine itself keeps running inside a sandbox; not taken from the caller's allowance."""

BUILD_LIMITS = Limits(memory_bytes=16 * GIB, processes=4096)
"""For `run` unless the caller says otherwise: a compiler may be large, but not endless."""

TMP_BYTES = GIB
"""Size of the private /tmp, whose pages count as memory."""


class Process(Protocol):
    """A process (with all that it started) inside a sandbox."""

    def poll(self) -> int | None:
        """The return code, or None while it runs; 128 + signal after a death by signal."""
        ...

    def wait(self, timeout: float | None = None) -> int:
        """Wait `timeout` seconds at most; raises the builtin TimeoutError if it still runs then."""
        ...

    def kill(self) -> None:
        """Kill it and everything it started, and return when they are gone. Harmless after its end."""
        ...

    def stdout_text(self) -> str:
        """What it wrote to standard output so far (first and last parts if it is very long)."""
        ...

    def stderr_text(self) -> str:
        """What it wrote to standard error so far (first and last parts if it is very long)."""
        ...


class Sandbox(Protocol):
    """An open sandbox; processes are spawned one after another, at most one at a time."""

    def spawn(
        self,
        argv: Sequence[str],
        env: Mapping[str, str] | None = None,
        *,
        workdir: str = "/",
        log: Path | None = None,
    ) -> Process:
        """Start a process; with `log` both its streams go to that file instead of being kept.

        The process dies when the lab dies. Spawn from a thread that lives as long as the process.
        """
        ...


class Engine(Protocol):
    """A way to enter the toolchain image."""

    @property
    def name(self) -> str:
        """`docker`, `rootfs` or `native`."""
        ...

    @property
    def emulated(self) -> bool:
        """Whether AArch64 programs need one of EMULATORS in front (False on real Arm)."""
        ...

    def prepare(self) -> None:
        """Make the image if it is not there; says what it does and takes minutes the first time."""
        ...

    def close(self) -> None:
        """Release connections; optional at the end of a program."""
        ...

    def identity(self) -> str:
        """SHA-256 (hex) of the recipe and of every package version in the image; prepares it first."""
        ...

    def manifest(self) -> Mapping[str, str]:
        """Package → exact version, for every package in the image; prepares it first."""
        ...

    def run(
        self,
        argv: Sequence[str],
        *,
        mounts: Sequence[Mount] = (),
        env: Mapping[str, str] | None = None,
        workdir: str = "/",
        log: Path,
        network: bool = False,
        limits: Limits | None = None,
        timeout: float | None = None,
    ) -> int:
        """Run a command to its end, both its streams into `log` (created anew), and return its code.

        Raises EngineError if the engine fails, TimeoutError (the command is killed) after `timeout` seconds.
        """
        ...

    def sandbox(
        self, mounts: Sequence[Mount] = (), limits: Limits | None = None
    ) -> AbstractContextManager[Sandbox]:
        """A sandbox for code under test; leaving the context kills what still runs in it."""
        ...


Say = Callable[[str], None]
"""Where an engine tells its progress, one line a call."""


def check_mounts(mounts: Sequence[Mount]) -> None:
    """Check each mount; see Mount.check."""
    for mount in mounts:
        mount.check()


@contextmanager
def killed_at_end(process: Process) -> Iterator[Process]:
    """Whatever happens inside (Ctrl-C too), the process is gone afterwards."""
    try:
        yield process
    finally:
        process.kill()
