# SPDX-License-Identifier: MIT
"""A lab that dies while a sandbox is being set up leaves no half-made sandbox behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import uuid
from typing import TYPE_CHECKING

import pytest
from absent import absent
from robustness_lab import MARK, marked, until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.engine

LATE = """#!/bin/sh
# bubblewrap that sets up only once the process that started it is dead.
touch "$TIERLAB_TEST_STARTED"
while kill -0 "$PPID" 2>/dev/null; do sleep 0.01; done
exec "$TIERLAB_TEST_BWRAP" "$@"
"""

LAB = """
import sys
from pathlib import Path
from tierlab.toolchain.bubblewrap import BubblewrapProcess
options = ["--unshare-all", "--die-with-parent", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev"]
BubblewrapProcess(options, ["touch", "/dev/null"], (), None)
"""


def test_lab_that_dies_before_its_sandbox_is_up_leaves_no_process(tmp_path: Path) -> None:
    real = shutil.which("bwrap") or absent("bubblewrap")
    late = tmp_path / "bwrap"
    late.write_text(LATE)
    late.chmod(0o755)
    started, mark = tmp_path / "started", uuid.uuid4().hex
    env = {
        **os.environ,
        "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
        "TIERLAB_TEST_BWRAP": str(real),
        "TIERLAB_TEST_STARTED": str(started),
        MARK: mark,
    }
    with subprocess.Popen([sys.executable, "-c", LAB], env=env) as lab:
        until(started.exists, None)
        lab.send_signal(signal.SIGKILL)
        lab.wait()
    try:
        until(lambda: not marked(mark))
    finally:
        for pid in marked(mark):
            os.kill(pid, signal.SIGKILL)
