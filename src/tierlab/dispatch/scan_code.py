# SPDX-License-Identifier: MIT
"""Counts the instruction classes of an AArch64 ELF file, in all and for each family of kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tierlab.dispatch.elf_symbols import Functions, read_functions
from tierlab.dispatch.instruction_classes import CLASSES, GROUPS, MEMBERSHIP, NO_GROUP, group_numbers
from tierlab.dispatch.scan_families import INTERESTING, OTHER, UNNAMED, family

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tierlab.dispatch.elf_reader import Code, Elf

CHUNK = 4 << 20
"""Bytes of code in memory at a time."""


@dataclass(frozen=True)
class Family:
    """Kernels of one family: their names and the instructions of each class in them."""

    symbols: tuple[str, ...]
    classes: dict[str, int]


@dataclass(frozen=True)
class CodeCount:
    """What the code of one file consists of."""

    code_bytes: int
    classes: dict[str, int]
    groups: dict[str, int]
    """By the Arm ARM's group; only those that occur."""
    families: dict[str, Family]
    functions: Functions
    data_words: int
    """Words that look like instructions of a class, but are marked as data; they are in no count."""


def count_code(elf: Elf) -> CodeCount:
    """Classify every word of every executable section."""
    functions = read_functions(elf, INTERESTING)
    titles, family_of = _families(functions)
    counts = np.zeros((len(titles), len(GROUPS)), np.int64)
    data_words = 0
    for code in elf.code:
        data_words += _count_section(elf, code, functions, family_of, counts)
    by_class = counts @ MEMBERSHIP
    symbols = _symbols(functions, family_of, len(titles))
    families = {
        title: Family(symbols[number], _named(by_class[number]))
        for number, title in enumerate(titles)
        if symbols[number] or (title in (OTHER, UNNAMED) and by_class[number].any())
    }
    total = counts.sum(axis=0)
    found = [number for number in np.flatnonzero(total).tolist() if GROUPS[number].classes]
    groups = {GROUPS[number].name: int(total[number]) for number in found}
    size = sum(code.size for code in elf.code)
    return CodeCount(size, _named(by_class.sum(axis=0)), groups, families, functions, data_words)


def _named(counts: NDArray[np.int64]) -> dict[str, int]:
    return dict(zip(CLASSES, counts.tolist(), strict=True))


def _families(functions: Functions) -> tuple[list[str], NDArray[np.int64]]:
    """Titles, and for each name's number the title's number; 0 is UNNAMED, 1 is OTHER."""
    titles = {UNNAMED: 0, OTHER: 1}
    of_name = [titles.setdefault(family(name), len(titles)) if name else 1 for name in functions.names]
    return list(titles), np.array(of_name, np.int64)


def _symbols(functions: Functions, family_of: NDArray[np.int64], titles: int) -> list[tuple[str, ...]]:
    found: list[set[str]] = [set() for _ in range(titles)]
    for number in np.unique(functions.name[functions.name > 0]).tolist():
        found[int(family_of[number])].add(functions.names[number])
    found[1].clear()  # others are counted, not named
    return [tuple(sorted(names)) for names in found]


def _count_section(
    elf: Elf, code: Code, functions: Functions, family_of: NDArray[np.int64], counts: NDArray[np.int64]
) -> int:
    """Add one section's words to `counts[family, group]`; return the words skipped as data."""
    mine = functions.section == code.index
    start, name = functions.start[mine], functions.name[mine]
    end = _ends(start, functions.size[mine], code.size)
    marked = functions.mark_section == code.index
    mark, data = functions.mark_start[marked], functions.mark_data[marked]
    skipped = 0
    for offset, words in _chunks(elf, code):
        groups = group_numbers(words)
        where = np.flatnonzero(groups != NO_GROUP)
        place = offset + 4 * where.astype(np.int64)
        if mark.size:
            last = np.searchsorted(mark, place, "right") - 1
            keep = ~((last >= 0) & data[last])
            skipped += int(where.size - np.count_nonzero(keep))
            where, place = where[keep], place[keep]
        which = np.zeros(where.size, np.int64)
        if start.size:
            last = np.searchsorted(start, place, "right") - 1
            named = (last >= 0) & (place < end[last])
            which[named] = family_of[name[last[named]]]
        flat = np.bincount(which * len(GROUPS) + groups[where], minlength=counts.size)
        counts += flat.reshape(counts.shape)
    return skipped


def _ends(start: NDArray[np.int64], size: NDArray[np.int64], section: int) -> NDArray[np.int64]:
    """Where each function ends: as its size says, at the next symbol where none is said."""
    following = np.append(start[1:], section) if start.size else start
    return np.where(size > 0, start + size, following)


def _chunks(elf: Elf, code: Code) -> Iterator[tuple[int, NDArray[np.uint32]]]:
    """(offset in the section, words); instructions are little-endian whatever the data are."""
    begin = -code.address % 4 if code.index >= 0 else 0
    for offset in range(begin, code.size - 3, CHUNK):
        size = min(CHUNK, code.size - offset) // 4 * 4
        yield offset, np.frombuffer(elf.window.read(code.offset + offset, size), "<u4")
