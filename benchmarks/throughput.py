# SPDX-License-Identifier: MIT
"""The lab's speed as ratios, on the same cells in the same minutes (docs/benchmarks.md explains them).

Run as: python benchmarks/throughput.py --engine rootfs
"""

from __future__ import annotations

import os

# As the lab's own workers have it; NumPy reads it when it is loaded.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import resource
import shutil
import statistics
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rig import bare_loop, cells_of, empty_caches, evenly, fresh_run, made_ready, prepared, process_a_cell
from watch import Watch

from tierlab.cells.expand import lanes
from tierlab.judge.verdict import Verdict
from tierlab.run.lane import LaneRunner
from tierlab.run.workbench import Workbench

if TYPE_CHECKING:
    from collections.abc import Callable

    from rig import Ready

    from tierlab.run.plan import Plan
    from tierlab.run.record import CellRecord


@dataclass
class Figures:
    """Seconds (or shares) of every round, by name."""

    rounds: dict[str, list[float]] = field(default_factory=dict)

    def add(self, name: str, value: float) -> None:
        self.rounds.setdefault(name, []).append(value)

    def ratio(self, top: str, bottom: str, factor: float = 1.0) -> list[float]:
        """Round by round, because the machine's mood changes between rounds."""
        pairs = zip(self.rounds[top], self.rounds[bottom], strict=True)
        return [factor * first / second for first, second in pairs]


def lab(plan: Plan) -> list[CellRecord]:
    """One worker's whole work: open the bench, run every lane, close it."""
    records: list[CellRecord] = []
    with Workbench(plan) as bench:
        for key, cells in lanes(bench.matrix, plan.selection):
            LaneRunner(bench, key, cells, records.append).run()
    return records


def measure_lab(plan: Plan, figures: Figures, name: str, count: int) -> None:
    run = fresh_run(plan)
    with Watch() as watch:
        own, start = time.process_time(), time.monotonic()
        records = lab(run)
        wall = time.monotonic() - start
    if len(records) != count or any(r.cached or not r.as_expected for r in records):
        msg = f"{len(records)} records for {count} cells, or not all ran and passed: nothing can be compared"
        raise SystemExit(msg)
    figures.add(f"lab, {name}", wall)
    figures.add(f"kernels', {name}", sum(record.kernel_ms for record in records) / 1000)
    figures.add(f"emulators', {name}", watch.emulator_seconds())
    figures.add(f"its own, {name}", time.process_time() - own)


def measure_others(plan: Plan, figures: Figures, name: str, work: Callable[[Workbench], float]) -> None:
    with Workbench(fresh_run(plan)) as bench:
        figures.add(name, work(bench))


def timed(work: Callable[..., object], bench: Workbench, items: list[Ready]) -> float:
    start = time.monotonic()
    work(bench, items)
    return time.monotonic() - start


def main() -> None:
    options = _options()
    with ExitStack() as stack:
        reports = Path(tempfile.mkdtemp(prefix="tierlab-benchmark-reports-"))
        stack.callback(shutil.rmtree, reports)
        plan = prepared(options.engine, reports)
        cache = stack.enter_context(empty_caches())
        plan = _without_crashes(plan)
        cells = cells_of(plan)
        figures = Figures()
        for number in range(options.rounds):
            _round(plan, cache, figures, options.sample)
            print(f"round {number + 1} of {options.rounds} done", flush=True)
    _print(figures, len(cells), options.sample)


def _round(plan: Plan, cache: Path, figures: Figures, sample: int) -> None:
    """Each side once, the two of a ratio next to each other."""
    cells = cells_of(plan)

    def everything(bench: Workbench) -> float:
        return timed(bare_loop, bench, made_ready(bench, cells))

    def one_by_one(bench: Workbench) -> float:
        return timed(process_a_cell, bench, evenly(made_ready(bench, cells), sample))

    shutil.rmtree(cache / "problems", ignore_errors=True)
    measure_lab(plan, figures, "cold", len(cells))
    measure_others(plan, figures, "bare loop", everything)
    measure_lab(plan, figures, "warm", len(cells))
    measure_others(plan, figures, "process a cell", one_by_one)


def _without_crashes(plan: Plan) -> Plan:
    """Leave out the cells that do not pass: a bare loop has no answer to a process that dies."""
    records = lab(fresh_run(plan))
    bad = {record.cell: str(record.verdict) for record in records if record.verdict is not Verdict.PASS}
    for cell, verdict in bad.items():
        print(f"left out ({verdict}): {cell}")
    only = tuple(cell for cell in plan.selection.only if cell not in bad)
    return replace(plan, selection=replace(plan.selection, only=only))


def _print(figures: Figures, cells: int, sample: int) -> None:
    print(f"\n{cells} cells, one worker; one process a cell: {sample} of them, drawn evenly")
    print("\n| | median | least | most |\n| --- | ---: | ---: | ---: |")

    def row(name: str, values: list[float], form: str) -> None:
        shown = (statistics.median(values), min(values), max(values))
        print(f"| {name} |", *(f"{value:{form}} |" for value in shown))

    for state in ("cold", "warm"):
        mine = f"lab, {state}"
        slow = figures.ratio("process a cell", mine, cells / sample)
        row(f"cells a second over one process a cell, {state}", slow, ".1f")
        row(f"time over the bare loop's, {state}", figures.ratio(mine, "bare loop"), ".2f")
        for part in ("emulators'", "kernels'", "its own"):
            shares = figures.ratio(f"{part}, {state}", mine)
            row(f"{part} time over the lab's wall time, {state}", shares, ".0%")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(f"\npeak memory of this process, lab and opponents together: {peak} MB")
    for name in ("bare loop", "lab, cold", "lab, warm", "process a cell"):
        print(f"seconds here and now: {name}", *(f"{value:.2f}" for value in figures.rounds[name]))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The lab's speed, as ratios.")
    parser.add_argument("--engine", help="docker, rootfs or native; chosen by itself where absent")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sample", type=int, default=30, help="cells that get a process each")
    return parser.parse_args()


if __name__ == "__main__":
    main()
