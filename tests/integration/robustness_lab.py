# SPDX-License-Identifier: MIT
"""The lab as a person starts it, for tests that do it harm: real commands, a private cache, a private reports
folder, and a way to know every process that a command started."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
import uuid
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tierlab.toolchain.cache import cache_root

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 90.0
"""Seconds after which something that must happen counts as not happening."""

MARK = "TIERLAB_TEST_MARK"
SMALL = ("--preset", "quick", "--profile", "neoverse-n1", "--type", "q4_0")
MEDIUM = ("--preset", "quick", "--profile", "neoverse-n1,cortex-a53")


@dataclass(frozen=True)
class Done:
    """A command that ended."""

    code: int
    text: str


@dataclass
class Lab:
    """One checkout's commands over a private cache that shares image, builds and problems with the real one
    but knows no verdicts."""

    place: Path
    mark: str
    env: dict[str, str] = field(default_factory=dict)

    @property
    def cache(self) -> Path:
        return self.place / "cache"

    @property
    def reports(self) -> Path:
        return self.place / "reports"

    def fill_cache(self) -> None:
        """Share everything but verdicts with the cache of the machine."""
        self.cache.mkdir()
        for entry in cache_root().iterdir():
            if entry.name not in ("verdicts", "hellos"):
                (self.cache / entry.name).symlink_to(entry)

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        own = {"TIERLAB_CACHE": str(self.cache), MARK: self.mark, "PYTHONDONTWRITEBYTECODE": "1"}
        return {**os.environ, **own, **self.env, **(more or {})}

    def matrix(self, *options: str) -> list[str]:
        engine = () if "--engine" in options else ("--engine", "rootfs")
        reports = () if "--reports" in options else ("--reports", str(self.reports))
        return [sys.executable, "-m", "invoke", "matrix", *engine, *reports, *options]

    def start(
        self, command: Sequence[str], env: Mapping[str, str] | None = None, cwd: Path = ROOT
    ) -> subprocess.Popen[str]:
        """Start a command as the leader of a process group of its own, as a shell does."""
        return subprocess.Popen(
            command,
            cwd=cwd,
            env=self.environment(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="surrogateescape",
            process_group=0,
        )

    def run(self, command: Sequence[str], env: Mapping[str, str] | None = None, cwd: Path = ROOT) -> Done:
        with self.start(command, env, cwd) as process:
            return finished(process)

    def runs(self) -> list[Path]:
        """The run folders, oldest first."""
        return sorted(self.reports.glob("2*"))

    def executed(self) -> list[str]:
        """The cells that were executed and got an answer (not from the verdict cache) over all runs."""
        return [
            str(record["cell"])
            for run in self.runs()
            for record in records(run)
            if not record["cached"] and record["verdict"] != "untested"
        ]

    def processes(self) -> list[int]:
        """Processes that a command of this lab started and that live."""
        return marked(self.mark)


def finished(process: subprocess.Popen[str]) -> Done:
    """Wait for a command's end; it is killed, and the test fails, if it takes too long."""
    try:
        text, _ = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        text, _ = process.communicate()
        msg = f"the command did not end within {PATIENCE:g} s; it said:\n{text}"
        raise AssertionError(msg) from None
    return Done(process.returncode, text)


def records(run: Path) -> list[dict[str, object]]:
    """The complete records of a run, in the order of writing."""
    found = []
    with suppress(OSError):
        for line in (run / "results.jsonl").read_bytes().split(b"\n"):
            with suppress(ValueError):
                found.append(json.loads(line))
    return found


def until(condition: Callable[[], object], process: subprocess.Popen[str] | None = None) -> None:
    """Wait for a condition; fails if it does not come, or if the process ends before."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if process is not None and process.poll() is not None:
            assert process.stdout is not None
            msg = f"ended with {process.returncode} before its time: {process.stdout.read()}"
            raise AssertionError(msg)
        assert time.monotonic() < deadline, "what was waited for did not happen"
        select.select([], [], [], 0.005)


def marked(mark: str) -> list[int]:
    """Processes whose environment holds the mark, or that descend from one whose does."""
    wanted = f"{MARK}={mark}".encode()
    parents: dict[int, int] = {}
    found: set[int] = set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with suppress(OSError, IndexError, ValueError):
            parents[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                found.add(int(entry.name))
    grown = True
    while grown:
        heirs = {child for child, parent in parents.items() if parent in found} - found
        found |= heirs
        grown = bool(heirs)
    return sorted(found)


class Watched:
    """Handles of all processes of a lab at one moment: they tell the end even of those that lost parents."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._handles: dict[int, int] = {}
        for pid in pids:
            with suppress(ProcessLookupError):
                self._handles[pid] = os.pidfd_open(pid)

    def __len__(self) -> int:
        return len(self._handles)

    def alive(self) -> list[int]:
        """Which of them still run."""
        return [pid for pid, handle in self._handles.items() if not select.select([handle], [], [], 0)[0]]

    def close(self) -> None:
        for handle in self._handles.values():
            os.close(handle)
        self._handles.clear()


def worker_pids(lab: Lab) -> list[int]:
    """The processes of a run that execute lanes: those that hold sandboxes (bubblewrap is their child)."""
    found = set()
    for pid in lab.processes():
        with suppress(OSError):
            fields = Path("/proc", str(pid), "stat").read_text()
            name = fields.split("(", 1)[1].rsplit(")", 1)[0]
            if name == "bwrap":
                found.add(int(fields.rsplit(")", 1)[1].split()[1]))
    names = {pid: comm(pid) for pid in found}
    return sorted(pid for pid, name in names.items() if name.startswith(("python", "pytest")))


def comm(pid: int) -> str:
    """A process's name, empty if it is gone."""
    with suppress(OSError):
        return Path("/proc", str(pid), "comm").read_text().strip()
    return ""


def remove(lab: Lab) -> None:
    """Kill what a failed test left, then remove its folder."""
    for pid in lab.processes():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    shutil.rmtree(lab.place, ignore_errors=True)


@contextmanager
def lab_in(place: Path) -> Iterator[Lab]:
    """A lab of its own at `place` (made here); at the end nothing of it is left."""
    made = Lab(place, uuid.uuid4().hex)
    made.place.mkdir()
    made.fill_cache()
    yield made
    remove(made)
