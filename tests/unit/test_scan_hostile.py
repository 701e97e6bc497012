# SPDX-License-Identifier: MIT
"""Bad input: one clear verdict line each, no traceback, nothing left behind, memory within 300 MB."""

from __future__ import annotations

import gzip
import io
import os
import random
import struct
import subprocess
import sys
import tarfile
import zipfile
import zlib
from typing import TYPE_CHECKING

import pytest
from hostile_files import MIB, deflated, zip_of
from scan_files import FUNCTION, GLOBAL, NOP, SDOT, ar, elf

from tierlab.dispatch.scan import FileScan, scan_file
from tierlab.dispatch.scan_streams import Budget
from tierlab.errors import ExitCode

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

GOOD = elf([SDOT] * 64, [("f", 0, 64, FUNCTION, GLOBAL)])


def scanned(tmp_path: Path, data: bytes, budget: Budget | None = None) -> FileScan:
    path = tmp_path / "file"
    path.write_bytes(data)
    return scan_file(path, budget)


def zipped(members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return out.getvalue()


def encrypted(data: bytes) -> bytes:
    """The same zip with the flag of encryption on every member."""
    out = bytearray(data)
    for magic, at in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        place = out.find(magic)
        while place >= 0:
            out[place + at] |= 1
            place = out.find(magic, place + 1)
    return bytes(out)


def misnamed(name: bytes) -> bytes:
    """A zip of one program whose directory calls it `name`, said to be UTF-8."""
    data = zipped({"a" * len(name): GOOD})
    at = data.rindex(b"PK\1\2")
    flags = changed(data, at + 8, "<H", 0x800)
    return flags[: at + 46] + name + flags[at + 46 + len(name) :]


def changed(data: bytes, at: int, layout: str, *values: int) -> bytes:
    out = bytearray(data)
    struct.pack_into(layout, out, at, *values)
    return bytes(out)


def tar_header(name: bytes, size: int, kind: bytes = b"0") -> bytes:
    header = bytearray(512)
    header[: len(name)] = name
    header[124:136] = b"\x80" + size.to_bytes(11, "big")
    header[156:157] = kind
    header[257:265] = b"ustar\x0000"
    return bytes(header)


def nested(levels: int) -> bytes:
    data = GOOD
    for _ in range(levels):
        data = zipped({"a.zip": data})
    return data


def overlapping(count: int) -> bytes:
    """Many section headers for one and the same code."""
    begin = len(GOOD) - 6 * 64
    text = GOOD[begin + 64 : begin + 128]
    return changed(GOOD, 60, "<HH", 6 + count, 5) + text * count


BAD = {
    "empty": (b"", "it is empty"),
    "text": (b"This is a text file.\n" * 100, "neither an ELF file nor an archive"),
    "x86": (elf([NOP], machine=62), "an ELF file for x86-64, not for AArch64"),
    "elf header only": (GOOD[:64], "it is truncated"),
    "half an elf": (GOOD[: len(GOOD) // 2], "it is truncated"),
    "four bytes": (b"\x7fELF", "an ELF file for truncated ELF"),
    "no code": (changed(GOOD, len(GOOD) - 5 * 64 + 8, "<Q", 2), "it holds no code"),
    "a billion sections": (
        changed(changed(GOOD, 60, "<H", 0), len(GOOD) - 6 * 64 + 32, "<Q", 1 << 30),
        "announces 1,073,741,824 sections",
    ),
    "sections beyond": (changed(GOOD, 40, "<Q", 1 << 62), "it is truncated"),
    "code beyond": (changed(GOOD, len(GOOD) - 5 * 64 + 32, "<Q", 1 << 60), "it is truncated: code ends"),
    "sizes that overflow": (
        changed(GOOD, len(GOOD) - 5 * 64 + 24, "<QQ", (1 << 64) - 4096, 8192),
        "it is truncated: code ends",
    ),
    "code of everything, again and again": (overlapping(200), "its sections hold"),
    "code of gigabytes": (
        changed(GOOD, len(GOOD) - 5 * 64 + 32, "<Q", 2 << 30),
        "it is truncated: code ends",
    ),
    "core dump": (changed(GOOD, 16, "<H", 4), "core dump"),
    "zip without binaries": (zipped({"a.py": b"pass\n", "b.txt": b"x"}), "no ELF file is in it"),
    "zip of x86": (
        zipped({"a.so": elf([NOP], machine=62)}),
        "no AArch64 code is in it; 1 ELF files for x86-64",
    ),
    "encrypted zip": (encrypted(zipped({"a.so": GOOD})), "1 member is encrypted"),
    "zip cut off": (zipped({"a.so": GOOD})[:-30], "damaged or truncated"),
    "zip with a name that is no text": (misnamed(b"\x81\x81"), "it is damaged: 'utf-8' codec can't decode"),
    "zip whose members overlap": (zip_of([deflated(b"", 1)], MIB, 3), "its members lie over each other"),
    "zip of lzma": (zipped({"a.so": GOOD}, zipfile.ZIP_LZMA), "compression method 14 is not read here"),
    "gzip cut off": (gzip.compress(GOOD)[:-20], "it is damaged"),
    "xz of nonsense": (b"\xfd7zXZ\0" + b"nonsense" * 20, "it is damaged"),
    "bz2 of nonsense": (b"BZh9" + b"nonsense" * 20, "it is damaged"),
    "ar of nonsense": (b"!<arch>\n" + b"nonsense" * 20, "no member's header at byte 8"),
    "ar with a long member": (ar(("a.o", GOOD))[:-200], "it is truncated: member a.o"),
    "thin archive": (b"!<thin>\n" + b"/               ", "thin archive"),
    "archive of text": (ar(("a.txt", b"x")), "no ELF file is in it"),
    "tar with a name of 4 GB": (
        tar_header(b"x", 1 << 32, b"L"),
        "a name or an attribute of 4,294,967,296 bytes",
    ),
    "tar that ends early": (tar_header(b"x", 1 << 40) + GOOD[:20] + bytes(600), "it is truncated"),
    "tar without a number": (
        tar_header(b"x", 0)[:124] + b"nonsense\0\0\0\0" + tar_header(b"x", 0)[136:],
        "a size in a tar header is no number",
    ),
    "tar without its end": (tar_header(b"x", 512) + bytes(512), "the blocks that end a tar are missing"),
    "library without code": (ar(("a.o", changed(GOOD, len(GOOD) - 5 * 64 + 8, "<Q", 2))), "it holds no code"),
    "nested too deep": (nested(7), "nested more than 6 deep"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_verdict_and_exit_2(tmp_path: Path, case: str) -> None:
    data, message = BAD[case]
    found = scanned(tmp_path, data)
    assert found.exit_code == ExitCode.UNDETERMINED
    assert found.verdict.startswith("cannot be determined: ")
    assert message in found.verdict
    assert "\n" not in found.verdict
    assert found.binaries == []
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_member_without_a_name_is_read(tmp_path: Path) -> None:
    found = scanned(tmp_path, zip_of([deflated(GOOD, 0)], len(GOOD), 1, zlib.crc32(GOOD), b""))
    assert (found.exit_code, [binary.name for binary in found.binaries]) == (ExitCode.AS_EXPECTED, [""])


def test_good_members_beside_bad_ones_are_kept_and_exit_is_2(tmp_path: Path) -> None:
    found = scanned(tmp_path, zipped({"a.so": GOOD, "b.so": GOOD[:5000], "c.so": GOOD}))
    assert found.exit_code == ExitCode.UNDETERMINED
    assert found.verdict.startswith("cannot be determined: 2 AArch64 binaries, but b.so: it is truncated")
    assert [binary.name for binary in found.binaries] == ["a.so", "c.so"]


def test_bombs_stop_at_the_ratio(tmp_path: Path) -> None:
    bomb = zipped({"a.so": GOOD[:64] + bytes(4 * MIB)})
    found = scanned(tmp_path, bomb, Budget(ratio_from=MIB))
    assert "as a decompression bomb does" in found.verdict
    assert found.exit_code == ExitCode.UNDETERMINED


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        (Budget(most_bytes=1 << 20), "0 GiB when decompressed"),
        (Budget(most_members=2), "more than 2 members"),
    ],
)
def test_limits_of_one_file(tmp_path: Path, budget: Budget, message: str) -> None:
    members = {f"{number}.so": random.Random(number).randbytes(400_000) for number in range(4)}
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    assert message in scanned(tmp_path, out.getvalue(), budget).verdict


def test_names_that_lead_nowhere(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "pipe")
    for name, code, message in (
        ("none", ExitCode.WRONG_USE, "no such file"),
        ("none/none", ExitCode.WRONG_USE, "no such file"),
        ("", ExitCode.WRONG_USE, "it is a directory"),
        ("pipe", ExitCode.WRONG_USE, "it is no regular file"),
        ("loop", ExitCode.UNDETERMINED, "it cannot be opened (Too many levels of symbolic links)"),
        ("x" * 300, ExitCode.UNDETERMINED, "it cannot be opened (File name too long)"),
    ):
        found = scan_file(tmp_path / name)
        assert found.exit_code == code, name
        assert message in found.verdict


@pytest.fixture
def ordinary_user() -> Iterator[None]:
    """Root may read everything: for the length of a test it is nobody."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    yield
    if root:
        os.seteuid(0)


def test_a_file_that_may_not_be_read(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    (tmp_path / "file").write_bytes(GOOD)
    (tmp_path / "file").chmod(0)
    request.getfixturevalue("ordinary_user")
    assert "it cannot be opened (Permission denied)" in scan_file(tmp_path / "file").verdict


def test_noise_never_raises(tmp_path: Path) -> None:
    """Bytes of good files changed at random, and good files cut anywhere."""
    archive = ar(("debian-binary", b"2.0\n"), ("data.zip", zipped({"a.so": GOOD, "b.a": ar(("a.o", GOOD))})))
    generator = random.Random(1)
    for number in range(400):
        data = bytearray(GOOD if number % 2 else archive)
        for _ in range(generator.randrange(1, 8)):
            low = len(data) - 6 * 64 if number % 4 == 1 else 0
            data[generator.randrange(low, len(data))] = generator.randrange(256)
        if number % 3 == 0:
            del data[generator.randrange(len(data)) :]
        found = scanned(tmp_path, bytes(data))
        assert found.verdict


MEASURED = """
import resource, sys
from pathlib import Path
from tierlab.dispatch.scan import scan_file
found = scan_file(Path(sys.argv[1]))
print(found.verdict)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def measured(path: Path) -> tuple[str, int]:
    """Verdict and peak memory in MiB, in a process of its own."""
    command = [sys.executable, "-c", MEASURED, str(path)]
    verdict, peak = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return verdict, int(peak)


def test_memory_of_a_sparse_file_of_4_gb(tmp_path: Path) -> None:
    path = tmp_path / "sparse"
    path.touch()
    os.truncate(path, 4 << 30)
    verdict, peak = measured(path)
    assert verdict.startswith("cannot be determined: it is neither an ELF file")
    assert peak < 300


def test_memory_of_a_sparse_elf_file(tmp_path: Path) -> None:
    """Its one section of code is a hole larger than the memory that it may take, and it is scanned."""
    begin = len(GOOD) - 6 * 64
    data = changed(GOOD, begin + 64 + 24, "<QQ", 1 << 20, 320 * MIB)
    path = tmp_path / "sparse"
    path.write_bytes(data)
    os.truncate(path, 400 * MIB)
    verdict, peak = measured(path)
    assert verdict == "scanned: 1 AArch64 binary"
    assert peak < 300


def test_memory_of_bombs(tmp_path: Path) -> None:
    head = GOOD[:64]
    for name, opened in (("gz", gzip.open), ("zip", None)):
        path = tmp_path / name
        if opened:
            with opened(path, "wb", 1) as out:
                out.write(head)
                for _ in range(150):
                    out.write(bytes(MIB))
        else:
            with (
                zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
                archive.open("a.so", "w") as out,
            ):
                out.write(head)
                for _ in range(150):
                    out.write(bytes(MIB))
        verdict, peak = measured(path)
        assert "cannot be determined" in verdict
        assert peak < 300
