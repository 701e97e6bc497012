# SPDX-License-Identifier: MIT
"""Files that a scan must survive: small on disk, large or endless when they are believed.

Each maker writes one file. None of them takes the memory or the time that its file would cost a reader.
"""

from __future__ import annotations

import io
import os
import random
import struct
import tarfile
import zipfile
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scan_files import FUNCTION, GLOBAL, NOP, SDOT, elf

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MIB, GIB = 1 << 20, 1 << 30
PROGRAM = elf([SDOT] * 4096, [("f", 0, 4096, FUNCTION, GLOBAL)])
X86 = elf([NOP], machine=62)


@dataclass(frozen=True)
class Hostile:
    """A file and what a scan of it must say; `holds` is what believing it would cost, in words."""

    holds: str
    write: Callable[[Path], None]
    verdict: str


def of(data: bytes) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        path.write_bytes(data)

    return write


def sparse(head: bytes, size: int) -> Callable[[Path], None]:
    """`head`, then a hole up to `size`."""

    def write(path: Path) -> None:
        path.write_bytes(head)
        os.truncate(path, size)

    return write


def wheel(*members: tuple[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in (("pkg/__init__.py", b""), *members, ("pkg-1.0.dist-info/RECORD", b"")):
            archive.writestr(name, data)
    return out.getvalue()


def deflated(head: bytes, mebibytes: int) -> bytes:
    """A deflate stream of `head` and so many MiB of zeros: one compressed MiB, again and again."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    first = packer.compress(head) + packer.flush(zlib.Z_FULL_FLUSH)
    again = packer.compress(bytes(MIB)) + packer.flush(zlib.Z_FULL_FLUSH)
    return first + again * mebibytes + b"\3\0"


def zip_of(streams: list[bytes], size: int, entries: int, checksum: int = 0, name: bytes = b"a") -> bytes:
    """A zip whose directory has `entries` members of `size` bytes; they take turns with the streams."""
    sizes = [struct.pack("<III", checksum, len(stream), size) for stream in streams]
    fixed = struct.pack("<HHHHH", 20, 0, 8, 0, 0x21)
    body, places = bytearray(), []
    for stream, each in zip(streams, sizes, strict=True):
        places.append(len(body))
        body += b"PK\3\4" + fixed + each + struct.pack("<HH", len(name), 0) + name + stream
    directory = bytearray()
    for number in range(entries):
        which = number % len(streams)
        directory += b"PK\1\2" + struct.pack("<H", 20) + fixed + sizes[which]
        directory += struct.pack("<HHHHHII", len(name), 0, 0, 0, 0, 0, places[which]) + name
    end = struct.pack("<HHHHIIH", 0, 0, entries, entries, len(directory), len(body), 0)
    return bytes(body + directory) + b"PK\5\6" + end


def bomb() -> bytes:
    """Four members of 3 GiB, each of which begins like a program for AArch64."""
    return zip_of([deflated(PROGRAM[:64], 3072)] * 4, 64 + 3 * GIB, 4)


def overlapping() -> bytes:
    """A directory of 60,000 members that all are the same 16 MiB, which decompress without a fault."""
    checksum = zlib.crc32(bytes(16 * MIB), zlib.crc32(PROGRAM[:64]))
    return zip_of([deflated(PROGRAM[:64], 16)], 64 + 16 * MIB, 60_000, checksum)


def nested(levels: int, copies: int) -> bytes:
    """Zips in zips: `copies` to the power of `levels` members in all."""
    data = PROGRAM
    for _ in range(levels):
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            for number in range(copies):
                archive.writestr(f"{number}.zip", data)
        data = out.getvalue()
    return data


def gzip_bomb() -> bytes:
    """10 GiB of zeros behind a program's header."""
    return b"\x1f\x8b\x08\0\0\0\0\0\2\3" + deflated(PROGRAM[:64], 10 * 1024) + bytes(8)


def many_members(path: Path) -> None:
    """A compressed tar of a million empty files with names of their own: 512 MB of headers."""
    block = b"".join(tarfile.TarInfo(name).tobuf() for name in names(2048))
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    again = packer.compress(block) + packer.flush(zlib.Z_FULL_FLUSH)
    path.write_bytes(b"\x1f\x8b\x08\0\0\0\0\0\2\3" + again * 512 + b"\3\0" + bytes(8))


def names(count: int) -> list[str]:
    chance = random.Random(1)
    return [chance.randbytes(12).hex() for _ in range(count)]


def hole(size: int) -> bytes:
    """A program whose one section of code is that long; the file must be made as long."""
    data = bytearray(PROGRAM)
    section = len(data) - 6 * 64 + 64
    struct.pack_into("<QQ", data, section + 24, MIB, size)
    return bytes(data)


NEITHER = "it is neither an ELF file nor an archive that is read here"

HOSTILE: dict[str, Hostile] = {
    "text file": Hostile("2 KB of text", of(b"This is a text file.\n" * 100), NEITHER),
    "x86 program": Hostile("no code for AArch64", of(X86), "it is an ELF file for x86-64, not for AArch64"),
    "truncated ELF": Hostile("half of its code", of(PROGRAM[: len(PROGRAM) // 2]), "it is truncated"),
    "sparse file": Hostile("4 GiB of zeros", sparse(b"", 4 * GIB), NEITHER),
    "sparse ELF": Hostile(
        "3 GiB of code, a hole",
        sparse(hole(3 * GIB), 4 * GIB),
        "it has 3,221,225,472 bytes of code; more than 1,073,741,824 are not read",
    ),
    "zip bomb": Hostile("12 GiB in 4 members", lambda path: of(bomb())(path), "as a decompression bomb does"),
    "overlapping zip": Hostile(
        "1 TB in 60,000 members that share their bytes",
        lambda path: of(overlapping())(path),
        "its members lie over each other, as in a decompression bomb",
    ),
    "nested zips": Hostile(
        "16^7 members, 7 deep", lambda path: of(nested(7, 16))(path), "archives nested more than 6 deep"
    ),
    "gzip bomb": Hostile("10 GiB", lambda path: of(gzip_bomb())(path), "as a decompression bomb does"),
    "tar of a million": Hostile("1,048,576 members", many_members, "more than 200,000 members"),
    "wheel without binaries": Hostile(
        "Python only", of(wheel(("pkg/a.py", b"pass\n"))), "no ELF file is in it"
    ),
    "wheel of x86 binaries": Hostile(
        "no code for AArch64",
        of(wheel(("pkg/a.so", X86), ("pkg/b.so", X86))),
        "no AArch64 code is in it; 2 ELF files for x86-64",
    ),
}
"""Name → file. None of them can be determined: exit code 2."""
