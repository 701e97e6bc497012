# SPDX-License-Identifier: MIT
"""The shared memory file through which tensors travel, cut into slots.

While the emulated process works on the tensors of one slot, the lab judges those of another. A slot
gives out memory upwards from its start and is emptied as a whole.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from typing import TYPE_CHECKING

import numpy as np

from tierlab.errors import HarnessError
from tierlab.harness.messages import Span

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from numpy.typing import DTypeLike, NDArray

ALIGNMENT = 64
"""Spans start at multiples of this many bytes: the widest that ggml aligns tensors to."""

DEFAULT_BYTES = 256 << 20
"""Address space, not memory: pages cost nothing until a span covers them."""

_BACKING_STEP = 1 << 20


class Arena:
    """A file of `nbytes` bytes at `path`, mapped and cut into `slots` equal slots."""

    def __init__(self, path: Path, nbytes: int = DEFAULT_BYTES, slots: int = 2) -> None:
        self.path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(self._file, nbytes)
            self._map = mmap.mmap(self._file, nbytes)
        except BaseException:
            os.close(self._file)
            raise
        size = nbytes // slots // mmap.PAGESIZE * mmap.PAGESIZE
        self.slots: tuple[Slot, ...] = tuple(Slot(self, index * size, size) for index in range(slots))

    def view(self, span: Span, dtype: DTypeLike = np.uint8) -> NDArray[np.generic]:
        """The bytes of a span as a writable array; it becomes invalid when the slot is emptied."""
        kind = np.dtype(dtype)
        if span.nbytes % kind.itemsize:
            msg = f"a span of {span.nbytes} bytes holds no whole number of {kind.name}; fix the caller"
            raise HarnessError(msg)
        return np.frombuffer(self._map, kind, span.nbytes // kind.itemsize, span.offset)

    def back(self, offset: int, nbytes: int) -> None:
        """Give the range real memory now: later, lack of it would kill the lab by SIGBUS."""
        try:
            os.posix_fallocate(self._file, offset, nbytes)
        except OSError as error:
            msg = (
                f"no room for {nbytes} bytes of tensors in {self.path.parent} ({error.strerror}): "
                "the lane cannot go on. Free space there, or run fewer lanes at once"
            )
            raise HarnessError(msg) from error

    def close(self) -> None:
        """Unmap, unless arrays still look into the map (then they keep it), and close the file."""
        with contextlib.suppress(BufferError):
            self._map.close()
        os.close(self._file)

    def __enter__(self) -> Arena:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Slot:
    """A part of the arena that is filled piece by piece and emptied at once."""

    def __init__(self, arena: Arena, base: int, nbytes: int) -> None:
        self.arena = arena
        self.nbytes = nbytes
        self._base = base
        self._used = 0
        self._backed = 0

    def reset(self) -> None:
        """Empty the slot. Spans given out before must no longer be in the harness's hands."""
        self._used = 0

    def reserve(self, nbytes: int) -> Span:
        """Room for `nbytes` bytes (> 0), contents undefined; HarnessError if the slot is full."""
        start = -(-self._used // ALIGNMENT) * ALIGNMENT
        if nbytes <= 0 or start + nbytes > self.nbytes:
            msg = (
                f"a problem needs {start + nbytes} bytes of tensors, a slot has {self.nbytes}: it cannot be "
                "run. Choose smaller shapes or a larger arena"
            )
            raise HarnessError(msg)
        self._used = start + nbytes
        if self._used > self._backed:
            target = min(-(-self._used // _BACKING_STEP) * _BACKING_STEP, self.nbytes)
            self.arena.back(self._base + self._backed, target - self._backed)
            self._backed = target
        return Span(self._base + start, nbytes)

    def put(self, array: NDArray[np.generic]) -> Span:
        """Copy an array's bytes (in C order) into the slot."""
        contiguous = np.ascontiguousarray(array)
        span = self.reserve(contiguous.nbytes)
        self.arena.view(span)[:] = contiguous.reshape(-1).view(np.uint8)
        return span

    def view(self, span: Span, dtype: DTypeLike = np.uint8) -> NDArray[np.generic]:
        """As Arena.view."""
        return self.arena.view(span, dtype)
