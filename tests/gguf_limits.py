# SPDX-License-Identifier: MIT
"""A script in a process of its own with little memory and little processor time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

GIB = 1 << 30
MIB = 1 << 20

UNDER_LIMITS = """
import resource, sys
memory, seconds = int(sys.argv[1]), int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
"""

PEAK = """
with open("/proc/self/status") as status:
    print("PEAK", next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM")))
"""
"""Told by the kernel for the program: getrusage would count what the parent had when it forked."""


def limited(script: str, *arguments: str | int, memory: int = 2 * GIB, seconds: int = 300) -> str:
    """Run `script` under limits; what it printed. Arguments begin at sys.argv[3]."""
    source = UNDER_LIMITS + script
    command = [sys.executable, "-c", source, str(memory), str(seconds), *map(str, arguments)]
    here = Path(__file__).parent
    environment = {**os.environ, "PYTHONPATH": str(here), "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def peak(printed: str) -> int:
    """Bytes of the largest resident size that the script told (PEAK)."""
    return int(printed.rpartition("PEAK ")[2])


CENSUS = """
from pathlib import Path
from tierlab.gguf.census import census
from tierlab.gguf.model import open_model
found = census(open_model(Path(sys.argv[3])), hashed=sys.argv[4] == "hashed")
print(found.files[0].sha256, found.nbytes, len(found.model.tensors))
"""
"""What `census` says of the file sys.argv[3]; with its digest if sys.argv[4] is `hashed`."""
