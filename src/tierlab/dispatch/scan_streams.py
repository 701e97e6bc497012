# SPDX-License-Identifier: MIT
"""What an archive may cost, and streams that keep to it."""

from __future__ import annotations

import bz2
import gzip
import importlib
import io
import lzma
import zipfile
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from tierlab.dispatch.elf_reader import DamagedError, Window
from tierlab.errors import TierlabError

if TYPE_CHECKING:
    from collections.abc import Callable

XZ_MEMORY = 100 << 20
"""What `xz -9` needs is 65 MiB; a larger dictionary is refused."""

_SLICE = 1 << 18


def _zstd_error() -> tuple[type[Exception], ...]:
    """What the package `zstandard`, if it is there, raises on damaged data."""
    try:
        return (importlib.import_module("zstandard").ZstdError,)
    except ImportError:
        return ()


DAMAGE: tuple[type[Exception], ...] = (
    OSError,
    EOFError,
    ValueError,
    zlib.error,
    lzma.LZMAError,
    zipfile.BadZipFile,
    *_zstd_error(),
)
"""What decompressors raise on data that are not theirs."""


class LimitError(TierlabError):
    """The file would cost more than the lab spends on one file."""


@dataclass
class Budget:
    """What one file of the command line may cost, everything inside of it included."""

    most_bytes: int = 8 << 30
    most_members: int = 200_000
    most_depth: int = 6
    most_ratio: int = 150
    ratio_from: int = 64 << 20
    """Decompressed bytes of one stream before its ratio counts."""
    file_size: int = 1 << 62
    """Bytes of the file itself; what comes out of it in all has the same greatest ratio."""
    bytes: int = 0
    members: int = 0

    def member(self) -> None:
        """One more member of any archive."""
        self.members += 1
        if self.members > self.most_members:
            msg = f"more than {self.most_members:,} members: it is read no further"
            raise LimitError(msg)

    def deeper(self, depth: int) -> None:
        """An archive at that depth is about to be opened."""
        if depth >= self.most_depth:
            msg = f"archives nested more than {self.most_depth} deep: it is read no further"
            raise LimitError(msg)

    def spend(self, size: int) -> None:
        """Decompressed bytes that were taken."""
        self.bytes += size
        if self.bytes > self.most_ratio * self.file_size and self.bytes > 4 * self.ratio_from:
            ratio = self.most_ratio
            msg = f"it grows to {ratio} times its size, as a decompression bomb does: it is read no further"
            raise LimitError(msg)
        if self.bytes > self.most_bytes:
            msg = f"more than {self.most_bytes >> 30} GiB when decompressed: it is read no further"
            raise LimitError(msg)

    def metered(self, stream: BinaryIO, consumed: Callable[[], int]) -> BinaryIO:
        """`stream` (decompressed bytes), counted; `consumed` says from how many compressed bytes."""
        return cast("BinaryIO", io.BufferedReader(_Metered(self, stream, consumed), _SLICE))


class _Metered(io.RawIOBase):
    def __init__(self, budget: Budget, stream: BinaryIO, consumed: Callable[[], int]) -> None:
        self._budget, self._stream, self._consumed = budget, stream, consumed
        self._produced = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            piece = self._stream.read(len(buffer))
        except DAMAGE as problem:
            msg = f"it is damaged: {str(problem) or 'it ends too early'}"
            raise DamagedError(msg) from problem
        self._produced += len(piece)
        self._budget.spend(len(piece))
        ratio = self._produced // max(self._consumed(), 1)
        if self._produced > self._budget.ratio_from and ratio > self._budget.most_ratio:
            msg = f"it grows to {ratio:,} times its size, as a decompression bomb does: it is read no further"
            raise LimitError(msg)
        buffer[: len(piece)] = piece
        return len(piece)


class Part(io.RawIOBase):
    """A window as a file of its own."""

    def __init__(self, window: Window) -> None:
        self._window, self._at = window, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._window.size}[whence]
        self._at = max(base + offset, 0)
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        size = max(min(len(buffer), self._window.size - self._at), 0)
        buffer[:size] = self._window.read(self._at, size)
        self._at += size
        return size


class Continued(io.RawIOBase):
    """A stream whose first bytes were already taken."""

    def __init__(self, head: bytes, stream: BinaryIO) -> None:
        self._head, self._stream = head, stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = self._head[: len(buffer)] or self._stream.read(len(buffer))
        self._head = self._head[len(buffer) :]
        buffer[: len(piece)] = piece
        return len(piece)


class Limited(io.RawIOBase):
    """The next `size` bytes of a stream."""

    def __init__(self, stream: BinaryIO, size: int) -> None:
        self._stream, self.left = stream, size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        wanted = min(len(buffer), self.left)
        piece = self._stream.read(wanted) if wanted else b""
        if len(piece) < wanted:
            msg = f"it is truncated: a member ends {self.left - len(piece):,} bytes early"
            raise DamagedError(msg)
        self.left -= wanted
        buffer[:wanted] = piece
        return wanted


def as_file(raw: io.RawIOBase) -> BinaryIO:
    """Buffered, so that `read(n)` gives n bytes or the end."""
    return cast("BinaryIO", io.BufferedReader(raw, _SLICE))


class _Counted(io.RawIOBase):
    def __init__(self, stream: BinaryIO) -> None:
        self._stream, self.taken = stream, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = self._stream.read(len(buffer))
        self.taken += len(piece)
        buffer[: len(piece)] = piece
        return len(piece)


class _Xz(io.RawIOBase):
    """Like lzma.LZMAFile, but with a limit on its memory."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._decoder = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=XZ_MEMORY)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while True:
            if self._decoder.eof:
                rest = (self._decoder.unused_data or self._stream.read(_SLICE)).lstrip(b"\0")
                if not rest:
                    return 0
                self._decoder = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=XZ_MEMORY)
            else:
                rest = self._stream.read(_SLICE) if self._decoder.needs_input else b""
                if self._decoder.needs_input and not rest:
                    raise EOFError
            piece = self._decoder.decompress(rest, len(buffer))
            if piece:
                buffer[: len(piece)] = piece
                return len(piece)


def decompressed(kind: str, stream: BinaryIO, budget: Budget) -> BinaryIO:
    """The decompressed bytes of a gz, bz2, xz or zst stream, metered."""
    counted = _Counted(stream)
    source = as_file(counted)
    opened: Any
    if kind == "gz":
        opened = gzip.GzipFile(fileobj=source)
    elif kind == "bz2":
        opened = bz2.BZ2File(source)
    elif kind == "xz":
        opened = io.BufferedReader(_Xz(source))
    else:
        opened = _zstd(source)
    return budget.metered(opened, lambda: counted.taken)


def _zstd(source: BinaryIO) -> BinaryIO:
    """Through Python's own module (3.14 and later) or the package `zstandard`."""
    try:
        return cast("BinaryIO", importlib.import_module("compression.zstd").ZstdFile(source))
    except ImportError:
        pass
    try:
        package = importlib.import_module("zstandard")
    except ImportError:
        msg = "it is compressed with zstd, which Python before 3.14 reads with `pip install zstandard` only"
        raise DamagedError(msg) from None
    limited = package.ZstdDecompressor(max_window_size=128 << 20)
    try:
        opened = io.BufferedReader(limited.stream_reader(source, read_across_frames=True))
        empty = not opened.peek(1)
    except package.ZstdError as problem:
        msg = f"it is damaged: {problem}"
        raise DamagedError(msg) from problem
    if empty:  # the package takes a frame that was cut off for an empty one
        msg = "it is damaged: nothing can be decompressed"
        raise DamagedError(msg)
    return opened
