# SPDX-License-Identifier: MIT
"""Walks archives in archives (ar, deb, tar, zip, gz, bz2, xz, zst) without unpacking them to named files.

Members are read in order and in slices; only what begins like a program or an archive is kept, in a nameless
temporary file. Names of members are shown and never used as paths.
"""

from __future__ import annotations

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
from tierlab.dispatch.scan_streams import Budget, Continued, Part, as_file, decompressed

if TYPE_CHECKING:
    from collections.abc import Callable

    Program = Callable[[str, Window], None]
    Library = Callable[[str, Window, list[Window]], None]

PEEK = 512
"""Enough to know a tar by."""

BETWEEN = " » "
_IN_MEMORY = 8 << 20
_ENCRYPTED = 0x1
_SLICE = 1 << 18
_ZIP_METHODS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2}


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
        except (DamagedError, zipfile.BadZipFile, NotImplementedError) as problem:
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
            with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY) as spool:
                spool.write(head)
                length = len(head)
                while piece := stream.read(_SLICE):
                    spool.write(piece)
                    length += len(piece)
                self.visit(name, Window(cast("BinaryIO", spool), 0, length), depth)
        elif kind:
            self._opened(depth)
            self._stream(name, kind, as_file(Continued(head, stream)), depth)

    def _zip(self, name: str, window: Window, depth: int) -> None:
        check_directory(window)
        encrypted = 0
        with zipfile.ZipFile(as_file(Part(window))) as archive:
            for info in archive.infolist():
                self.budget.member()
                place = _inside(name, info.filename)
                if info.is_dir():
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
            with archive.open(info) as raw:
                stream = self.budget.metered(cast("BinaryIO", raw), lambda: info.compress_size)
                self._member(place, stream, depth + 1)
        except (DamagedError, zipfile.BadZipFile, NotImplementedError, EOFError) as problem:
            self._problem(place, str(problem) or "it ends too early")

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


def _inside(name: str, member: str) -> str:
    shown = printable(member)
    return f"{name}{BETWEEN}{shown}" if name else shown
