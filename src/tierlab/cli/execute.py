# SPDX-License-Identifier: MIT
"""Runs a prepared plan: pytest over its lanes in worker processes, with progress; then what is left."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from tierlab.report.progress import show_progress
from tierlab.run.plan import MATRIX_COPY, Plan, read_plan
from tierlab.run.provenance import with_hellos
from tierlab.run.recall import canary_notes, recall
from tierlab.run.store import answered, now, read_cells, read_run_info, write_run_info

if TYPE_CHECKING:
    from pathlib import Path

PASSES = 3
"""A worker that is killed loses a lane's remaining cells; they are asked for again, this often at most."""

ONE_BLAS_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""Each worker's oracle products are small; BLAS threads that spin would take the emulator's processor."""

END_SECONDS = 30.0
INTERRUPTED = 2
ENDED_BY_ITSELF = (0, 1, INTERRUPTED)
"""pytest's exit codes: all lanes as expected, some not, interrupted. Others: the runner itself failed."""

_PR_SET_PDEATHSIG = 1
# Loaded here: between fork and exec nothing may be loaded.
_LIBC = ctypes.CDLL(None)


def execute(plan_file: Path, workers: int) -> bool:
    """Run all cells of the plan; True if the user interrupted. Raises StoreError if results are lost."""
    run_dir, plan = plan_file.parent, read_plan(plan_file)
    asked = read_cells(run_dir)
    interrupted = False
    with show_progress(run_dir, len(asked)):
        left, canaries = recall(plan)
        if left < len(asked):
            print(f"{len(asked) - left} of {len(asked)} cells need no execution", flush=True)
        runnable = [cell for cell in asked if cell.split("/")[-2] not in plan.unbuildable]
        for number in range(PASSES):
            if not left and not (number == 0 and canaries):
                break
            interrupted = _one_pass(plan_file, workers, number)
            before, left = left, len(set(runnable) - answered(run_dir))
            if interrupted or left == before:
                break
    _finish(run_dir, plan)
    return interrupted


def _one_pass(plan_file: Path, workers: int, number: int) -> bool:
    """One pytest run over what earlier passes have not answered."""
    run_dir = plan_file.parent
    command = [
        *(sys.executable, "-m", "pytest", str(run_dir / MATRIX_COPY)),
        *("--tierlab-plan", str(plan_file), "-c", os.devnull, "--rootdir", str(run_dir)),
        *("-p", "no:cacheprovider", "-q", "--no-header", "-W", "ignore"),
        *("-n", str(workers), "--dist", "worksteal", "--max-worker-restart", "16"),
    ]
    with (run_dir / f"pytest-{number}.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **ONE_BLAS_THREAD},
            preexec_fn=_die_with_parent,
            start_new_session=True,
        )
        try:
            process.wait()
        except KeyboardInterrupt:
            _end(process)
            return True
        except BaseException:
            _end(process)
            raise
    if process.returncode not in ENDED_BY_ITSELF:
        how = f"code {process.returncode}" if process.returncode >= 0 else f"signal {-process.returncode}"
        print(f"tierlab: the runner failed ({how}); its log: {log.name}", file=sys.stderr, flush=True)
    return process.returncode == INTERRUPTED


def _die_with_parent() -> None:
    """In the child: no pytest without its lab. xdist's workers end when their channel closes."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Let pytest and its workers end by themselves (sandboxes are closed, the store synced), then make them.

    The whole group: interrupted alone, the controller would let the workers go on for seconds.
    """
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGINT)
    try:
        process.wait(END_SECONDS)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _finish(run_dir: Path, plan: Plan) -> None:
    """Complete `run.json` but for the exit code: what the CPUs and the canaries said, the end."""
    info = with_hellos(read_run_info(run_dir), plan)
    info = replace(info, notes=(*info.notes, *canary_notes(plan)))
    write_run_info(run_dir, replace(info, finished=now()))
