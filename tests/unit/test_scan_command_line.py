# SPDX-License-Identifier: MIT
"""`invoke scan` on hostile files, as a person starts it: one verdict, exit code 2, bounded cost."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from gguf_limits import limited
from hostile_files import HOSTILE, MIB, PROGRAM, hole, sparse
from scan_cost import HEAD, ROOT, cost_of_scan

MOST_MEMORY = 128 * MIB
"""Half of it is Python with the lab's packages; docs/scan.md promises 300 MB for any file."""
MOST_READ = 64 * MIB
"""13 MiB of it are the program itself."""


@pytest.mark.parametrize("name", HOSTILE)
def test_one_verdict_at_a_bounded_cost(tmp_path: Path, name: str) -> None:
    path = tmp_path / "file"
    HOSTILE[name].write(path)
    cost = cost_of_scan(path)
    assert (cost.code, cost.err) == (2, "")
    verdict, *rest = cost.out.splitlines()
    assert verdict.startswith(f"{path}: cannot be determined: ")
    assert HOSTILE[name].verdict in verdict
    assert [line[:3] for line in rest] == ["L1:"], "nothing but the verdict and what the layer does not say"
    assert cost.peak < MOST_MEMORY
    assert cost.read < MOST_READ
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_the_measured_cost_is_that_of_the_scan(tmp_path: Path) -> None:
    """A scan that has to read 160 MiB of code, and again for its digest, shows in the figures and passes."""
    path = tmp_path / "file"
    sparse(hole(160 * MIB), 161 * MIB)(path)
    cost = cost_of_scan(path)
    assert (cost.code, cost.verdict) == (0, "scanned: 1 AArch64 binary")
    assert cost.read > 320 * MIB
    assert cost.peak < MOST_MEMORY


def test_the_worst_of_several_files_decides(tmp_path: Path) -> None:
    (tmp_path / "good").write_bytes(PROGRAM)
    (tmp_path / "text").write_text("no program")
    names = ("good", "text", "none")
    command = [sys.executable, "-m", "invoke", "scan", *(str(tmp_path / name) for name in names)]
    for count, code in ((1, 0), (2, 2), (3, 3)):
        done = subprocess.run(
            command[: 4 + count], cwd=ROOT, capture_output=True, text=True, check=False, timeout=300
        )
        assert (done.returncode, done.stderr) == (code, "")
        verdicts = [line for line in done.stdout.splitlines() if line.startswith(str(tmp_path))]
        assert [line.partition(": ")[2].partition(":")[0] for line in verdicts] == [
            "scanned", "cannot be determined", "wrong use",
        ][:count]  # fmt: skip


NO_ROOM = """
from pathlib import Path
from tierlab.dispatch.scan import scan_file
resource.setrlimit(resource.RLIMIT_FSIZE, (16 << 20, 16 << 20))
print(scan_file(Path(sys.argv[3])).verdict)
"""


def test_a_member_without_room_in_the_temporary_folder(tmp_path: Path) -> None:
    path = tmp_path / "a.tar.gz"
    inside = tmp_path / "a.so"
    inside.write_bytes(hole(24 * MIB))
    os.truncate(inside, 25 * MIB)
    subprocess.run(["tar", "-C", str(tmp_path), "-czf", str(path), "a.so"], check=True)
    told = limited(NO_ROOM, str(path))
    assert told.startswith("cannot be determined: a member of it could not be kept in the temporary folder")
    assert told.rstrip().endswith("Set TMPDIR to a folder with room")


def test_the_table_of_the_docs_is_that_of_the_files() -> None:
    text = (Path(ROOT) / "docs" / "scan.md").read_text()
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text[text.index(f"| {HEAD[0]} |") :].split("\n\n")[0].splitlines()
    ]
    assert rows[0] == list(HEAD)
    assert [row[0] for row in rows[2:]] == list(HOSTILE)
    for row in rows[2:]:
        hostile = HOSTILE[row[0]]
        assert (row[1], row[4]) == (hostile.holds, "2")
        assert re.match(r"cannot be determined: .+", row[3])
        assert hostile.verdict in row[3]
        assert int(row[5]) * MIB < MOST_MEMORY
        assert int(row[6]) * MIB < MOST_READ
