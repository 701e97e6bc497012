# SPDX-License-Identifier: MIT
"""Reading a header's fields in order, each checked against what is left before it is believed."""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING, Any

from tierlab.errors import ModelFileError

if TYPE_CHECKING:
    from pathlib import Path

WINDOW_BYTES = 1 << 20
HEADER_LIMIT = 128 << 20
"""Bytes that a header may take. The largest vocabularies (260,000 tokens with their merges) need 15 MB."""

SCALARS: dict[int, tuple[str, str]] = {
    0: ("u8", "B"),
    1: ("i8", "b"),
    2: ("u16", "H"),
    3: ("i16", "h"),
    4: ("u32", "I"),
    5: ("i32", "i"),
    6: ("f32", "f"),
    7: ("bool", "?"),
    10: ("u64", "Q"),
    11: ("i64", "q"),
    12: ("f64", "d"),
}
"""Number of a metadata type → its name and `struct` code. 8 is a string, 9 an array."""

_LENGTH_BYTES = 8


class Cursor:
    """A place in an open file. Every read states what it is for, so that an error can name it.

    `order` is `<` or `>`. One window of the file is held in memory. ModelFileError for all that the bytes can
    cause.
    """

    def __init__(self, path: Path, handle: int, order: str, at: int) -> None:
        self.path = path
        self.at = at
        self._handle = handle
        self.order = order
        self.size = os.fstat(handle).st_size
        self._end = min(self.size, HEADER_LIMIT)
        self._window = b""
        self._begin = 0

    def error(self, text: str, at: int | None = None) -> ModelFileError:
        """The error `file: at byte N: text`."""
        where = self.at if at is None else at
        return ModelFileError(f"{self.path}: at byte {where:,}: {text}; nothing of it was used")

    def number(self, code: str, what: str) -> Any:
        """One number of `struct` code `code`."""
        size = struct.calcsize(f"={code}")
        self.require(size, what)
        (value,) = struct.unpack_from(self.order + code, self._window, self.at - self._begin)
        self.at += size
        return value

    def text(self, limit: int, what: str) -> bytes:
        """A string: its length, then so many bytes. Longer than `limit` is an error."""
        begin = self.at
        length = self.number("Q", f"the length of {what}")
        if length > limit:
            msg = f"{what} claims {length:,} bytes and may have {limit:,} at most"
            raise self.error(msg, begin)
        self.require(length, what)
        start = self.at - self._begin
        self.at += length
        return self._window[start : start + length]

    def skip(self, length: int, what: str) -> None:
        """Pass over `length` bytes that must be there."""
        if length > self._end - self.at:
            raise self._missing(length, what)
        self.at += length

    def skip_strings(self, count: int, what: str) -> None:
        """Pass over `count` strings."""
        if count > (self._end - self.at) // _LENGTH_BYTES:
            raise self._missing(count * _LENGTH_BYTES, what)
        unpack = struct.Struct(f"{self.order}Q").unpack_from
        while count:
            self.require(_LENGTH_BYTES, what)
            window, at = self._window, self.at - self._begin
            last = len(window) - _LENGTH_BYTES
            while count and at <= last:
                at += _LENGTH_BYTES + unpack(window, at)[0]
                count -= 1
            if self._begin + at > self._end:
                raise self._missing(self._begin + at - self.at, f"a string of {what}")
            self.at = self._begin + at

    def require(self, length: int, what: str) -> None:
        """Have `length` bytes from here on in the window."""
        inside = self.at - self._begin
        if 0 <= inside <= len(self._window) - length:
            return
        if length > self._end - self.at:
            raise self._missing(length, what)
        wanted = min(max(length, WINDOW_BYTES), self._end - self.at)
        self._window, self._begin = os.pread(self._handle, wanted, self.at), self.at
        if len(self._window) < length:  # it was cut while it was read
            raise self._missing(length, what)

    def _missing(self, length: int, what: str) -> ModelFileError:
        if self._end < self.size:
            return self.error(
                f"{what} would make the header longer than {HEADER_LIMIT >> 20} MiB; no model's is"
            )
        left = max(self._end - self.at, 0)
        return self.error(
            f"{what} needs {length:,} bytes and the file ends after {left:,}: it is cut or damaged"
        )
