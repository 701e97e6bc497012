# SPDX-License-Identifier: MIT
"""Walks archives in archives (ar, deb, tar, zip, gz, bz2, xz, zst) without unpacking them to named files.

Members are read in order and in slices; only what begins like a program or an archive is kept, in a nameless
temporary file. Names of members are shown and never used as paths.
"""

from __future__ import annotations

import struct
import tempfile
import zipfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO, cast

from tierlab.dispatch.elf_reader import DamagedError, Window, machine
from tierlab.dispatch.scan_formats import (
    ar_members,
    check_directory,
    is_aarch64,
    kind_of,
    printable,
    tar_members,
)
from tierlab.dispatch.scan_streams import Budget, Continued, LimitError, Part, as_file, decompressed

if TYPE_CHECKING:
    from collections.abc import Callable
    from io import FileIO

    Program = Callable[[str, Window], None]
    Library = Callable[[str, Window, list[Window]], None]

PEEK = 512
"""Enough to know a tar by."""

BETWEEN = " » "
_ENCRYPTED = 0x1
_SLICE = 1 << 18
_ZIP_METHODS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2}
_ZIP_DAMAGE: tuple[type[Exception], ...] = (
    *(zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError),
    *(ValueError, OverflowError, struct.error),
)
"""What Python's reader raises on damaged directories: names that are no UTF-8, offsets before the file, …"""


@dataclass
class Walker:
    """Calls `program` for each AArch64 ELF file and `library` for each static library with such objects."""

    program: Program
    library: Library
    budget: Budget = field(default_factory=Budget)
    problems: list[str] = field(default_factory=list)
    """What could not be read, each with its place."""
    others: dict[str, int] = field(default_factory=dict)
    """ELF files of other machines, by machine."""
    archives: int = 0

    def visit(self, name: str, window: Window, depth: int = 0) -> bool:
        """Look at one file or member; whether it is a program or an archive at all."""
        head = window.read(0, min(PEEK, window.size))
        kind = kind_of(head)
        try:
            if kind == "elf":
                self._elf(name, head, window)
            elif kind:
                self._archive(name, kind, window, depth)
        except DamagedError as problem:
            self._problem(name, str(problem))
        return bool(kind)

    def _problem(self, name: str, what: str) -> None:
        self.problems.append(f"{name}: {printable(what)}" if name else printable(what))

    def _elf(self, name: str, head: bytes, window: Window) -> None:
        if is_aarch64(head):
            self.program(name, window)
        else:
            self._other(head)

    def _other(self, head: bytes) -> None:
        of = machine(head)
        self.others[of] = self.others.get(of, 0) + 1

    def _archive(self, name: str, kind: str, window: Window, depth: int) -> None:
        self._opened(depth)
        if kind == "zip":
            self._zip(name, window, depth)
        elif kind == "ar":
            self._ar(name, window, depth)
        elif kind == "thin":
            msg = "it is a thin archive: its objects lie elsewhere; give them instead"
            raise DamagedError(msg)
        else:
            self._stream(name, kind, as_file(Part(window)), depth)

    def _opened(self, depth: int) -> None:
        self.archives += 1
        self.budget.deeper(depth)

    def _stream(self, name: str, kind: str, stream: BinaryIO, depth: int) -> None:
        """A tar or a compressed file, whose bytes come once and in order."""
        if kind != "tar":
            self._member(name, decompressed(kind, stream, self.budget), depth + 1)
            return
        for member, data, _ in tar_members(stream):
            self.budget.member()
            self._member(_inside(name, member), data, depth + 1)

    def _member(self, name: str, stream: BinaryIO, depth: int) -> None:
        """One member whose bytes come only once: kept if it is of interest."""
        head = stream.read(PEEK)
        kind = kind_of(head)
        if kind == "elf" and not is_aarch64(head):
            self._other(head)
        elif kind in ("elf", "zip", "ar", "thin"):
            # Without a buffer: where there is no room, a buffer would fail once more when it is closed.
            with tempfile.TemporaryFile(buffering=0) as kept:
                length = _keep(head, kept)
                while piece := stream.read(_SLICE):
                    length += _keep(piece, kept)
                self.visit(name, Window(cast("BinaryIO", kept), 0, length), depth)
        elif kind:
            self._opened(depth)
            self._stream(name, kind, as_file(Continued(head, stream)), depth)

    def _zip(self, name: str, window: Window, depth: int) -> None:
        check_directory(window)
        with _opened_zip(window) as archive:
            members = archive.infolist()
            if sum(info.compress_size for info in members) > window.size:
                msg = "its members lie over each other, as in a decompression bomb: it is not read"
                raise DamagedError(msg)
            encrypted = 0
            for info in members:
                self.budget.member()
                place = _inside(name, info.filename)
                if info.filename.endswith("/"):
                    continue
                if info.flag_bits & _ENCRYPTED:
                    encrypted += 1
                elif info.compress_type not in _ZIP_METHODS:
                    self._problem(place, f"compression method {info.compress_type} is not read here")
                else:
                    self._zip_member(place, archive, info, depth)
        if encrypted:
            many = "1 member is" if encrypted == 1 else f"{encrypted:,} members are"
            self._problem(name, f"{many} encrypted; decrypt the archive first")

    def _zip_member(self, place: str, archive: zipfile.ZipFile, info: zipfile.ZipInfo, depth: int) -> None:
        try:
            raw = archive.open(info)
        except _ZIP_DAMAGE as problem:
            self._problem(place, f"it is damaged: {problem}")
            return
        with raw:
            stream = self.budget.metered(cast("BinaryIO", raw), lambda: info.compress_size)
            try:
                self._member(place, stream, depth + 1)
            except DamagedError as problem:
                self._problem(place, str(problem))

    def _ar(self, name: str, window: Window, depth: int) -> None:
        objects = []
        for member, part in ar_members(window):
            self.budget.member()
            head = part.read(0, min(PEEK, part.size))
            kind = kind_of(head)
            if kind == "elf" and is_aarch64(head):
                objects.append(part)
            elif kind == "elf":
                self._other(head)
            elif kind:
                self.visit(_inside(name, member), part, depth + 1)
        if objects:
            self.library(name, window, objects)


def _opened_zip(window: Window) -> zipfile.ZipFile:
    """Its directory, read; DamagedError for whatever Python's reader stumbles over."""
    try:
        return zipfile.ZipFile(as_file(Part(window)))
    except _ZIP_DAMAGE as problem:
        msg = f"it is damaged: {problem}"
        raise DamagedError(msg) from problem


def _keep(piece: bytes, file: FileIO) -> int:
    """Append; LimitError where the temporary folder has no room. The number of bytes."""
    left = memoryview(piece)
    try:
        while left:
            left = left[file.write(left) :]
    except OSError as problem:
        msg = (
            f"a member of it could not be kept in the temporary folder ({problem.strerror}): it is read no "
            "further. Set TMPDIR to a folder with room"
        )
        raise LimitError(msg) from problem
    return len(piece)


def _inside(name: str, member: str) -> str:
    shown = printable(member)
    return f"{name}{BETWEEN}{shown}" if name else shown
