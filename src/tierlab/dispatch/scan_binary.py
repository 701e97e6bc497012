# SPDX-License-Identifier: MIT
"""L1 of one AArch64 ELF file or static library: all that can be said without running it."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tierlab.dispatch.elf_reader import (
    RELOCATABLE,
    SHF_ALLOC,
    SHF_EXECUTABLE,
    SHT_DYNAMIC,
    SHT_NOBITS,
    SHT_STRTAB,
    DamagedError,
    Elf,
    Window,
    read_elf,
    string_at,
)
from tierlab.dispatch.instruction_classes import CLASSES
from tierlab.dispatch.scan_code import CodeCount, Family, count_code
from tierlab.dispatch.scan_families import KLEIDIAI
from tierlab.dispatch.scan_symbols import addresses_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PRESENT, ABSENT, CANNOT_TELL = "present", "absent", "cannot tell"

_KINDS = {1: "object", 2: "executable", 3: "shared object"}
_SLICE = 4 << 20
_DT_SONAME = 14


@dataclass
class Binary:
    """One file's evidence. `classes` counts instructions; `families` names kernels and counts in them."""

    name: str
    kind: str
    size: int
    sha256: str
    soname: str = ""
    stripped: bool = False
    code_bytes: int = 0
    members: int = 1
    classes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(CLASSES, 0))
    groups: dict[str, int] = field(default_factory=dict)
    families: dict[str, Family] = field(default_factory=dict)
    kleidiai: str = CANNOT_TELL
    kleidiai_reason: str = ""
    ggml_version: str = ""
    ggml_commit: str = ""
    notes: list[str] = field(default_factory=list)


def scan_elf(name: str, window: Window) -> Binary:
    """Raises DamagedError if the file cannot be read to its end."""
    elf = read_elf(window)
    if not elf.code:
        msg = "it holds no code"
        raise DamagedError(msg)
    count = count_code(elf)
    found = Binary(name, _KINDS.get(elf.kind, f"ELF type {elf.kind}"), window.size, _sha256(window))
    _add(found, count)
    found.stripped = count.functions.stripped
    found.soname = soname(elf)
    found.kleidiai, found.kleidiai_reason = _kleidiai(elf, count)
    for symbol in ("ggml_version", "ggml_commit"):
        setattr(found, symbol, returned_string(elf, symbol))
    if not len(elf.sections):
        found.notes.append("it has no section headers: its executable segments are counted, data in them too")
    if count.functions.too_many:
        found.notes.append("its symbol table is too large to be read; no kernel is named")
    if count.data_words:
        found.notes.append(f"{count.data_words:,} words are marked as data between the code; not counted")
    return found


def scan_library(name: str, window: Window, members: Iterable[Window]) -> Binary:
    """A static library: the sum of its AArch64 objects."""
    found = Binary(name, "static library", window.size, _sha256(window), members=0)
    verdicts: dict[str, str] = {}
    for member in members:
        elf = read_elf(member)
        count = count_code(elf)
        found.members += 1
        found.stripped |= count.functions.stripped and bool(elf.code)
        _add(found, count)
        if elf.code:
            verdict, reason = _kleidiai(elf, count)
            verdicts.setdefault(verdict, reason)
    if not found.code_bytes:
        msg = "it holds no code"
        raise DamagedError(msg)
    for verdict in (PRESENT, CANNOT_TELL, ABSENT):
        if verdict in verdicts:
            found.kleidiai, found.kleidiai_reason = verdict, verdicts[verdict]
            break
    return found


def _add(found: Binary, count: CodeCount) -> None:
    found.code_bytes += count.code_bytes
    found.classes = _sum(found.classes, count.classes)
    found.groups = _sum(found.groups, count.groups)
    for title, new in count.families.items():
        old = found.families.get(title, Family((), {}))
        names = tuple(sorted({*old.symbols, *new.symbols}))
        found.families[title] = Family(names, _sum(old.classes, new.classes))


def _sum(left: dict[str, int], right: dict[str, int]) -> dict[str, int]:
    return {name: left.get(name, 0) + right.get(name, 0) for name in {**left, **right}}


def _sha256(window: Window) -> str:
    digest = hashlib.sha256()
    for offset in range(0, window.size, _SLICE):
        digest.update(window.read(offset, min(_SLICE, window.size - offset)))
    return digest.hexdigest()


def _kleidiai(elf: Elf, count: CodeCount) -> tuple[str, str]:
    """Whether KleidiAI is compiled in, and from what that is known."""
    named = sum(name.startswith(KLEIDIAI) for name in count.functions.names)
    if named:
        return PRESENT, f"{named} symbols begin with {KLEIDIAI}"
    if count.functions.static_names or (elf.kind == RELOCATABLE and not count.functions.stripped):
        return ABSENT, f"no symbol begins with {KLEIDIAI}, and static functions have names here"
    text = "its text names KleidiAI, " if _mentions(elf) else "its text does not name KleidiAI, "
    return CANNOT_TELL, f"{text}but symbols of static functions are stripped"


def _mentions(elf: Elf) -> bool:
    """Whether constant data hold the word, as the messages of ggml's own KleidiAI code do."""
    if not len(elf.sections):
        return any(b"kleidiai" in piece.lower() for piece in _pieces(elf.window, 0, elf.window.size))
    for row in elf.sections:
        flags = int(row["flags"])
        if row["type"] == SHT_NOBITS or not flags & SHF_ALLOC or flags & SHF_EXECUTABLE:
            continue
        for piece in _pieces(elf.window, int(row["offset"]), int(row["size"])):
            if b"kleidiai" in piece.lower():
                return True
    return False


def _pieces(window: Window, offset: int, size: int, overlap: int = 16) -> Iterator[bytes]:
    for at in range(0, size, _SLICE):
        yield window.read(offset + at, min(_SLICE + overlap, size - at))


def soname(elf: Elf) -> str:
    """The name that the loader knows a shared object by; empty if it has none."""
    table = elf.section_of(SHT_DYNAMIC)
    if table is None or not 0 < int(table["link"]) < len(elf.sections):
        return ""
    strings = elf.sections[int(table["link"])]
    entries = elf.window.read(int(table["offset"]), min(int(table["size"]), 65536) // 16 * 16)
    for tag, value in struct.iter_unpack("<qQ", entries):
        if tag == _DT_SONAME and strings["type"] == SHT_STRTAB and value < int(strings["size"]):
            room = min(4096, int(strings["size"]) - value)
            return string_at(elf.window.read(int(strings["offset"]) + value, room), 0)
    return ""


def returned_string(elf: Elf, symbol: str) -> str:
    """The constant string that a function without arguments returns: ADRP and ADD to x0, then RET.

    Works on stripped files too: ggml exports the functions that name its version.
    """
    for address in addresses_of(elf, symbol):
        code = elf.at_address(address, 32) or b""
        page = None
        for index in range(0, len(code) - 3, 4):
            (word,) = struct.unpack_from("<I", code, index)
            if word & 0x9F00001F == 0x90000000:  # ADRP x0
                pages = (word >> 5 & 0x7FFFF) << 2 | word >> 29 & 3
                page = ((address + index) & ~0xFFF) + ((pages ^ 1 << 20) - (1 << 20)) * 4096
            elif word & 0xFFC003FF == 0x91000000 and page is not None:  # ADD x0, x0, #imm12
                text = elf.at_address(page + (word >> 10 & 0xFFF), 128) or b""
                return string_at(text, 0) if text.partition(b"\0")[0].isascii() else ""
            elif word == 0xD65F03C0:
                break
    return ""
