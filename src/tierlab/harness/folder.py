# SPDX-License-Identifier: MIT
"""The folder of a session: a listening socket and an arena, in shared memory.

It is mounted into the sandbox at a short path: Unix sockets allow about a hundred characters. A lab that is
killed leaves its folders behind; the next one removes them. Whose owner lives is told by a lock, which the
kernel drops with the process.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import socket
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tierlab.errors import HarnessError
from tierlab.harness.arena import DEFAULT_BYTES, Arena
from tierlab.toolchain.engine import Mount

if TYPE_CHECKING:
    from types import TracebackType

MOUNT_POINT = "/session"

ROOM_BYTES = 32 << 20
"""What the tensors of ordinary problems take, twice."""

_SHARED = Path("/dev/shm")
_PREFIX = "tierlab-session-"
_LOCK = "lock"


class SessionFolder:
    """A fresh folder with `socket` and `arena`; removed at the end.

    It lies in /dev/shm where there is one with room, else among the temporary files, or in `parent`.
    HarnessError if it cannot be made.
    """

    def __init__(self, arena_bytes: int = DEFAULT_BYTES, parent: Path | None = None) -> None:
        base = parent or _base()
        sweep(base)
        with contextlib.ExitStack() as undo:
            try:
                self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
                undo.callback(shutil.rmtree, self.path, ignore_errors=True)
                undo.callback(os.close, _locked(self.path))
                self.arena = undo.enter_context(Arena(self.path / "arena", arena_bytes))
                self.listener = undo.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
                self.listener.bind(str(self.path / "socket"))
                self.listener.listen(1)
            except OSError as error:
                msg = (
                    f"cannot make a session folder in {base} ({error.strerror or error}): no lane can start. "
                    "Make that folder writable or free space there"
                )
                raise HarnessError(msg) from error
            self._undo = undo.pop_all()

    @property
    def mount(self) -> Mount:
        """What the sandbox must mount for the harness to find the session."""
        return Mount(self.path, MOUNT_POINT, writable=True)

    def close(self) -> None:
        """Close and remove everything; harmless a second time."""
        self._undo.close()

    def __enter__(self) -> SessionFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _base() -> Path:
    """Shared memory, unless it is missing, read-only or nearly full (containers often have little of it)."""
    if os.access(_SHARED, os.W_OK):
        sweep(_SHARED)
        if shutil.disk_usage(_SHARED).free >= ROOM_BYTES:
            return _SHARED
    return Path(tempfile.gettempdir())


def sweep(base: Path) -> list[Path]:
    """Remove the session folders in `base` whose lab is dead; return which."""
    removed = []
    for folder in base.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)
                removed.append(folder)
            finally:
                os.close(lock)
    return removed


def _locked(folder: Path) -> int:
    """A descriptor that holds the folder's lock. The lock appears only when it is held, so that nobody takes
    a folder that is being made for one that was left."""
    early = folder / f"{_LOCK}.new"
    lock = os.open(early, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    early.rename(folder / _LOCK)
    return lock
