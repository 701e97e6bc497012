# SPDX-License-Identifier: MIT
"""What one `invoke scan FILE` costs, measured from outside.

Run as a program (python tests/scan_cost.py) it prints the table of docs/scan.md.
"""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from gguf_limits import MIB, limited
from hostile_files import HOSTILE

ROOT = Path(__file__).resolve().parents[1]

LAUNCHER = """
import json, subprocess
def read():
    with open("/proc/self/io") as counters:
        return int(next(line.split()[1] for line in counters if line.startswith("rchar")))
before = read()
command = [sys.executable, "-m", "invoke", "scan", *sys.argv[4:]]
done = subprocess.run(command, cwd=sys.argv[3], capture_output=True)
cost = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps({
    "code": done.returncode, "out": done.stdout.decode(), "err": done.stderr.decode(),
    "peak": cost.ru_maxrss * 1024, "seconds": cost.ru_utime + cost.ru_stime, "read": read() - before,
}))
"""
"""A small process in between: the largest size of a child counts from what its parent was when it forked, and
the bytes that a child asked the kernel for are added to its parent's when it ends."""


@dataclass(frozen=True)
class Cost:
    """Exit code, what was printed, peak resident bytes, processor seconds, bytes read from files."""

    code: int
    out: str
    err: str
    peak: int
    seconds: float
    read: int

    @property
    def verdict(self) -> str:
        """The first line, without the file's name."""
        return self.out.partition("\n")[0].partition(": ")[2]


def cost_of_scan(path: Path, *, seconds: int = 120) -> Cost:
    """`invoke scan path`; a process that takes more processor time than `seconds` is killed and fails."""
    found = json.loads(limited(LAUNCHER, str(ROOT), str(path), seconds=seconds))
    return Cost(**found)


def rows() -> list[tuple[str, ...]]:
    """The table of docs/scan.md, measured now."""
    table = []
    with tempfile.TemporaryDirectory() as folder:
        for name, hostile in HOSTILE.items():
            path = Path(folder) / "file"
            hostile.write(path)
            cost, size = cost_of_scan(path), path.stat().st_blocks * 512
            figures = (f"{cost.peak / MIB:.0f}", f"{cost.read / MIB:.0f}", f"{cost.seconds:.1f}")
            table.append((name, hostile.holds, f"{size:,}", cost.verdict, str(cost.code), *figures))
            path.unlink()
    return table


HEAD = ("file", "what it holds", "bytes on disk", "verdict", "exit", "peak MiB", "MiB read", "processor s")


def main() -> None:
    for row in (HEAD, ("---",) * 3 + ("---", "---:", "---:", "---:", "---:"), *rows()):
        sys.stdout.write(f"| {' | '.join(row)} |\n")


if __name__ == "__main__":
    main()
