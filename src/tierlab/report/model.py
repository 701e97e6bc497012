# SPDX-License-Identifier: MIT
"""A run, aggregated once: every report prints the same figures from the same `Summary`."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tierlab.errors import ExitCode
from tierlab.judge.verdict import Verdict
from tierlab.report.comparison import Comparison, comparisons
from tierlab.report.faults import (
    FaultGroup,
    Outcome,
    ThreadDependence,
    fault_groups,
    outcome,
    thread_dependence,
)
from tierlab.run.record import CellRecord, RunInfo
from tierlab.run.store import read_cells, read_records, read_run_info

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


@dataclass
class Tally:
    """Counts over some cells. `worst` is the passing cell that uses most of its budget."""

    cells: int = 0
    verdicts: Counter[Verdict] = field(default_factory=Counter)
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    unexpected: Counter[Verdict] = field(default_factory=Counter)
    worst: CellRecord | None = None

    def add(self, record: CellRecord) -> None:
        result = outcome(record)
        self.cells += 1
        self.verdicts[record.verdict] += 1
        self.outcomes[result] += 1
        if result in (Outcome.UNEXPECTED, Outcome.UNDETERMINED):
            self.unexpected[record.verdict] += 1
        judged = record.verdict is Verdict.PASS and math.isfinite(record.share)
        if judged and (self.worst is None or record.share > self.worst.share):
            self.worst = record

    @property
    def worst_share(self) -> float:
        return self.worst.share if self.worst else math.nan


@dataclass
class LaneCost:
    """What a lane cost; a cost of the run under emulation, never a speed of a kernel."""

    lane: str
    executed: int = 0
    wall_ms: float = 0.0
    kernel_ms: float = 0.0


@dataclass
class Summary:
    """Everything that the reports say about a run.

    `records` holds one record a cell, cells without an answer included (as `untested`); `torn` the places
    of lines cut short by a crash; `unnamed` counts asked cells that are neither answered nor named.
    """

    info: RunInfo
    records: list[CellRecord]
    torn: list[str]
    unnamed: int
    total: Tally
    profiles: dict[str, Tally]
    squares: dict[tuple[str, str, str], Tally]
    groups: dict[Outcome, list[FaultGroup]]
    thread_dependence: list[ThreadDependence]
    lanes: list[LaneCost]
    cached: int
    comparisons: list[Comparison] = field(default_factory=list)

    @property
    def executed(self) -> int:
        return sum(lane.executed for lane in self.lanes)

    @property
    def excluded(self) -> int:
        return sum(entry.count for entry in self.info.exclusions)

    @property
    def moved(self) -> int:
        """Controls whose results differ between builds, each counted once."""
        return len(frozenset().union(*(comparison.moved_keys for comparison in self.comparisons)))

    @property
    def compared(self) -> bool:
        """Whether every comparison that was asked for compared anything."""
        return all(comparison.pairs for comparison in self.comparisons)

    @property
    def exit_code(self) -> ExitCode:
        """1 if any cell has an undeclared verdict or a control moved, even if others are untested.

        A fault that was seen is seen, whatever else is unknown. Otherwise 2 if anything was not determined;
        else 0.
        """
        found = self.total.outcomes
        if found[Outcome.UNEXPECTED] or found[Outcome.CURED] or self.moved:
            return ExitCode.UNEXPECTED
        if found[Outcome.UNDETERMINED] or self.unnamed or self.info.missing_shards or not self.total.cells:
            return ExitCode.UNDETERMINED
        if not self.compared:
            return ExitCode.UNDETERMINED
        return ExitCode.AS_EXPECTED

    @property
    def wall_ms(self) -> float:
        return sum(lane.wall_ms for lane in self.lanes)

    @property
    def kernel_ms(self) -> float:
        return sum(lane.kernel_ms for lane in self.lanes)

    def of(self, *wanted: Outcome) -> list[FaultGroup]:
        return [group for result in wanted for group in self.groups.get(result, [])]


def summarise(run_dir: Path) -> Summary:
    """Read and aggregate a run, finished or not. Raises StoreError."""
    torn: list[str] = []
    info = read_run_info(run_dir)
    answers = read_records(run_dir, torn)
    missing = [cell for cell in read_cells(run_dir) if cell not in answers]
    records = list(answers.values())
    records += [unanswered(cell) for cell in missing]
    return aggregate(info, records, torn, unnamed=max(0, info.asked - len(records)))


def aggregate(
    info: RunInfo, records: list[CellRecord], torn: Sequence[str] = (), unnamed: int = 0
) -> Summary:
    total, cached = Tally(), 0
    profiles: dict[str, Tally] = {}
    squares: dict[tuple[str, str, str], Tally] = {}
    lanes: dict[str, LaneCost] = {}
    for record in records:
        square = (record.profile, record.path, record.type)
        total.add(record)
        profiles.setdefault(record.profile, Tally()).add(record)
        squares.setdefault(square, Tally()).add(record)
        cached += record.cached
        if not record.cached and not record.undetermined:
            lane = lanes.setdefault(record.lane, LaneCost(record.lane))
            lane.executed += 1
            lane.wall_ms += record.wall_ms
            lane.kernel_ms += record.kernel_ms
    order = {profile.name: at for at, profile in enumerate(info.profiles)}
    return Summary(
        info=info,
        records=records,
        torn=list(torn),
        unnamed=unnamed,
        total=total,
        profiles=dict(sorted(profiles.items(), key=lambda item: (order.get(item[0], len(order)), item[0]))),
        squares=squares,
        groups=fault_groups(records),
        thread_dependence=thread_dependence(records),
        lanes=sorted(lanes.values(), key=lambda lane: (-lane.wall_ms, lane.lane)),
        cached=cached,
        comparisons=comparisons(info.comparisons, records),
    )


def unanswered(cell: str) -> CellRecord:
    """The record of a cell that was asked for and never answered; its axes are read back from its id."""
    parts = cell.split("/")
    suite, types, shape, inputs, path, threads, build, profile = parts if len(parts) == 8 else [*"?" * 8]
    return CellRecord(
        cell=cell,
        verdict=Verdict.UNTESTED,
        profile=profile,
        suite=suite,
        build=build,
        path=path,
        threads=int(threads[1:]) if threads[1:].isdigit() else 0,
        type=types,
        shape=shape,
        inputs=inputs,
        detail="no answer came back for this cell",
    )


def reproducer(record: CellRecord, info: RunInfo) -> str:
    """The one command that runs this cell again, quoted for a POSIX shell."""
    words = f"invoke matrix --only {shell_quoted(record.cell)} --seed {info.seed}"
    if info.preset not in ("", "default"):
        words += f" --preset {shell_quoted(info.preset)}"
    paths = [build.path for build in info.builds if build.name == record.build and build.path]
    return words + (f" --llama-cpp {shell_quoted(paths[0])}" if paths else "")


def shell_quoted(text: str) -> str:
    """Always in quotes (shlex.quote leaves plain words bare), so that a glob can be typed in their place."""
    return "'" + text.replace("'", "'\"'\"'") + "'"
