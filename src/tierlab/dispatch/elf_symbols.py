# SPDX-License-Identifier: MIT
"""Function symbols of an ELF file: where each begins and ends, and the names of those that matter."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tierlab.dispatch.elf_reader import (
    MOST_NAME_BYTES,
    MOST_SYMBOLS,
    RELOCATABLE,
    SHT_DYNSYM,
    SHT_STRTAB,
    SHT_SYMTAB,
    SYMBOL,
    DamagedError,
    Elf,
    string_at,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

FUNCTION, INDIRECT, UNTYPED, LOCAL = 2, 10, 0, 0
"""STT_FUNC, STT_GNU_IFUNC, STT_NOTYPE (hand-written assembly) and STB_LOCAL."""

_MARKS = re.compile(rb"(?<=\0)\$[xd](?=[\0.])")
_RESERVED = 0xFF00


@dataclass(frozen=True)
class Functions:
    """Symbols of code, in parallel arrays sorted by (section, start).

    `section` int64; `start` and `size` uint64 in bytes from the section's start (size 0: not said);
    `name` int64, an index into `names`, 0 where the name is of no interest.
    """

    section: NDArray[np.int64]
    start: NDArray[np.int64]
    size: NDArray[np.int64]
    name: NDArray[np.int64]
    names: tuple[str, ...]
    mark_section: NDArray[np.int64]
    mark_start: NDArray[np.int64]
    mark_data: NDArray[np.bool_]
    """The AArch64 ELF ABI's mapping symbols: from there on data ($d) or code ($x)."""
    stripped: bool
    """There is no .symtab: only what is exported has a name."""
    static_names: bool
    """Whether functions that are not exported have names too."""
    too_many: bool = False


def read_functions(elf: Elf, interesting: re.Pattern[bytes]) -> Functions:
    """The functions of `.symtab`, or of `.dynsym` where that is all there is.

    `interesting` finds names in a string table (bytes, each after a NUL).
    """
    table = elf.section_of(SHT_SYMTAB)
    stripped = table is None
    if table is None:
        table = elf.section_of(SHT_DYNSYM)
    if table is None:
        return _none(stripped)
    if int(table["size"]) > MOST_SYMBOLS * SYMBOL.itemsize:
        return _none(stripped, too_many=True)
    link = int(table["link"])
    if not 0 < link < len(elf.sections) or elf.sections[link]["type"] != SHT_STRTAB:
        msg = "its symbol table has no names"
        raise DamagedError(msg)
    if int(elf.sections[link]["size"]) > MOST_NAME_BYTES:
        return _none(stripped, too_many=True)
    text = elf.window.read(int(elf.sections[link]["offset"]), int(elf.sections[link]["size"]))
    size = int(table["size"]) // SYMBOL.itemsize * SYMBOL.itemsize
    symbols = np.frombuffer(elf.window.read(int(table["offset"]), size), SYMBOL)
    return _arranged(elf, symbols, text, interesting, stripped)


def _none(stripped: bool, too_many: bool = False) -> Functions:
    empty = np.empty(0, np.int64)
    return Functions(
        *(empty, empty, empty, empty, ("",), empty, empty, empty.astype(np.bool_), stripped, False, too_many)
    )


def _arranged(
    elf: Elf, symbols: NDArray[np.void], text: bytes, interesting: re.Pattern[bytes], stripped: bool
) -> Functions:
    """Symbols of code sections as `Functions`; a symbol outside of its section is ignored."""
    base, length = _sections_of_code(elf)
    symbols = symbols[(symbols["section"] > 0) & (symbols["section"] < min(_RESERVED, len(base)))]
    symbols = symbols[length[symbols["section"]] > 0]
    section = symbols["section"].astype(np.int64)
    start = (symbols["value"] - base[section]).astype(np.int64)
    inside = (start >= 0) & (start < length[section])
    symbols, section, start = symbols[inside], section[inside], start[inside]
    kind = symbols["info"] & 15
    marks, data = _marks(symbols["name"], text)
    function = ((kind == FUNCTION) | (kind == INDIRECT) | (kind == UNTYPED)) & ~marks
    name, names = _names(symbols["name"], text, interesting)
    size = np.minimum(symbols["size"], np.uint64(1 << 40)).astype(np.int64)
    # Of several names of one address the last one counts: let it be one that matters.
    order = np.lexsort((name > 0, start, section))
    order = order[function[order]]
    order = order[~_labels(section[order], start[order], size[order], kind[order], length)]
    by_place = np.lexsort((start, section))
    by_place = by_place[marks[by_place]]
    local = bool(np.any((symbols["info"][function & (kind == FUNCTION)] >> 4) == LOCAL))
    return Functions(
        *(section[order], start[order], size[order], name[order], names),
        *(section[by_place], start[by_place], data[by_place]),
        stripped=stripped,
        static_names=local and not stripped,
    )


def _labels(
    section: NDArray[np.int64],
    start: NDArray[np.int64],
    size: NDArray[np.int64],
    kind: NDArray[np.uint8],
    length: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """Untyped symbols inside of a function: labels of hand-written assembly that were left in the table."""
    before = np.cumsum(length) - length
    place = before[section] + start
    end = np.where(kind == UNTYPED, 0, np.minimum(start + size, length[section]) + before[section])
    inside: NDArray[np.bool_] = (kind == UNTYPED) & (place < np.maximum.accumulate(end))
    return inside


def _sections_of_code(elf: Elf) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """By section number: what to subtract from a symbol's value, and the bytes of code (0: no code)."""
    base = np.zeros(max(len(elf.sections), 1), np.uint64)
    length = np.zeros(len(base), np.int64)
    for code in elf.code:
        if code.index >= 0:
            length[code.index] = code.size
            base[code.index] = 0 if elf.kind == RELOCATABLE else code.address
    return base, length


def _marks(names: NDArray[np.uint32], text: bytes) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which symbols are mapping symbols, and which of them begin data."""
    where = [match.start() for match in _MARKS.finditer(text)]
    data = [at for at in where if text[at + 1 : at + 2] == b"d"]
    return np.isin(names, np.array(where, np.uint32)), np.isin(names, np.array(data, np.uint32))


def _names(
    names: NDArray[np.uint32], text: bytes, interesting: re.Pattern[bytes]
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    offsets = np.array([match.start() for match in interesting.finditer(text)], np.uint32)
    if not offsets.size:
        return np.zeros(len(names), np.int64), ("",)
    place = np.minimum(np.searchsorted(offsets, names), offsets.size - 1)
    number = np.where(offsets[place] == names, place + 1, 0).astype(np.int64)
    return number, ("", *(string_at(text, int(offset)) for offset in offsets))
