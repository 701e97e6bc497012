# SPDX-License-Identifier: MIT
"""Where a named function lies in a program or shared object."""

from __future__ import annotations

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
    Elf,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


def addresses_of(elf: Elf, name: str) -> Iterator[int]:
    """Addresses of the symbols of that name, exported ones first; nothing for relocatable objects."""
    if elf.kind == RELOCATABLE:
        return
    for kind in (SHT_DYNSYM, SHT_SYMTAB):
        table = elf.section_of(kind)
        if table is None or not 0 < int(table["link"]) < len(elf.sections):
            continue
        strings = elf.sections[int(table["link"])]
        size, room = int(table["size"]) // SYMBOL.itemsize * SYMBOL.itemsize, int(strings["size"])
        if strings["type"] != SHT_STRTAB or size > MOST_SYMBOLS * SYMBOL.itemsize or room > MOST_NAME_BYTES:
            continue
        at = elf.window.read(int(strings["offset"]), room).find(b"\0" + name.encode() + b"\0")
        if at < 0:
            continue
        symbols = np.frombuffer(elf.window.read(int(table["offset"]), size), SYMBOL)
        hits = symbols[(symbols["name"] == at + 1) & (symbols["section"] > 0)]
        yield from hits["value"].tolist()
