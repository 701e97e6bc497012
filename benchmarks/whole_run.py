# SPDX-License-Identifier: MIT
"""A whole `invoke matrix`, twice: what the second costs, and the memory of the lab's own processes.

Run as: python benchmarks/whole_run.py --engine rootfs
The caches of problems and verdicts start empty; image and builds are borrowed and must exist.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rig import MATRIX, empty_caches
from watch import Watch

ROLES = ("controller", "pytest", "worker")
"""By depth: `invoke`, the pytest that it starts, and that one's workers."""


def run(options: argparse.Namespace, reports: str) -> tuple[float, Watch]:
    """One run; seconds and what its processes used."""
    words = ["--preset", options.preset, "--reports", reports]
    words += ["--engine", options.engine] if options.engine else []
    start = time.monotonic()
    command = [sys.executable, "-m", "invoke", "matrix", *words]
    lab = subprocess.Popen(command, cwd=MATRIX.parent, stdout=subprocess.PIPE, text=True)
    with Watch(lab.pid) as watch:
        said, _ = lab.communicate()
    print(*(line for line in said.splitlines() if "need no execution" in line), sep="\n")
    if lab.returncode not in (0, 1):
        msg = f"invoke matrix ended with {lab.returncode}: nothing was measured"
        raise SystemExit(msg)
    return time.monotonic() - start, watch


def main() -> None:
    parser = argparse.ArgumentParser(description="A whole run, twice.")
    parser.add_argument("--engine", help="docker, rootfs or native; chosen by itself where absent")
    parser.add_argument("--preset", default="default")
    options = parser.parse_args()
    with empty_caches(), tempfile.TemporaryDirectory() as reports:
        (first, one), (second, two) = run(options, reports), run(options, reports)
        cells = len((Path(reports) / "latest" / "cells.txt").read_text().splitlines())
    print(f"{cells} cells")
    print(f"second run, nothing changed: {second / first:.1%} of the first ({second:.1f} s of {first:.1f} s)")
    print(f"emulators' processor time over the first run's wall time: {one.emulator_seconds() / first:.2f}")
    for depth, role in enumerate(ROLES):
        print(f"peak memory of the {role}: {one.peak(depth) >> 20} MB, second run {two.peak(depth) >> 20} MB")


if __name__ == "__main__":
    main()
