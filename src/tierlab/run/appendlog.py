# SPDX-License-Identifier: MIT
"""Appending lines to a file that several processes append to, without ever losing a line already there.

One O_APPEND `write()` is atomic on local file systems only while it is complete: on a full disk it comes back
short, and the next writer's line would be glued to the stump. So each write holds the file's lock, takes a
stump of its own away again, and ends the stump that a killed machine left behind before it appends.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from tierlab.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path


@contextmanager
def explained(path: Path, doing: str) -> Iterator[None]:
    """Turn an OSError on `path` into a StoreError that says what is lost (nothing stored) and what to do."""
    try:
        yield
    except OSError as error:
        msg = (
            f"cannot {doing} {path}: {error.strerror or error}. What was stored before is intact. "
            "Make room or correct the permissions, then resume the run."
        )
        raise StoreError(msg) from error


class AppendLog:
    """An open file to append complete lines to; any number of processes may hold one on the same file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with explained(path, "open"):
            # Readable too: the last byte tells whether the file ends in a stump.
            self._fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def append(self, lines: bytes) -> None:
        """Append whole lines (they end in a newline) in one write; all of them or none are stored."""
        with explained(self.path, "write"):
            fcntl.flock(self._fd, fcntl.LOCK_EX)
            try:
                size = os.fstat(self._fd).st_size
                torn = size > 0 and os.pread(self._fd, 1, size - 1) != b"\n"
                self._write(b"\n" + lines if torn else lines, size)
            finally:
                fcntl.flock(self._fd, fcntl.LOCK_UN)

    def _write(self, data: bytes, size: int) -> None:
        try:
            written = os.write(self._fd, data)
            if written < len(data):  # asking for the rest tells the reason: ENOSPC, EDQUOT, EFBIG
                written += os.write(self._fd, data[written:])
            if written < len(data):
                raise OSError(0, "short write, the disk is probably full")
        except BaseException:
            with suppress(OSError):  # the reason for the short write is what the user needs to read
                os.ftruncate(self._fd, size)
            raise

    def sync(self) -> None:
        """Return when everything appended lies on the disk."""
        with explained(self.path, "flush"):
            os.fdatasync(self._fd)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def replace_file(path: Path, chunks: Iterable[bytes]) -> None:
    """Write `path` in one step: a reader sees the old content or the new, also after a crash."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with explained(path, "write"):
        try:
            with draft.open("wb") as stream:
                stream.writelines(chunks)
                stream.flush()
                os.fsync(stream.fileno())
            draft.replace(path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
