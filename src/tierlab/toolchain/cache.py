# SPDX-License-Identifier: MIT
"""The cache directory: where it is, how it is locked, how things get into it whole or not at all."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tierlab.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PARTIAL_MARK = ".partial-"


def cache_root() -> Path:
    """$TIERLAB_CACHE, else ${XDG_CACHE_HOME:-~/.cache}/tierlab; not created here."""
    own = os.environ.get("TIERLAB_CACHE")
    if own:
        return Path(own).absolute()
    shared = os.environ.get("XDG_CACHE_HOME")
    return (Path(shared).absolute() if shared else Path.home() / ".cache") / "tierlab"


def toolchain_cache() -> Path:
    """The directory of images and their logs, made if needed; EngineError where that is impossible."""
    path = cache_root() / "toolchain"
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        msg = (
            f"the cache directory {path} cannot be made ({error.strerror}), so no toolchain can be kept. "
            "Set TIERLAB_CACHE to a directory that you may write to"
        )
        raise EngineError(msg) from error
    return path


@contextmanager
def locked(path: Path, on_wait: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold an exclusive lock on the file `path` (made if needed) among all processes.

    `on_wait` is called once if another holds it. The kernel drops the lock when its holder dies, so no
    stale lock can remain; the empty file stays, because removing it would let two holders in.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if on_wait is not None:
                on_wait()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def built_whole(final: Path) -> Iterator[Path]:
    """Yield an empty directory beside `final` that becomes `final` if the body ends well.

    After a failure nothing of it is left. After a sudden death of the lab a leftover remains that
    `sweep_partials` removes; `final` itself is never half there. Hold a lock around this.
    """
    partial = final.with_name(f"{final.name}{PARTIAL_MARK}{os.getpid()}")
    remove_tree(partial)
    partial.mkdir(parents=True)
    try:
        yield partial
        remove_tree(final)
        partial.rename(final)
    except BaseException:
        remove_tree(partial)
        raise


def sweep_partials(directory: Path) -> list[Path]:
    """Remove what a died lab left half-made in `directory`; call it under the lock."""
    leftovers = list(directory.glob(f"*{PARTIAL_MARK}*"))
    for leftover in leftovers:
        remove_tree(leftover)
    return leftovers


def remove_tree(path: Path) -> None:
    """Remove a file or tree; directories without write permission do not stop it, absence is no error."""
    if path.is_symlink() or path.is_file():
        path.unlink()
        return
    if not path.exists():
        return
    mounted = _mounts_below(path)
    if mounted:
        msg = (
            f"something is still mounted at {mounted[0]}, so {path} was not removed: what is mounted there "
            f"would go too. Unmount it (sudo umount {mounted[0]}) and start again"
        )
        raise EngineError(msg)
    for folder, _, _ in os.walk(path):
        with suppress(OSError):
            os.chmod(folder, 0o700)
    shutil.rmtree(path, ignore_errors=True)
    if path.exists():
        msg = f"{path} cannot be removed; the cache keeps a leftover. Remove it by hand and start again"
        raise EngineError(msg)


def _mounts_below(path: Path, table: Path = Path("/proc/self/mounts")) -> list[str]:
    """Mount points below `path`, innermost first; blanks in their names come as octal escapes."""
    prefix = f"{path.absolute()}/"
    points = [line.split()[1].replace("\\040", " ") for line in table.read_text().splitlines()]
    return sorted((point for point in points if point.startswith(prefix)), reverse=True)


def tree_bytes(path: Path) -> int:
    """Bytes on disk below `path` (blocks that are used, as `du` counts); 0 if it is not there."""
    total = 0
    seen: set[tuple[int, int]] = set()
    for folder, _, names in os.walk(path):
        for name in names:
            with suppress(OSError):
                status = os.lstat(os.path.join(folder, name))
                if status.st_nlink == 1 or (status.st_dev, status.st_ino) not in seen:
                    seen.add((status.st_dev, status.st_ino))
                    total += status.st_blocks * 512
    return total


def require_space(directory: Path, needed: int, purpose: str) -> None:
    """Raise EngineError unless `needed` bytes are free where `directory` lies."""
    free = shutil.disk_usage(directory).free
    if free < needed:
        msg = (
            f"{directory} has {free / 2**30:.1f} GiB free and {purpose} needs {needed / 2**30:.1f} GiB; "
            "nothing was started. Free some space or set TIERLAB_CACHE to a larger disk"
        )
        raise EngineError(msg)


def is_disk_full(text: str) -> bool:
    """Whether a tool's output says that the disk (or a quota) is full; tools differ in capitals."""
    words = text.lower()
    return any(os.strerror(number).lower() in words for number in (errno.ENOSPC, errno.EDQUOT))
