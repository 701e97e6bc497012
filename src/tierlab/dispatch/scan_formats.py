# SPDX-License-Identifier: MIT
"""Archive formats, read member by member: no size is trusted, no list of members is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO

from tierlab.dispatch.elf_reader import AARCH64, DamagedError, Window
from tierlab.dispatch.scan_streams import Limited, LimitError, as_file

if TYPE_CHECKING:
    from collections.abc import Iterator

MAGICS = (
    (b"\x7fELF", "elf"),
    (b"PK\x03\x04", "zip"),
    (b"PK\x05\x06", "zip"),
    (b"!<arch>\n", "ar"),
    (b"!<thin>\n", "thin"),
    (b"\x1f\x8b", "gz"),
    (b"BZh", "bz2"),
    (b"\xfd7zXZ\0", "xz"),
    (b"\x28\xb5\x2f\xfd", "zst"),
)
MOST_DIRECTORY = 12 << 20
"""Bytes of a zip's directory: some 100,000 members."""

_SLICE = 1 << 18
_BLOCK = 512
_MOST_NAME = 1 << 16


def kind_of(head: bytes) -> str:
    """`elf`, an archive's kind, or nothing, by the first bytes."""
    for magic, kind in MAGICS:
        if head.startswith(magic):
            return kind
    return "tar" if head[257:262] == b"ustar" else ""


def is_aarch64(head: bytes) -> bool:
    """Whether an ELF file's first bytes say little-endian 64-bit AArch64."""
    return len(head) >= 20 and head[4:6] == b"\2\1" and int.from_bytes(head[18:20], "little") == AARCH64


def printable(text: str) -> str:
    """A stranger's name on one line, without anything that a terminal would obey, cut at 200."""
    shown = "".join(letter if letter.isprintable() else "\ufffd" for letter in text)
    return shown if len(shown) <= 200 else shown[:199] + "…"


def ar_members(window: Window) -> Iterator[tuple[str, Window]]:
    """Members of an ar archive, its tables of symbols and long names excepted."""
    at, long_names = 8, b""
    while at + 60 <= window.size:
        header = window.read(at, 60)
        digits = header[48:58].strip()
        if header[58:] != b"`\n" or not digits.isdigit():
            msg = f"it is damaged: no member's header at byte {at:,}"
            raise DamagedError(msg)
        size, name = int(digits), header[:16].decode("utf-8", "replace").rstrip()
        part = Window(window.stream, window.start + at + 60, size)
        if at + 60 + size > window.size:
            msg = f"it is truncated: member {printable(name)} ends beyond it"
            raise DamagedError(msg)
        if name == "//":
            long_names = part.read(0, min(size, 1 << 24))
        elif name.startswith("#1/") and name[3:].isdigit() and int(name[3:]) <= min(size, 4096):
            taken = int(name[3:])  # BSD: the name is in front of the data
            yield (
                part.read(0, taken).rstrip(b"\0").decode("utf-8", "replace"),
                Window(window.stream, part.start + taken, size - taken),
            )
        elif name[1:].isdigit() and name.startswith("/"):
            place = int(name[1:])
            yield long_names[place : place + 4096].partition(b"/\n")[0].decode("utf-8", "replace"), part
        elif name not in ("/", "/SYM64/"):
            yield name.rstrip("/"), part
        at += 60 + size + size % 2


def tar_members(stream: BinaryIO) -> Iterator[tuple[str, BinaryIO, int]]:
    """Regular files of a tar, in order; each must be read before the next one is asked for."""
    name = ""
    size: int | None = None
    while header := stream.read(_BLOCK):
        if not header.strip(b"\0"):
            return
        if len(header) < _BLOCK or header[257:262] != b"ustar":
            msg = "it is damaged or truncated: no tar header where one must be"
            raise DamagedError(msg)
        kind, length = header[156:157], _number(header[124:136])
        if kind in b"LKxgX" and kind:
            text = _small(stream, length)
            if kind == b"L":
                name = text.rstrip(b"\0").decode("utf-8", "replace")
            elif kind in b"xX":
                name, size = _pax(text, name)
            continue
        if kind == b"S":
            msg = "it holds sparse members, which are not read here"
            raise DamagedError(msg)
        length = length if size is None else size
        data = Limited(stream, length)
        if kind in (b"0", b"\0", b"7"):
            prefix = header[345:500].partition(b"\0")[0] if header[257:263] == b"ustar\0" else b""
            short = b"/".join(filter(None, (prefix, header[:100].partition(b"\0")[0])))
            yield name or short.decode("utf-8", "replace"), as_file(data), length
        _skip(stream, data.left + -length % _BLOCK)
        name, size = "", None
    msg = "it is truncated: the blocks that end a tar are missing"
    raise DamagedError(msg)


def _number(field: bytes) -> int:
    if field[0] & 0x80:  # base 256
        return int.from_bytes(field[1:], "big")
    text = field.strip(b" \0") or b"0"
    if not all(48 <= digit < 56 for digit in text):
        msg = "it is damaged: a size in a tar header is no number"
        raise DamagedError(msg)
    return int(text, 8)


def _small(stream: BinaryIO, size: int) -> bytes:
    if size > _MOST_NAME:
        msg = f"it holds a name or an attribute of {size:,} bytes"
        raise LimitError(msg)
    text = stream.read(size)
    _skip(stream, -size % _BLOCK)
    return text


def _pax(text: bytes, name: str) -> tuple[str, int | None]:
    """Path and size of a pax header's records, `LENGTH KEY=VALUE` each."""
    size = None
    for line in text.split(b"\n"):
        key, _, value = line.partition(b" ")[2].partition(b"=")
        if key == b"path":
            name = value.decode("utf-8", "replace")
        elif key == b"size" and value.isdigit():
            size = int(value)
    return name, size


def _skip(stream: BinaryIO, size: int) -> None:
    while size > 0:
        piece = stream.read(min(size, _SLICE))
        if not piece:
            msg = "it is truncated: the last member is not whole"
            raise DamagedError(msg)
        size -= len(piece)


def check_directory(window: Window) -> None:
    """Refuse a zip whose directory alone would fill the memory."""
    tail = window.read(window.size - min(window.size, 65_557), min(window.size, 65_557))
    at = tail.rfind(b"PK\5\6")
    if at < 0 or at + 22 > len(tail):
        msg = "it is damaged or truncated: it begins like a zip and has no directory at its end"
        raise DamagedError(msg)
    size = int.from_bytes(tail[at + 12 : at + 16], "little")
    wide = tail.rfind(b"PK\6\6", 0, at)
    if size == 0xFFFFFFFF and wide >= 0:
        size = int.from_bytes(tail[wide + 40 : wide + 48], "little")
    if size > MOST_DIRECTORY:
        msg = f"its directory has {size:,} bytes; more than {MOST_DIRECTORY:,} are not read"
        raise LimitError(msg)
