# SPDX-License-Identifier: MIT
"""Thousands of changed files: a verdict each, no traceback, nothing endless.

The scans run in a process under limits of the kernel: one that hangs runs out of processor time, one that
believes a stated length runs out of memory.
"""

from __future__ import annotations

import pytest
from gguf_limits import MIB, PEAK, limited, peak

COUNT = 2_000

FUZZ = """
import gzip, io, json, random, tarfile, zipfile
from collections import Counter
from pathlib import Path
from mutations import mutated
from scan_files import *
from tierlab.dispatch.scan import scan_file
from tierlab.dispatch.scan_text import as_json, as_text

kind, path, count, seed = sys.argv[3], Path(sys.argv[4]), int(sys.argv[5]), int(sys.argv[6])

def program(words=24):
    names = [("kai_run_a_neon_dotprod", 0, 8, FUNCTION, GLOBAL), ("f", 8, 8, FUNCTION, LOCAL)]
    return elf([SDOT, FADD] * (words // 2), names, text=b"text of it")

def zipped(*members):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return out.getvalue()

def tarred(*members):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()

library = ar(("a.o", program()), ("b.o", program()))
files = {
    "elf": program(),
    "zip": zipped(("a.so", program()), ("b.txt", b"text"), ("c.a", library)),
    "deb": ar(
        ("debian-binary", b"2.0\\n"),
        ("control.tar.gz", gzip.compress(tarred(("control", b"Package: x\\n")), mtime=0)),
        ("data.tar.gz", gzip.compress(tarred(("./usr/lib/a.so", program())), mtime=0)),
    ),
    "ar": library,
    "tar": tarred(("a.so", program()), ("x" * 150, b"long name"), ("c.a", library)),
}
data = files[kind]
path.write_bytes(data)
good = scan_file(path)
assert good.exit_code == 0, good.verdict
chance, seen = random.Random(seed), Counter()
for turn in range(count):
    path.write_bytes(mutated(chance, data))
    found = scan_file(path)
    lines = list(as_text([found]))
    text = json.dumps(as_json([found]))
    assert found.exit_code in (0, 2), turn
    assert found.verdict.startswith("scanned: " if found.exit_code == 0 else "cannot be determined: "), turn
    assert all(line.isprintable() and len(line) < 1000 for line in lines), (turn, lines)
    assert len(text) < 100_000, turn
    seen[int(found.exit_code)] += 1
print("READ", seen[0], "TOLD", seen[2])
"""


@pytest.mark.parametrize("kind", ["elf", "zip", "deb", "ar", "tar"])
def test_two_thousand_mutations(tmp_path_factory: pytest.TempPathFactory, kind: str) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "file"
    printed = limited(FUZZ + PEAK, kind, path, COUNT, 20261201)
    words = printed.split()
    read, told = int(words[1]), int(words[3])
    assert read + told == COUNT
    # Both kinds of answers were exercised: a fuzz that only ever hits one says little.
    assert read > COUNT // 50
    assert told > COUNT // 50
    assert peak(printed) < 300 * MIB
