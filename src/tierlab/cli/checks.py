# SPDX-License-Identifier: MIT
"""`invoke test`: the project's own checks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tierlab.errors import ExitCode, UsageError


def project_root() -> Path:
    """The checkout: the folder that holds matrix.yaml, tasks.py and kernels/."""
    root = Path(__file__).resolve().parents[3]
    if not (root / "kernels").is_dir():
        msg = (
            f"{root} is not a checkout of tierlab (no kernels/ in it). The matrix needs the checkout's data "
            "files: install with `pip install --editable .` from a clone and run there."
        )
        raise UsageError(msg)
    return root


def test(unit: bool, keyword: str) -> ExitCode:
    """Run ruff, mypy and pytest; all of them, even after a failure, so that one run shows everything."""
    root = project_root()
    python = sys.executable
    where = ["tests/unit"] if unit else ["tests"]
    commands = [
        [python, "-m", "ruff", "check", "."],
        [python, "-m", "ruff", "format", "--check", "."],
        [python, "-m", "mypy"],
        [python, "-m", "pytest", *where, *(["-k", keyword] if keyword else [])],
    ]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    failed = []
    for command in commands:
        print("$ " + " ".join(command[1:]), flush=True)
        if subprocess.run(command, cwd=root, env=environment, check=False).returncode != 0:
            failed.append(" ".join(command[2:4]))
    if failed:
        print("failed: " + ", ".join(failed), flush=True)
        return ExitCode.UNEXPECTED
    return ExitCode.AS_EXPECTED
