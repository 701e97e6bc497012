# SPDX-License-Identifier: MIT
"""The lab's speed as ratios, on the same cells in the same minutes (docs/benchmarks.md explains them).

    python benchmarks/throughput.py --engine rootfs
"""

from __future__ import annotations

import argparse
import resource
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from rig import (
    Plan,
    bare_loop,
    cells_of,
    empty_caches,
    evenly,
    fresh_run,
    made_ready,
    prepared,
    process_a_cell,
)

from tierlab.cells.expand import lanes
from tierlab.judge.verdict import Verdict
from tierlab.run.lane import LaneRunner
from tierlab.run.record import CellRecord
from tierlab.run.workbench import Workbench


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


def timed(work: Callable[[], object]) -> float:
    start = time.monotonic()
    work()
    return time.monotonic() - start


def emulated_seconds() -> float:
    """Processor time of the children that have ended: sandboxes and the emulators in them."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def lab(plan: Plan) -> list[CellRecord]:
    """One worker's whole work: open the bench, run every lane, close it."""
    records: list[CellRecord] = []
    with Workbench(plan) as bench:
        for key, cells in lanes(bench.matrix, plan.selection):
            LaneRunner(bench, key, cells, records.append).run()
    return records


def measure_lab(plan: Plan, figures: Figures, name: str) -> None:
    run = fresh_run(plan)
    before, start = emulated_seconds(), time.monotonic()
    records = lab(run)
    wall = time.monotonic() - start
    executed = [record for record in records if not record.cached]
    if len(executed) != len(cells_of(plan)) or not all(record.as_expected for record in records):
        msg = f"of {len(records)} cells {len(executed)} ran, not all passed; the ratios would mean nothing"
        raise SystemExit(msg)
    figures.add(f"{name} lab", wall)
    figures.add(f"{name} kernel share", sum(record.kernel_ms for record in executed) / 1000 / wall)
    figures.add(f"{name} emulator share", (emulated_seconds() - before) / wall)


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
            shutil.rmtree(cache / "problems", ignore_errors=True)
            measure_lab(plan, figures, "cold")
            with Workbench(fresh_run(plan)) as bench:
                ready = made_ready(bench, cells)
                sample = evenly(ready, options.sample)
                figures.add("bare", timed(lambda: bare_loop(bench, ready)))
            measure_lab(plan, figures, "warm")
            with Workbench(fresh_run(plan)) as bench:
                figures.add("process a cell", timed(lambda: process_a_cell(bench, sample)))
            print(f"round {number + 1} of {options.rounds} done", flush=True)
        _print(figures, len(cells), options.sample)


def _without_crashes(plan: Plan) -> Plan:
    """Leave out the cells that do not pass: a bare loop has no answer to a process that dies."""
    records = lab(fresh_run(plan))
    bad = {record.cell: str(record.verdict) for record in records if record.verdict is not Verdict.PASS}
    for cell, verdict in bad.items():
        print(f"left out ({verdict}): {cell}")
    only = tuple(cell for cell in plan.selection.only if cell not in bad)
    return replace(plan, selection=replace(plan.selection, only=only))


def _print(figures: Figures, cells: int, sample: int) -> None:
    print(f"{cells} cells; one process a cell measured on {sample} of them, drawn evenly")
    rows = [("", "median", "least", "most")]

    def row(name: str, values: list[float]) -> None:
        rows.append((name, *(f"{v:.3g}" for v in (statistics.median(values), min(values), max(values)))))

    scale = cells / sample
    for name in ("cold", "warm"):
        row(f"(a) speed over one process a cell, {name}", figures.ratio("process a cell", f"{name} lab", scale))
        row(f"(b) time over the bare loop, {name}", figures.ratio(f"{name} lab", "bare"))
        row(f"(c) kernel share, {name}", figures.rounds[f"{name} kernel share"])
        row(f"(c) emulator share, {name}", figures.rounds[f"{name} emulator share"])
    for name in ("bare", "cold lab", "warm lab", "process a cell"):
        row(f"    s: {name}", figures.rounds[name])
    for cells_of_row in rows:
        print("{:48} {:>8} {:>8} {:>8}".format(*cells_of_row))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", help="docker, rootfs or native; chosen by itself where absent")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sample", type=int, default=30, help="cells that one process each is measured on")
    return parser.parse_args()


if __name__ == "__main__":
    main()
