# SPDX-License-Identifier: MIT
"""What a process and its descendants use: processor time and peak memory, read from /proc while they live."""

from __future__ import annotations

import contextlib
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

PERIOD_SECONDS = 0.05
"""What a process uses after its last reading is missed."""

_TICK = os.sysconf("SC_CLK_TCK")


@dataclass
class Usage:
    """One process: `depth` below the watched one, processor seconds and peak resident bytes so far."""

    name: str
    depth: int
    seconds: float = 0.0
    peak: int = 0

    @property
    def emulator(self) -> bool:
        return self.name.startswith("qemu-")

    @property
    def python(self) -> bool:
        return self.name.startswith("python")


class Watch:
    """Watches the process `pid` and its descendants from entering to leaving the block."""

    def __init__(self, pid: int | None = None) -> None:
        self._root = pid if pid is not None else os.getpid()
        self._found: dict[int, Usage] = {}
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Watch:
        self._read(self._root, 0)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join()

    @property
    def processes(self) -> list[Usage]:
        return list(self._found.values())

    def emulator_seconds(self) -> float:
        """Processor time of the emulators so far."""
        return sum(usage.seconds for usage in self.processes if usage.emulator)

    def peak(self, depth: int) -> int:
        """Largest peak of the Python processes at that depth, in bytes."""
        mine = [usage.peak for usage in self.processes if usage.python and usage.depth == depth]
        return max(mine, default=0)

    def _watch(self) -> None:
        while not self._end.wait(PERIOD_SECONDS):
            self._read(self._root, 0)

    def _read(self, pid: int, depth: int) -> None:
        with contextlib.suppress(OSError, ValueError, IndexError):
            self._note(pid, depth)
        with contextlib.suppress(OSError):
            for task in os.listdir(f"/proc/{pid}/task"):
                children = Path(f"/proc/{pid}/task/{task}/children").read_text()
                for child in children.split():
                    self._read(int(child), depth + 1)

    def _note(self, pid: int, depth: int) -> None:
        """The name is read each time: a process becomes another program by exec."""
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        name = Path(os.readlink(f"/proc/{pid}/exe")).name
        usage = self._found.setdefault(pid, Usage(name, depth))
        usage.name, usage.seconds = name, (int(fields[11]) + int(fields[12])) / _TICK
        status = Path(f"/proc/{pid}/status").read_text()
        usage.peak = int(status.partition("VmHWM:")[2].split(None, 1)[0]) << 10
