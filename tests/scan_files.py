# SPDX-License-Identifier: MIT
"""Small AArch64 ELF files, made by hand: one code section, a symbol table if wanted."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

TEXT = 0x1000
"""Address and file offset of the code."""

FADD, SDOT, SMMLA, SVE_MUL, FMOPA, NOP = (
    0x4E20D400,
    0x4E809400,
    0x4E80A400,
    0x04206000,
    0x80800000,
    0xD503201F,
)
RET = 0xD65F03C0
FUNCTION, UNTYPED, LOCAL, GLOBAL = 2, 0, 0, 1

Symbol = tuple[str, int, int, int, int]
"""Name, first word, words, type, binding."""


def elf(
    words: Sequence[int],
    symbols: Sequence[Symbol] = (),
    *,
    stripped: bool = False,
    machine: int = 183,
    text: bytes = b"",
) -> bytes:
    """A shared object; `text` becomes its read-only data, one page behind the code."""
    code = struct.pack(f"<{len(words)}I", *words)
    strings, table = _symbols(symbols)
    names = b"\0.text\0.symtab\0.strtab\0.rodata\0.shstrtab\0"
    data_at = TEXT + -(-len(code) // 4096) * 4096
    parts = [(TEXT, code), (data_at, text)]
    after = data_at + len(text)
    for part in (strings, table, names):
        parts.append((after, part))
        after += len(part)
    (_, _), (_, _), (strings_at, _), (table_at, _), (names_at, _) = parts
    kind = 11 if stripped else 2
    sections = [
        _section(names, "", 0, 0, 0, 0, 0),
        _section(names, ".text", 1, 6, TEXT, TEXT, len(code)),
        _section(names, ".symtab", kind, 0, 0, table_at, len(table), link=3, entry=24),
        _section(names, ".strtab", 3, 0, 0, strings_at, len(strings)),
        _section(names, ".rodata", 1, 2, data_at, data_at, len(text)),
        _section(names, ".shstrtab", 3, 0, 0, names_at, len(names)),
    ]
    header = b"\x7fELF\2\1\1" + bytes(9)
    header += struct.pack("<HHIQQQIHHHHHH", 3, machine, 1, 0, 0, after, 0, 64, 56, 0, 64, len(sections), 5)
    image = bytearray(after)
    image[: len(header)] = header
    for at, part in parts:
        image[at : at + len(part)] = part
    return bytes(image) + b"".join(sections)


def _symbols(symbols: Sequence[Symbol]) -> tuple[bytes, bytes]:
    strings, table = bytearray(b"\0"), bytearray(24)
    for name, first, count, kind, binding in symbols:
        place = len(strings)
        strings += name.encode() + b"\0"
        table += struct.pack("<IBBHQQ", place, binding << 4 | kind, 0, 1, TEXT + 4 * first, 4 * count)
    return bytes(strings), bytes(table)


def _section(
    names: bytes,
    name: str,
    kind: int,
    flags: int,
    address: int,
    at: int,
    size: int,
    link: int = 0,
    entry: int = 0,
) -> bytes:
    place = names.index(name.encode() + b"\0")
    return struct.pack("<IIQQQQIIQQ", place, kind, flags, address, at, size, link, 0, 1, entry)


def ar(*members: tuple[str, bytes]) -> bytes:
    """An ar archive; names of at most 15 letters."""
    out = b"!<arch>\n"
    for name, data in members:
        out += f"{name + '/':<16}{'0':<12}{'0':<6}{'0':<6}{'644':<8}{len(data):<10}`\n".encode()
        out += data + b"\n" * (len(data) % 2)
    return out
