# SPDX-License-Identifier: MIT
"""pytest plugin: `pytest matrix.yaml -n 2 -k neoverse-n1`. Lanes are items; each cell is reported by itself.

A matrix file is collected only where it is named on the command line. Without a prepared plan the plugin
prepares one (image, builds) in the controlling process; xdist's workers get its path.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tierlab.errors import TierlabError, UsageError
from tierlab.run.lifeline import die_with_parent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tierlab.cells.model import Cell, LaneKey
    from tierlab.run.record import CellRecord
    from tierlab.run.workbench import Workbench

BENCH = pytest.StashKey["Workbench"]()
OWN_RUN = pytest.StashKey[Path]()
"""The run's folder, where pytest itself prepared the run (and somebody has to write its reports)."""

SHOWN_FAILURES = 20
SUFFIXES = (".yaml", ".yml")


class LaneFailure(Exception):
    """Some cells of a lane are not as expected; the message names them."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tierlab", "tierlab: cells of a matrix file")
    group.addoption("--tierlab-plan", metavar="FILE", help="a prepared run (plan.json)")
    group.addoption("--preset", default="default", help="preset of the matrix file (default: default)")
    group.addoption("--engine", help="docker, rootfs or native")
    group.addoption("--cell-seed", type=int, help="seed of all inputs")
    group.addoption("--only", action="append", default=[], help="glob on cell ids; repeatable")


def pytest_configure(config: pytest.Config) -> None:
    """In the controlling process: prepare a run if a matrix file is asked for and none is prepared."""
    if hasattr(config, "workerinput"):
        if config.option.tierlab_plan:
            die_with_parent()
        return
    if config.option.tierlab_plan or config.option.collectonly:
        return
    named = [path for path in _named(config) if path.suffix in SUFFIXES]
    if not named:
        return
    # Inherited by the workers, read when NumPy is first imported: small products, many workers.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        config.option.tierlab_plan = str(_prepare(config, named))
        config.stash[OWN_RUN] = Path(config.option.tierlab_plan).parent
    except TierlabError as error:
        pytest.exit(f"tierlab: {error}", returncode=int(error.exit_code))


def _named(config: pytest.Config) -> list[Path]:
    return [Path(config.invocation_params.dir, arg.split("::")[0]).resolve() for arg in config.args]


def _prepare(config: pytest.Config, named: list[Path]) -> Path:
    from tierlab.cells.selection import Selection
    from tierlab.run.prepare import Wish, prepare

    if len(named) > 1:
        msg = f"one matrix file a run, {len(named)} were given; nothing was run. Name one"
        raise UsageError(msg)
    option = config.option
    selection = Selection(preset=option.preset, only=tuple(option.only))
    wish = Wish(matrix=named[0], selection=selection, engine=option.engine, seed=option.cell_seed)
    return prepare(wish, note_cells=False)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    config = parent.config
    if file_path.suffix not in SUFFIXES or file_path.resolve() not in _named(config):
        return None
    return MatrixFile.from_parent(parent, path=file_path)


class MatrixFile(pytest.File):
    """A matrix file: collects one item for each lane."""

    def collect(self) -> Iterator[LaneItem]:
        from tierlab.cells.expand import lanes
        from tierlab.cells.load import load_matrix
        from tierlab.cells.selection import Selection
        from tierlab.run.plan import read_plan
        from tierlab.run.recall import canary_lanes

        option = self.config.option
        canaries: list[tuple[LaneKey, tuple[Cell, ...]]] = []
        try:
            if option.tierlab_plan:
                plan = read_plan(Path(option.tierlab_plan))
                matrix = load_matrix(plan.matrix_file)
                # What is answered already is left to the lane: every worker must collect the same items.
                found = [lane for lane in lanes(matrix, plan.selection) if lane[0].build in plan.builds]
                canaries = [lane for lane in canary_lanes(matrix, plan) if lane[0].build in plan.builds]
            else:
                matrix = load_matrix(self.path)
                selection = Selection(preset=option.preset, only=tuple(option.only))
                found = list(lanes(matrix, selection))
        except TierlabError as error:
            pytest.exit(f"tierlab: {error}", returncode=int(error.exit_code))
        for key, cells in sorted(found, key=lambda lane: -len(lane[1])):
            yield LaneItem.from_parent(self, name=key.id, key=key, cells=cells)
        for key, cells in canaries:
            yield CanaryItem.from_parent(self, name=f"excluded/{key.id}", key=key, cells=cells)


class LaneItem(pytest.Item):
    """One lane; passes if every cell is as expected."""

    def __init__(self, *, key: LaneKey, cells: tuple[Cell, ...], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.key = key
        self.cells = cells

    def runtest(self) -> None:
        from tierlab.run.lane import LaneRunner

        unexpected: list[CellRecord] = []

        def emit(record: CellRecord) -> None:
            if not record.as_expected:
                unexpected.append(record)
            self._report(record)

        LaneRunner(_bench(self.config), self.key, self.cells, emit).run()
        if unexpected:
            shown = [
                f"{record.verdict}: {record.cell}: {record.detail}" for record in unexpected[:SHOWN_FAILURES]
            ]
            if len(unexpected) > SHOWN_FAILURES:
                shown.append(f"and {len(unexpected) - SHOWN_FAILURES} more")
            raise LaneFailure("\n".join(shown))

    def _report(self, record: CellRecord) -> None:
        """Let pytest count the cell. xdist wants the item's own node id; the location names the cell."""
        if record.as_expected:
            outcome, text = "passed", None
        else:
            outcome, text = "failed", f"{record.verdict}, expected {record.expected}: {record.detail}"
        report = pytest.TestReport(
            nodeid=self.nodeid,
            location=(str(self.path), None, record.cell),
            keywords={},
            outcome=outcome,  # type: ignore[arg-type]
            longrepr=text,
            when="call",
            duration=record.wall_ms / 1000,
        )
        self.ihook.pytest_runtest_logreport(report=report)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> str | Any:
        if isinstance(excinfo.value, (LaneFailure, TierlabError)):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, None, str]:
        return self.path, None, f"{self.key.id} ({len(self.cells)} cells)"


class CanaryItem(LaneItem):
    """Excluded cells that are tried all the same; whatever they do, it is no failure (see canary_notes)."""

    def runtest(self) -> None:
        from tierlab.run.lane import LaneRunner
        from tierlab.run.store import CANARIES, Store

        bench = _bench(self.config)
        with Store(bench.plan.run_dir, CANARIES) as store:
            LaneRunner(bench, self.key, self.cells, lambda _: None, store).run()


def _bench(config: pytest.Config) -> Workbench:
    """The process's workbench, opened with its first lane."""
    from tierlab.run.plan import read_plan
    from tierlab.run.workbench import Workbench

    if BENCH not in config.stash:
        config.stash[BENCH] = Workbench(read_plan(Path(config.option.tierlab_plan)))
    return config.stash[BENCH]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Close this process's workbench."""
    bench = session.config.stash.get(BENCH, None)
    if bench is not None:
        bench.close()
