# SPDX-License-Identifier: MIT
"""The lab is killed and interrupted from outside: nothing is lost, nothing is done twice, nothing stays.

Real commands on a private cache without verdicts. Cells are counted where it matters: in the results.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections import Counter
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from robustness_lab import (
    MEDIUM,
    ROOT,
    SMALL,
    Lab,
    Watched,
    comm,
    finished,
    lab_in,
    records,
    until,
    worker_pids,
)

from tierlab.toolchain.choose import choose_engine

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.engine

MANY = 200
"""MEDIUM has more cells than this."""

SOME = 25
"""Records after which a run counts as being in the middle."""


@pytest.fixture(scope="module", autouse=True)
def _image() -> None:
    with closing(choose_engine("rootfs", lambda _: None)) as engine:
        engine.prepare()


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with lab_in(tmp_path / "lab") as made:
        yield made


@contextmanager
def in_the_middle(lab: Lab) -> Iterator[tuple[subprocess.Popen[str], Watched]]:
    """A run of MEDIUM that has answered some cells and not all, and its processes at that moment."""
    with lab.start(lab.matrix(*MEDIUM)) as process:
        until(lambda: lab.runs() and len(records(lab.runs()[-1])) >= SOME, process)
        with closing(Watched(lab.processes())) as watched:
            assert len(watched) >= 4, "lab, pytest, two workers"
            yield process, watched


def asked(run: Path) -> set[str]:
    return set((run / "cells.txt").read_text().split())


def assert_all_once(lab: Lab) -> None:
    """The last run answers every cell, and over all runs no cell was executed twice."""
    last = lab.runs()[-1]
    assert len(asked(last)) > MANY
    assert {str(record["cell"]) for record in records(last)} == asked(last)
    counts = Counter(lab.executed())
    assert {cell for cell, number in counts.items() if number > 1} == set()


def resumed(lab: Lab) -> None:
    """The same command again completes the work."""
    done = lab.run(lab.matrix(*MEDIUM))
    assert done.code == 0, done.text
    assert_all_once(lab)


def children(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except (OSError, IndexError):
                continue
            if parent == pid:
                found.append(int(entry.name))
    return found


# Killed ------------------------------------------------------------------------------------------------


def test_killed_lab_leaves_no_process_and_the_same_command_resumes(lab: Lab) -> None:
    with in_the_middle(lab) as (process, watched):
        process.kill()
        process.wait()
        until(lambda: not watched.alive() and not lab.processes())
        assert 0 < len(set(lab.executed())) < len(asked(lab.runs()[-1]))
    resumed(lab)


def test_killed_pytest_is_replaced_and_its_workers_stop_at_once(lab: Lab) -> None:
    with in_the_middle(lab) as (process, watched):
        for child in children(process.pid):
            os.kill(child, signal.SIGKILL)
        done = finished(process)
        assert watched.alive() == []
    assert done.code == 0, done.text
    assert_all_once(lab)


def test_killed_workers_lose_no_cell(lab: Lab) -> None:
    with in_the_middle(lab) as (process, watched):
        until(lambda: worker_pids(lab), process)
        for pid in worker_pids(lab):
            os.kill(pid, signal.SIGKILL)
        done = finished(process)
        assert watched.alive() == []
    assert done.code == 0, done.text
    assert_all_once(lab)


@pytest.mark.parametrize("name", ["bwrap", "qemu-aarch64"])
def test_killed_sandbox_costs_nothing(lab: Lab, name: str) -> None:
    """An engine's process that is killed from outside is no fault of the kernel: the cell is tried again."""
    with in_the_middle(lab) as (process, _):
        victims: list[int] = []
        until(lambda: victims.extend(p for p in lab.processes() if comm(p) == name) or victims, process)
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        done = finished(process)
    assert done.code == 0, done.text
    assert_all_once(lab)


# Interrupted -------------------------------------------------------------------------------------------


def to_group(process: subprocess.Popen[str]) -> None:
    os.killpg(process.pid, signal.SIGINT)


def to_lab(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGINT)


def politely(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGTERM)


@pytest.mark.parametrize("interrupt", [to_group, to_lab, politely])
def test_interrupt_leaves_a_valid_report_and_resumes(
    lab: Lab, interrupt: Callable[[subprocess.Popen[str]], None]
) -> None:
    with in_the_middle(lab) as (process, watched):
        interrupt(process)
        done = finished(process)
        assert watched.alive() == []
        assert lab.processes() == []
    assert "Traceback" not in done.text
    run = lab.runs()[-1]
    report = json.loads((run / "report.json").read_text())
    info = json.loads((run / "run.json").read_text())
    answered = {record["cell"] for record in records(run) if record["verdict"] == "pass"}
    assert report["total"]["cells"] == len(asked(run))
    open_cells = len(asked(run)) - len(answered)  # none, if the lab was faster than the signal
    assert done.code == (2 if open_cells else 0)
    assert ("the same command goes on" in done.text) == bool(open_cells)
    assert report["total"]["verdicts"].get("pass") == len(answered)
    assert info["finished"] is not None
    assert (run / "junit.xml").read_text().startswith("<?xml")
    resumed(lab)


# At once, and changed meanwhile ------------------------------------------------------------------------


def test_two_runs_at_once_have_their_own_folders(lab: Lab) -> None:
    with lab.start(lab.matrix(*SMALL)) as one, lab.start(lab.matrix(*SMALL)) as two:
        ends = [finished(one), finished(two)]
    assert [done.code for done in ends] == [0, 0], ends
    assert len(lab.runs()) == 2
    for run in lab.runs():
        assert {record["cell"] for record in records(run)} == asked(run)
    assert (lab.reports / "latest").resolve() in lab.runs()


def test_matrix_file_may_change_during_the_run(lab: Lab) -> None:
    file = lab.place / "mine.yaml"
    shutil.copy(ROOT / "matrix.yaml", file)
    with lab.start(lab.matrix(*MEDIUM, "--file", str(file))) as process:
        until(lambda: lab.runs() and records(lab.runs()[-1]), process)
        file.write_text("broken: [")
        done = finished(process)
    assert done.code == 0, done.text
    assert_all_once(lab)


# Damaged caches ----------------------------------------------------------------------------------------


def half(data: bytes) -> bytes:
    return data[: len(data) // 2]


def bit(data: bytes) -> bytes:
    return data[:-40] + bytes([data[-40] ^ 1]) + data[-39:] if len(data) > 40 else data


def nothing(_: bytes) -> bytes:
    return b""


@pytest.mark.parametrize("damage", [half, bit, nothing])
def test_damaged_cache_files_only_cost_time(lab: Lab, damage: Callable[[bytes], bytes]) -> None:
    (lab.cache / "problems").unlink(missing_ok=True)
    shared = (lab.cache / "digests").resolve()
    (lab.cache / "digests").unlink()
    shutil.copytree(shared, lab.cache / "digests")
    first = lab.run(lab.matrix(*SMALL))
    assert first.code == 0, first.text
    for name in ("problems", "digests", "hellos", "verdicts"):
        for file in (path for path in (lab.cache / name).rglob("*") if path.is_file()):
            file.write_bytes(damage(file.read_bytes()))
    again = lab.run(lab.matrix(*SMALL))
    assert again.code == 0, again.text
    one, two = (
        {record["cell"]: (record["verdict"], record["share"], record["digest"]) for record in records(run)}
        for run in lab.runs()
    )
    assert one == two
