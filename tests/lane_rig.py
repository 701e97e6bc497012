# SPDX-License-Identifier: MIT
"""Whole lanes for tests: the run's own machinery on a real engine and emulator, with faults where wanted.

A fault goes into the request and nowhere else: what streams, judges and records the cell is what a run uses.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

from tierlab.cells.cell_id import parse_cell_id
from tierlab.cells.selection import Selection
from tierlab.run import requests
from tierlab.run.lane import LaneRunner
from tierlab.run.plan import MATRIX_COPY, Plan
from tierlab.run.workbench import Workbench
from tierlab.toolchain.flags import Mode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from harness_rig import Rig

    from tierlab.cells.model import Cell
    from tierlab.harness.messages import Request
    from tierlab.run.record import CellRecord
    from tierlab.toolchain.build import Build

MATRIX = Path(__file__).parents[1] / "matrix.yaml"


class ForgetfulBench(Workbench):
    """A workbench that keeps no verdict: those of faulty kernels must reach no cache."""

    def remember(self, key: Mapping[str, str], record: CellRecord) -> None:
        """Keep nothing."""


class Lanes:
    """Runs cells, named by their ids, on given builds; close it (or use it as a context).

    `environment` is set for the processes under test.
    """

    def __init__(
        self, rig: Rig, builds: dict[str, Build], folder: Path, environment: dict[str, str] | None = None
    ) -> None:
        shutil.copyfile(MATRIX, folder / MATRIX_COPY)
        reference = rig.build(Mode.REFERENCE)
        engine = rig.engine
        plan = Plan(folder, Selection(), 1, engine.name, engine.identity(), builds, reference, fresh=True)
        self._bench = ForgetfulBench(replace(plan, environment=environment or {}))

    def run(
        self, ids: Iterable[str], faults: Mapping[str, str] | None = None, seconds: float | None = None
    ) -> dict[str, CellRecord]:
        """Cell id → record. `faults` are the faults of cells, by id; `seconds` replaces the cells' limit."""
        wanted = faults or {}

        def place(slot: Any, number: int, cell: Cell, inputs: Any, size: int) -> Request:
            return replace(requests.place(slot, number, cell, inputs, size), fault=wanted.get(cell.id, ""))

        bench, original = self._bench, self._bench.matrix
        if seconds is not None:
            bench.matrix = replace(original, timeouts=replace(original.timeouts, cell_seconds=seconds))
        records: list[CellRecord] = []
        cells = [parse_cell_id(original, name) for name in ids]
        try:
            with patch("tierlab.run.stream.place", place):
                for lane, group in groupby(cells, key=lambda cell: cell.lane):
                    LaneRunner(bench, lane, tuple(group), records.append).run()
        finally:
            bench.matrix = original
        found = {record.cell: record for record in records}
        assert len(found) == len(records) == len(cells), "a cell without exactly one record"
        return found

    def close(self) -> None:
        """End what was started."""
        self._bench.close()

    def __enter__(self) -> Lanes:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def faulty(rig: Rig) -> Build:
    """The build that a run uses, with the harness that can be asked for faults."""
    build = rig.build(Mode.VARIANTS)
    return replace(build, harness=build.faulty_harness)
