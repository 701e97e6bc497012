# SPDX-License-Identifier: MIT
"""A bounded reader of AArch64 ELF files: sections, function symbols, a few strings. It trusts no field.

Written for files that strangers made and for symbol tables of a million entries: tables are read as arrays,
and names are looked at only where a pattern of interest occurs in the string table.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from tierlab.errors import TierlabError

if TYPE_CHECKING:
    from numpy.typing import NDArray

AARCH64 = 183
MACHINES = {
    3: "x86",
    8: "MIPS",
    20: "PowerPC",
    21: "PowerPC 64",
    22: "S/390",
    40: "32-bit Arm",
    62: "x86-64",
    AARCH64: "AArch64",
    190: "CUDA",
    224: "AMD GPU",
    243: "RISC-V",
    247: "BPF",
    258: "LoongArch",
}
"""e_machine of the ELF specification."""

RELOCATABLE, CORE = 1, 4
SHT_SYMTAB, SHT_STRTAB, SHT_DYNAMIC, SHT_NOBITS, SHT_DYNSYM = 2, 3, 6, 8, 11
SHF_ALLOC, SHF_EXECUTABLE, SHF_COMPRESSED = 0x2, 0x4, 0x800
PT_LOAD, PF_EXECUTE = 1, 1

MOST_SECTIONS = 400_000
MOST_SYMBOLS = 1_000_000
MOST_NAME_BYTES = 64 << 20
MOST_CODE = 1 << 30
"""Above these the tables are not read: the lab says so instead of taking the memory."""

SECTION = np.dtype(
    [
        *(("name", "<u4"), ("type", "<u4"), ("flags", "<u8"), ("address", "<u8"), ("offset", "<u8")),
        *(("size", "<u8"), ("link", "<u4"), ("info", "<u4"), ("align", "<u8"), ("entry", "<u8")),
    ]
)
SEGMENT = np.dtype(
    [
        *(("type", "<u4"), ("flags", "<u4"), ("offset", "<u8"), ("address", "<u8"), ("physical", "<u8")),
        *(("size", "<u8"), ("memory", "<u8"), ("align", "<u8")),
    ]
)
SYMBOL = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]
)


class DamagedError(TierlabError):
    """The file ends or contradicts itself before its code can be read."""


@dataclass(frozen=True)
class Window:
    """A file, or the part of a file that holds one member of an archive."""

    stream: BinaryIO
    start: int
    size: int

    def read(self, offset: int, size: int) -> bytes:
        """`size` bytes at `offset`; DamagedError where the window ends before."""
        if offset + size > self.size:
            msg = f"it is truncated: {offset + size:,} bytes are announced, {self.size:,} are there"
            raise DamagedError(msg)
        self.stream.seek(self.start + offset)
        data = self.stream.read(size)
        if len(data) != size:
            msg = f"it is truncated: it ends {size - len(data):,} bytes early"
            raise DamagedError(msg)
        return data


@dataclass(frozen=True)
class Code:
    """One executable section (or segment, where there are no sections)."""

    name: str
    index: int
    """Section number that symbols refer to; -1 for a segment."""
    offset: int
    size: int
    address: int


@dataclass(frozen=True)
class Elf:
    """What the headers of an AArch64 ELF file say."""

    window: Window
    kind: int
    sections: NDArray[np.void]
    code: tuple[Code, ...]

    def section_of(self, kind: int) -> NDArray[np.void] | None:
        """The first section of that type."""
        found = self.sections[self.sections["type"] == kind] if len(self.sections) else self.sections
        return found[0] if len(found) else None

    def at_address(self, address: int, size: int) -> bytes | None:
        """`size` bytes that the program will see at `address`, or None if no section holds them."""
        for row in self.sections:
            start, length = int(row["address"]), int(row["size"])
            kept = row["type"] != SHT_NOBITS and int(row["flags"]) & SHF_ALLOC
            if kept and start <= address < start + length:
                size = min(size, start + length - address)
                return self.window.read(int(row["offset"]) + address - start, size)
        return None


def machine(head: bytes) -> str:
    """The machine that an ELF file's first 20 bytes name, with its width and byte order where unusual."""
    if len(head) < 20:
        return "truncated ELF"
    big = head[5] == 2
    number = int.from_bytes(head[18:20], "big" if big else "little")
    name = MACHINES.get(number, f"machine {number}")
    if number == AARCH64 and (big or head[4] != 2):
        name += " (big-endian)" if big else " (ILP32)"
    return name


def read_elf(window: Window) -> Elf:
    """Headers of a little-endian 64-bit AArch64 file; DamagedError if they point outside of the file."""
    header = window.read(0, 64)
    (kind,) = struct.unpack_from("<H", header, 16)
    segments_at, sections_at = struct.unpack_from("<QQ", header, 32)
    segment_size, segments, section_size, count, names = struct.unpack_from("<HHHHH", header, 54)
    sections = np.empty(0, SECTION)
    if sections_at:
        sections = _sections(window, sections_at, section_size, count)
    if kind == CORE:
        msg = "it is a core dump, not a program"
        raise DamagedError(msg)
    if len(sections) > 1:
        if names == 0xFFFF:
            names = int(sections[0]["link"])
        code = _code_sections(window, sections, names)
    else:
        code = _code_segments(window, segments_at, segment_size, segments)
    _check_cost(window, sections, code)
    return Elf(window, kind, sections, code)


def _sections(window: Window, at: int, entry: int, count: int) -> NDArray[np.void]:
    if entry != SECTION.itemsize:
        msg = f"its section headers have {entry} bytes instead of {SECTION.itemsize}"
        raise DamagedError(msg)
    first = np.frombuffer(window.read(at, entry), SECTION)
    count = count or int(first[0]["size"])  # more than 65,279 sections: the number is here
    if count > MOST_SECTIONS:
        msg = f"it announces {count:,} sections; more than {MOST_SECTIONS:,} are not read"
        raise DamagedError(msg)
    return np.frombuffer(window.read(at, entry * max(count, 1)), SECTION)


def _code_sections(window: Window, sections: NDArray[np.void], names: int) -> tuple[Code, ...]:
    flags = sections["flags"]
    executable = ((flags & SHF_EXECUTABLE) != 0) & (sections["type"] != SHT_NOBITS) & (sections["size"] > 0)
    packed = executable & ((flags & SHF_COMPRESSED) != 0)
    found = []
    for index in np.flatnonzero(executable & ~packed).tolist():
        row = sections[index]
        code = Code("", index, int(row["offset"]), int(row["size"]), int(row["address"]))
        _inside(window, code.offset, code.size)
        found.append(code)
    if not 0 < names < len(sections) or sections[names]["type"] != SHT_STRTAB:
        return tuple(found)
    table = sections[names]
    text = window.read(int(table["offset"]), min(int(table["size"]), MOST_NAME_BYTES))
    return tuple(replace(code, name=string_at(text, int(sections[code.index]["name"]))) for code in found)


def _code_segments(window: Window, at: int, entry: int, count: int) -> tuple[Code, ...]:
    """Programs whose section headers were cut off still have segments, or nothing could load them."""
    if not at or not count or entry != SEGMENT.itemsize:
        return ()
    rows = np.frombuffer(window.read(at, entry * count), SEGMENT)
    found = []
    for row in rows[(rows["type"] == PT_LOAD) & ((rows["flags"] & PF_EXECUTE) != 0)]:
        code = Code("(segment)", -1, int(row["offset"]), int(row["size"]), int(row["address"]))
        _inside(window, code.offset, code.size)
        found.append(code)
    return tuple(found)


def _check_cost(window: Window, sections: NDArray[np.void], code: tuple[Code, ...]) -> None:
    """Sections that lie over each other would make a small file cost hours."""
    size = sum(part.size for part in code)
    if size > MOST_CODE:
        msg = f"it has {size:,} bytes of code; more than {MOST_CODE:,} are not read"
        raise DamagedError(msg)
    kept = sections[sections["type"] != SHT_NOBITS] if len(sections) else sections
    total = sum(kept["size"].tolist()) if len(kept) else size
    held = max(total, size)
    if held > window.size:
        msg = f"it is damaged or truncated: its sections hold {held:,} bytes, the file has {window.size:,}"
        raise DamagedError(msg)


def _inside(window: Window, offset: int, size: int) -> None:
    if offset + size > window.size:
        msg = f"it is truncated: code ends at byte {offset + size:,}, the file at {window.size:,}"
        raise DamagedError(msg)


def string_at(table: bytes, offset: int) -> str:
    """The NUL-terminated string at `offset` of a string table; empty where the table ends before."""
    end = table.find(b"\0", offset, offset + 65536)
    return table[offset : max(end, offset)].decode("utf-8", "replace")
